"""Artifacts: the folders that stages write, and the only proof that a stage has run.

A worker writes its shards' files under temporary names, renames them, and then commits its task with a small record
in `.commits/`. When every expected task is committed, the driver gathers the records into `artifact.json`, written
last: a folder without it does not exist for any reader. A killed build therefore redoes the uncommitted tasks only,
and files that no record names are never read.
"""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from stages.content import ContentDigest
from stages.errors import UserError
from stages.recipe import Recipe, digest_of

SCHEMA = "mixer/artifact/1"
COMMITS = ".commits"
"""The folder of the tasks' records; no source, cell or domain can have a name that begins with a dot."""


@dataclass(frozen=True)
class File:
    """One file of a shard: its path below the artifact's folder, its size, and the sha256 of its bytes."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Shard:
    """One shard: a name that sorts, its rows, the content digest of its logical rows, its files, and counters."""

    name: str
    rows: int
    content: str
    files: tuple[File, ...]
    counters: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "rows": self.rows,
            "content": self.content,
            "files": [vars(f) for f in self.files],
            "counters": self.counters,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "Shard":
        return Shard(**{**data, "files": tuple(File(**f) for f in data["files"])})


@dataclass(frozen=True)
class Artifact:
    """A finished artifact: where it is, its recipe's digest, its shards in the order of their names, and counters that
    belong to no single shard."""

    folder: Path
    digest: str
    recipe: Mapping[str, Any]
    shards: tuple[Shard, ...]
    counters: Mapping[str, Any]

    @property
    def content(self) -> str:
        """The digest over the names and content digests of all shards."""
        return digest_of([[s.name, s.rows, s.content] for s in self.shards])

    @property
    def rows(self) -> int:
        return sum(s.rows for s in self.shards)

    def path(self, shard: Shard, suffix: str) -> Path:
        """The path of the shard's file with that suffix; KeyError-like UserError when the shard has none."""
        for file in shard.files:
            if file.path.endswith(suffix):
                return self.folder / file.path
        raise UserError(f"{self.folder}: shard {shard.name} has no {suffix} file; remove the folder and build again")


class HashingFile:
    """A binary file that is written once, front to back, and hashed on the way."""

    def __init__(self, raw: BinaryIO) -> None:
        self.raw, self.sha256, self.bytes, self.closed = raw, hashlib.sha256(), 0, False

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self.sha256.update(view)
        self.raw.write(view)
        self.bytes += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self.bytes

    def flush(self) -> None:
        self.raw.flush()

    def close(self) -> None:
        self.closed = True

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


@contextlib.contextmanager
def new_file(folder: Path, path: str) -> Iterator[tuple[HashingFile, list[File]]]:
    """Write `folder/path` so that it appears whole or not at all; the list receives its `File` at the end.

    Raises UserError, naming the file, when the disk is full or the place cannot be written.
    """
    target = folder / path
    temporary = target.with_name(f"{target.name}.tmp-{uuid.uuid4().hex[:12]}")
    made: list[File] = []
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as raw:
            file = HashingFile(raw)
            yield file, made
        temporary.replace(target)
        made.append(File(path, file.bytes, file.sha256.hexdigest()))
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EFBIG):
            raise UserError(f"{target}: cannot be written: {error.strerror}; free some space and build again") from None
        raise
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


class ParquetShard:
    """Writes one Parquet file of a shard: each batch is a row group, so that shards of the same rows can be zipped.

    Use as a context manager; afterwards `file`, `rows` and `content` are set.
    """

    def __init__(self, folder: Path, path: str, schema: pa.Schema, **options: Any) -> None:
        self.schema, self.rows, self.content = schema, 0, ""
        self._new = new_file(folder, path)
        self._options: dict[str, Any] = {"compression": "zstd", "compression_level": 1} | options
        self._digest = ContentDigest(schema)

    def __enter__(self) -> "ParquetShard":
        sink, self._made = self._new.__enter__()
        try:
            self._writer = pq.ParquetWriter(cast(Any, sink), self.schema, **self._options)
        except OSError as error:
            self._new.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch as a row group; its columns must be those of the schema, in order."""
        self._digest.update(batch)
        self.rows += batch.num_rows
        self._writer.write_batch(batch, row_group_size=max(1, batch.num_rows))

    def __exit__(self, *failure: Any) -> None:
        try:
            self._writer.close()
        except OSError as error:
            failure = failure if failure[0] else (type(error), error, error.__traceback__)
        self._new.__exit__(*failure)
        self.content = self._digest.hexdigest()

    @property
    def file(self) -> File:
        return self._made[0]


def write_json(path: Path, data: Any) -> None:
    """Write pretty JSON with sorted keys, atomically."""
    with new_file(path.parent, path.name) as (file, _):
        file.write((json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode())


def commit(folder: Path, task: str, shards: Sequence[Shard]) -> None:
    """Record that a task's shards are whole."""
    write_json(folder / COMMITS / f"{task.replace('/', '@')}.json", [s.to_json() for s in shards])


