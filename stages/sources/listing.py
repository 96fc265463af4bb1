"""Which files a source consists of: folders, globs, archives and packages expanded to one sorted list."""

import difflib
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from fsspec.utils import glob_translate

from stages.errors import UserError
from stages.sources import hf
from stages.sources.archive import Archive, as_zip, is_sequential, split_chain
from stages.sources.package import fetch
from stages.sources.spec import FilesRead, HfRead, JsonlRead, ParquetRead
from stages.sources.storage import filesystem, is_local, resolve

SUFFIXES = {
    "jsonl": re.compile(r"\.(jsonl|ndjson|json)(\.(gz|gzip|zst|zstd))?$", re.IGNORECASE),
    "parquet": re.compile(r"\.(parquet|parq|pq)$", re.IGNORECASE),
    "files": re.compile(r""),
}
"""Which names a folder is searched for; a glob or a file that the spec names is not held to this."""
STRAY = re.compile(r"^\.|^_SUCCESS$|^_committed_|^_started_|\.crc$")
GLOB = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class SourceFile:
    """One file. `url`: what fsspec opens, or the archive that holds `member`; `name`: path below the
    source's root; `bytes`: stored size; `rows`: only for a dataset of the `datasets` library; `sequential`:
    see `archive`.
    """

    url: str
    name: str
    bytes: int
    member: str | None = None
    rows: int | None = None
    sequential: bool = False


@dataclass(frozen=True)
class Listing:
    """The files of a source, sorted by name, and what was passed over.

    `strays` are names skipped because of what they are (markers, dotfiles, checksums, foreign suffixes),
    `excluded` those that the spec's `exclude` matched. `behind` are the files under an `hf` dataset, for
    its identity only.
    """

    source: str
    read: JsonlRead | ParquetRead | FilesRead | HfRead
    files: tuple[SourceFile, ...]
    strays: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    behind: tuple[SourceFile, ...] = ()


class _Found(NamedTuple):
    container: str  # the archive's url, or the protocol and host of a filesystem
    path: str
    file: SourceFile
    how: str  # what the spec named: "file", "folder" or "glob"


def list_files(
    read: JsonlRead | ParquetRead | FilesRead | HfRead,
    base: str | Path,
    cache_dir: str | Path,
    source: str = "source",
) -> Listing:
    """Expand `read` to its files. `base`: folder of the spec; `cache_dir`: where package archives are kept.

    Names are paths below the deepest folder that every pattern shares, and with several archives each
    begins with the archive's file name. UserError names `source` and the path: nothing there, a glob
    without a match, two files of one name, a broken archive, a package that cannot be fetched.
    """
    if isinstance(read, HfRead):
        return _hf_listing(read, str(base), source)
    found: list[_Found] = []
    roots: dict[str, list[str]] = {}
    for pattern in _patterns(read, str(base), Path(cache_dir)):
        container, root, matches = _expand(pattern, source)
        found.extend(matches)
        roots.setdefault(container, []).append(root)
    named = {f.file.url + "\0" + (f.file.member or ""): f for f in _name(found, roots)}
    kept, strays, excluded = _sift(named.values(), read)
    if not kept:
        raise UserError(
            f"source {source}: {_shown(read)} has no {read.format} file ({len(strays)} passed over as strays, "
            f"{len(excluded)} by `exclude`{': ' + ', '.join(strays[:3]) if strays else ''}). "
            "Check the path and the format"
        )
    files = sorted(kept, key=lambda file: file.name)
    for file in files:
        if file.bytes < 0:
            raise UserError(
                f"source {source}: {file.url} is neither a file nor a link to one. Exclude it; a folder behind a link "
                "needs a path of its own"
            )
    for first, second in itertools.pairwise(files):
        if first.name == second.name:
            raise UserError(
                f"source {source}: {first.url} and {second.url} would both be called {first.name}. "
                "Make them two sources, or rename one"
            )
    return Listing(source, read, tuple(files), tuple(sorted(strays)), tuple(sorted(excluded)))


def _patterns(read: JsonlRead | ParquetRead | FilesRead, base: str, cache_dir: Path) -> list[str]:
    if read.package is not None:
        archive = fetch(read.package, cache_dir)
        archive = archive if archive.suffix in (".whl", ".zip") else as_zip(archive)
        return [f"zip://{path}::{archive}" for path in read.path]
    if isinstance(read, FilesRead) and read.python == "stdlib":
        import sysconfig

        base = sysconfig.get_path("stdlib")
    return [resolve(path, base) for path in read.path]


def _expand(pattern: str, source: str) -> tuple[str, str, list[_Found]]:
    """(container, root of the pattern in it, matches) of one resolved path."""
    chain = split_chain(pattern)
    if chain is not None:
        inner, outer = chain
        with Archive(_one_file(outer, source)) as archive:
            members = dict(archive.members())
        sequential = is_sequential(outer)
        found, how = _match(inner, members)
        if not found:
            raise UserError(f"source {source}: {outer} has no member {inner or '*'}. {_nearest(inner, members)}")
        files = [SourceFile(outer, m, members[m], member=m, sequential=sequential) for m in found]
        return outer, _root(inner, how), [_Found(outer, f.name, f, how) for f in files]
    fs, path = filesystem(pattern)
    sizes, how = _match_filesystem(fs, path)
    if not sizes:
        raise UserError(f"source {source}: nothing at {pattern}. {_nearest_entry(fs, path)}")
    split = urlsplit(pattern)
    container = f"{split.scheme}://" if "://" in pattern else ""
    matches = [
        _Found(container, name, SourceFile(fs.unstrip_protocol(name) if container else name, name, size), how)
        for name, size in sizes.items()
    ]
    return container, _root(path, how), matches


