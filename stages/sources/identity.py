"""The digest of a source: of the bytes it consists of and of what is read from them, never of where they
lie.
"""

import hashlib
import json
import os
import time
from base64 import b64decode
from pathlib import Path
from typing import Any, NamedTuple

from stages.errors import UserError
from stages.sources.listing import Listing, SourceFile
from stages.sources.spec import FilesRead, HfRead, JsonlRead, ParquetRead
from stages.sources.storage import filesystem, is_local, open_binary

SETTLED_NS = 2_000_000_000


class FileRecord(NamedTuple):
    """One file of the source. `digest`: `sha256:...` of its bytes (for a member: of the whole archive), or
    the store's own `md5:`, `crc32c:` or `etag:`; `version`: generation of the object, if the store has
    one.
    """

    name: str
    bytes: int
    digest: str
    version: str


class Identity(NamedTuple):
    """`digest`: sha256 (hex) of the canonical JSON of the sorted (name, bytes, digest) and the read
    settings.
    """

    digest: str
    files: tuple[FileRecord, ...]


def identity(listing: Listing, cache: str | Path, rehash: bool = False) -> Identity:
    """Digest a source. `cache`: a JSON file that remembers the sha256 of local files by (path, size, mtime,
    inode), so that an unchanged file is read once; `rehash` forgets it. Files younger than two seconds are
    not remembered.

    Remote files count by the store's checksum; where it has none their bytes are read. UserError when a
    file is gone or has another size than in the listing.
    """
    memory = _Memory(Path(cache), rehash)
    known: dict[str, tuple[str, str]] = {}
    records = []
    for file in listing.behind or ([] if isinstance(listing.read, HfRead) else listing.files):
        if file.url not in known:
            known[file.url] = _digest(file, memory, listing.source)
        records.append(FileRecord(file.name, file.bytes, *known[file.url]))
    memory.save()
    content = {
        "files": sorted([record.name, record.bytes, record.digest] for record in records),
        "read": read_settings(listing.read),
    }
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return Identity(hashlib.sha256(canonical.encode()).hexdigest(), tuple(records))


def read_settings(read: JsonlRead | ParquetRead | FilesRead | HfRead) -> dict[str, str | None]:
    """The settings that decide which rows the same files give; paths are not among them."""
    if isinstance(read, FilesRead):
        return {"format": read.format}
    settings = {"format": read.format, "text": read.text}
    if isinstance(read, HfRead):
        pinned = {} if read.id is None else {"id": read.id, "revision": read.revision}
        return settings | {"split": read.split, "name": read.name, "row_id": read.row_id} | pinned
    return settings | {"id": read.id}


class _Memory:
    def __init__(self, path: Path, forget: bool) -> None:
        self.path = path
        self.entries: dict[str, list[Any]] = {}
        self.changed = False
        if not forget and path.is_file():
            try:
                loaded = json.loads(path.read_text())
            except ValueError:  # a memory that cannot be read costs only time
                loaded = {}
            self.entries = loaded if isinstance(loaded, dict) else {}

    def sha256(self, path: Path) -> str:
        with path.open("rb") as opened:
            before = os.fstat(opened.fileno())
            key = [before.st_size, before.st_mtime_ns, before.st_ino]
            entry = self.entries.get(str(path))
            if entry is not None and entry[:3] == key:
                return str(entry[3])
            started = time.time_ns()
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
            after = os.fstat(opened.fileno())
        if started - before.st_mtime_ns > SETTLED_NS and after.st_mtime_ns == before.st_mtime_ns:
            self.entries[str(path)] = [*key, digest]
            self.changed = True
        return digest

    def save(self) -> None:
        if self.changed:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            partial = self.path.with_name(f".{self.path.name}.{os.getpid()}")
            partial.write_text(json.dumps(self.entries, sort_keys=True))
            partial.replace(self.path)


def _digest(file: SourceFile, memory: _Memory, source: str) -> tuple[str, str]:
    """(digest, version) of the file, or of the archive that holds it."""
    fs, path = filesystem(file.url)
    if is_local(fs):
        try:
            size = Path(path).stat().st_size
            digest = memory.sha256(Path(path))
        except FileNotFoundError as error:
            raise UserError(f"source {source}: {file.url} was listed but is gone. List it again") from error
        _check_size(file, size, source)
        return f"sha256:{digest}", ""
    info = fs.info(path)
    _check_size(file, int(info["size"]), source)
    version = str(info.get("generation", ""))
    if info.get("md5Hash"):
        return f"md5:{b64decode(info['md5Hash']).hex()}", version
    if info.get("crc32c"):
        return f"crc32c:{b64decode(info['crc32c']).hex()}+generation:{version}", version
    if info.get("ETag"):
        return f"etag:{str(info['ETag']).strip(chr(34))}", version
    with open_binary(file.url) as opened:
        hashed = hashlib.sha256()
        while block := opened.read(1 << 20):
            hashed.update(block)
    return f"sha256:{hashed.hexdigest()}", version


def _check_size(file: SourceFile, size: int, source: str) -> None:
    if file.member is None and file.bytes != size:
        raise UserError(
            f"source {source}: {file.url} had {file.bytes} bytes when listed and has {size} now. "
            "Wait until nothing writes to it and list it again"
        )