def committed(folder: Path) -> dict[str, list[Shard]]:
    """The whole shards of an unfinished artifact, by task; a record whose files are gone or cut counts for nothing."""
    done = {}
    for record in sorted((folder / COMMITS).glob("*.json")):
        shards = [Shard.from_json(s) for s in json.loads(record.read_bytes())]
        if all(_has_size(folder / f.path, f.bytes) for s in shards for f in s.files):
            done[record.stem.replace("@", "/")] = shards
    return done


def _has_size(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False


def finish(root: Path, recipe: Recipe, tasks: Iterable[str], counters: Mapping[str, Any] | None = None) -> Artifact:
    """Turn the commits of exactly these tasks into `artifact.json`; clear away everything else in the folder.

    Raises UserError when a task's shards are missing.
    """
    folder = root / recipe.folder
    done = committed(folder)
    names = sorted(tasks)
    missing = [n for n in names if n not in done]
    if missing:
        raise UserError(
            f"{folder}: {len(missing)} of {len(names)} shards were not written, first {missing[0]}; build again"
        )
    shards = tuple(sorted((s for n in names for s in done[n]), key=lambda s: s.name))
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "digest": recipe.digest,
        "recipe": recipe.to_json(),
        "shards": [s.to_json() for s in shards],
        "counters": counters or {},
    }
    wanted = {folder / f.path for s in shards for f in s.files}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path not in wanted and path.parent.name != COMMITS:
            path.unlink(missing_ok=True)
    write_json(folder / "artifact.json", data)
    shutil.rmtree(folder / COMMITS, ignore_errors=True)
    return parse_artifact(folder, data)


def find(root: Path, recipe: Recipe) -> Artifact | None:
    """The finished artifact of a recipe, or None when there is none yet.

    Raises UserError when the folder holds another recipe's artifact, or when a shard's file is missing or has
    another size than its record says.
    """
    folder = root / recipe.folder
    try:
        data = json.loads((folder / "artifact.json").read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        raise UserError(f"{folder / 'artifact.json'}: is damaged; remove the folder and build again") from None
    if data["digest"] != recipe.digest:
        raise UserError(
            f"{folder}: holds the artifact {data['digest'][:12]} where {recipe.digest[:12]} is expected; "
            "remove the folder and build again"
        )
    artifact = parse_artifact(folder, data)
    for shard in artifact.shards:
        for file in shard.files:
            if not _has_size(folder / file.path, file.bytes):
                raise UserError(
                    f"{folder / file.path}: is missing or has changed since it was written ({file.bytes} bytes); "
                    f"remove {folder} and build again"
                )
    return artifact


def parse_artifact(folder: Path, data: Mapping[str, Any]) -> Artifact:
    """An `artifact.json` as an `Artifact`."""
    shards = tuple(Shard.from_json(s) for s in data["shards"])
    return Artifact(folder, data["digest"], data["recipe"], shards, data["counters"])


def open_artifact(root: Path, folder: str, digest: str) -> Artifact:
    """A finished artifact by its folder below the build root. Raises UserError when it is not there or another one."""
    try:
        data = json.loads((root / folder / "artifact.json").read_bytes())
    except (OSError, ValueError):
        raise UserError(
            f"{root / folder}: the artifact is not here; build again in the folder of the manifest"
        ) from None
    if data["digest"] != digest:
        raise UserError(f"{root / folder}: holds the artifact {data['digest'][:12]}, not {digest[:12]}; build again")
    return parse_artifact(root / folder, data)


def sha256_of(path: Path) -> tuple[int, str]:
    """Size and sha256 of a file's bytes as they are on disk now."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return os.fstat(file.fileno()).st_size, digest.hexdigest()