def _match(pattern: str, members: dict[str, int]) -> tuple[list[str], str]:
    if pattern in members:
        return [pattern], "file"
    folder = pattern.rstrip("/")
    below = [name for name in members if not folder or name.startswith(folder + "/")]
    if below:
        return below, "folder"
    regex = re.compile(glob_translate(pattern))
    return [name for name in members if regex.match(name)], "glob"


def _match_filesystem(fs: Any, path: str) -> tuple[dict[str, int], str]:
    if fs.isfile(path):
        return {path: int(fs.size(path))}, "file"
    if fs.isdir(path):
        found, how = fs.find(path, detail=True), "folder"
    elif GLOB.search(path):
        found, how = fs.glob(path, detail=True), "glob"
    else:
        return {}, "glob"
    return {name: _size(fs, name, info) for name, info in found.items() if info["type"] != "directory"}, how


def _size(fs: Any, name: str, info: dict[str, Any]) -> int:
    """Bytes; -1 for a symbolic link that leads to no file, which may yet be excluded."""
    if info["type"] == "file":
        return int(info["size"])
    return Path(name).stat().st_size if is_local(fs) and fs.isfile(name) else -1


def _one_file(outer: str, source: str) -> str:
    fs, path = filesystem(outer)
    if not fs.isfile(path):
        raise UserError(f"source {source}: no archive at {outer}. {_nearest_entry(fs, path)}")
    return outer


def _root(path: str, how: str) -> str:
    """The folder before the first glob; the folder itself, or the one that holds the file."""
    if how == "folder":
        return path.rstrip("/")
    glob = GLOB.search(path) if how == "glob" else None
    return (path[: glob.start()] if glob else path).rpartition("/")[0]


def _name(found: Iterable[_Found], roots: dict[str, list[str]]) -> list[_Found]:
    common = {container: _common_folder(paths) for container, paths in roots.items()}
    several = len(common) > 1
    named = []
    for match in found:
        below = match.path[len(common[match.container]) :].lstrip("/")
        if several and match.file.member is not None:
            below = f"{match.container.rpartition('/')[2]}/{below}"
        named.append(match._replace(file=replace(match.file, name=below)))
    return named


def _common_folder(paths: Sequence[str]) -> str:
    parts = [path.split("/") for path in paths]
    shared = 0
    while all(len(p) > shared and p[shared] == parts[0][shared] for p in parts):
        shared += 1
    return "/".join(parts[0][:shared])


def _sift(
    found: Iterable[_Found], read: JsonlRead | ParquetRead | FilesRead
) -> tuple[list[SourceFile], list[str], list[str]]:
    regexes = [(re.compile(glob_translate(pattern)), "/" in pattern) for pattern in read.exclude]
    kept, strays, excluded = [], [], []
    for match in found:
        name = match.file.name
        parts = name.split("/")
        if any(r.match(name) or (not deep and any(r.match(p) for p in parts)) for r, deep in regexes):
            excluded.append(name)
        elif (match.how != "file" and any(STRAY.search(part) for part in parts)) or (
            match.how == "folder" and (not SUFFIXES[read.format].search(name) or _underscored(read, parts))
        ):
            strays.append(name)
        else:
            kept.append(match.file)
    return kept, strays, excluded


def _underscored(read: JsonlRead | ParquetRead | FilesRead, parts: list[str]) -> bool:
    return read.format != "files" and any(part.startswith("_") for part in parts)


def _nearest_entry(fs: Any, path: str) -> str:
    """What lies in the deepest folder of `path` that exists."""
    glob = GLOB.search(path)
    parent, wanted = path.rstrip("/"), ""
    if glob:
        parent = path[: glob.start()].rpartition("/")[0]
        wanted = path[len(parent) :].strip("/").partition("/")[0]
    while parent.strip("/") and not fs.isdir(parent):
        parent, _, wanted = parent.rpartition("/")
    try:
        entries = [name.rstrip("/").rpartition("/")[2] for name in fs.ls(parent or "/", detail=False)]
    except (OSError, ValueError):
        return "Check the path"
    return f"In {parent or '/'}: {_nearest(wanted, entries)}"


def _nearest(wanted: str, names: Iterable[str]) -> str:
    known = sorted(names)
    close = difflib.get_close_matches(wanted, known, 1, 0.5)
    if close:
        return f"The nearest name is {close[0]}. Check the path"
    return f"There are {', '.join(known[:5]) or 'no files'}{', ...' if len(known) > 5 else ''}. Check the path"


def _shown(read: JsonlRead | ParquetRead | FilesRead) -> str:
    where = f" in {read.package.file}" if read.package else ""
    return ", ".join(read.path) + where


def _hf_listing(read: HfRead, base: str, source: str) -> Listing:
    folder = read.folder or read.saved
    behind: list[SourceFile] = []
    if folder is not None:
        url = resolve(folder, base)
        fs, path = filesystem(url)
        if not fs.isdir(path):
            raise UserError(f"source {source}: no folder at {url}. {_nearest_entry(fs, path)}")
        sizes, _ = _match_filesystem(fs, path)
        for name, size in sorted(sizes.items()):
            below = name[len(path.rstrip("/")) + 1 :]
            if not any(STRAY.search(part) for part in below.split("/")):
                behind.append(SourceFile(name, below, size))
    else:
        url = f"{read.id}@{read.revision}"
    dataset = hf.load(read, url)
    file = SourceFile(url, read.split, int(dataset.data.nbytes), rows=len(dataset))
    return Listing(source, read, (file,), behind=tuple(behind))
