"""Zip and tar archives as read-only containers: members are read in place, never unpacked to a folder.

Zip and plain tar have random access. A compressed tar has none, so opening one inflates it once into an
anonymous temporary file; `units` keeps all its members in one unit for that reason. The archive of a package is in the
cache anyway, so there it is packed again as a zip.
"""

import lzma
import os
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, BinaryIO, Self, cast

from stages.errors import UserError
from stages.sources.storage import open_binary

KINDS = ("zip", "tar")
BROKEN = (
    zipfile.BadZipFile,
    tarfile.ReadError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,
    RuntimeError,
)
"""What the standard library raises for a truncated, damaged, encrypted or unknown archive."""


def split_chain(url: str) -> tuple[str, str] | None:
    """`zip://inner::outer` as (inner pattern, outer url); None for anything that is not a zip or tar
    chain.
    """
    kind, separator, rest = url.partition("://")
    if kind not in KINDS or not separator or "::" not in rest:
        return None
    inner, _, outer = rest.partition("::")
    return inner.lstrip("/"), outer


class Archive:
    """An open archive; a context manager. `url` is the archive's own URL."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._stack = ExitStack()
        with _broken(url), ExitStack() as stack:
            raw = stack.enter_context(open_binary(url))
            magic = raw.read(4)
            raw.seek(0)
            self._zip: zipfile.ZipFile | None = None
            self._tar: tarfile.TarFile | None = None
            if magic[:2] == b"PK":
                self._zip = stack.enter_context(zipfile.ZipFile(raw))
            else:
                self._tar = stack.enter_context(tarfile.open(fileobj=_seekable_tar(raw, magic, stack), mode="r:"))
                self._tar_members = {m.name.removeprefix("./"): m for m in self._tar.getmembers() if m.isfile()}
            self._stack = stack.pop_all()

    def members(self) -> Iterator[tuple[str, int]]:
        """(path, bytes) of every regular file, in archive order. The last of several with one name wins."""
        with _broken(self.url):
            if self._zip is not None:
                entries = {info.filename: info.file_size for info in self._zip.infolist() if not info.is_dir()}
            else:
                entries = {name: info.size for name, info in self._tar_members.items()}
        yield from entries.items()

    def open(self, member: str) -> BinaryIO:
        """Open one member. UserError when it is not there; reading it may raise one of `BROKEN`."""
        with _broken(self.url):
            try:
                if self._zip is not None:
                    return cast(BinaryIO, self._zip.open(member))
                return cast(BinaryIO, cast(tarfile.TarFile, self._tar).extractfile(self._tar_members[member]))
            except KeyError as error:
                raise UserError(f"{self.url}: the member {member} was listed but is not there. List again") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._stack.close()


def as_zip(archive: Path) -> Path:
    """A zip of a local compressed tar, made beside it once: its members are listed and read without inflating the rest.

    Regular files only, in the order of their names, stored, with a fixed date, so its bytes follow from the content.
    UserError when the tar is broken.
    """
    target = archive.with_name(f"{archive.name}.zip")
    if target.is_file():
        return target
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with Archive(str(archive)) as members, zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED) as made:
            for name, size in sorted(members.members()):
                entry = zipfile.ZipInfo(name)
                entry.file_size = size
                with members.open(name) as source, made.open(entry, "w") as copy:
                    shutil.copyfileobj(source, copy, 1 << 20)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return target


def is_sequential(url: str) -> bool:
    """Whether members of this archive cost a pass over all of it: a compressed tar."""
    with open_binary(url) as raw:
        magic = raw.read(4)
        return magic[:2] in (b"\x1f\x8b", b"BZ") or magic in (b"\xfd7zX", b"\x28\xb5\x2f\xfd")


def _seekable_tar(raw: BinaryIO, magic: bytes, stack: ExitStack) -> IO[bytes]:
    import bz2
    import gzip

    import zstandard

    inflated: IO[bytes]
    if magic[:2] == b"\x1f\x8b":
        inflated = cast(IO[bytes], gzip.GzipFile(fileobj=raw))
    elif magic[:2] == b"BZ":
        inflated = bz2.BZ2File(raw)
    elif magic == b"\xfd7zX":
        inflated = lzma.LZMAFile(raw)  # noqa: SIM115
    elif magic == b"\x28\xb5\x2f\xfd":
        inflated = cast(IO[bytes], zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True))
    else:
        return raw
    unpacked = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    shutil.copyfileobj(inflated, unpacked, 1 << 20)
    unpacked.seek(0)
    return unpacked


@contextmanager
def _broken(url: str) -> Iterator[None]:
    try:
        yield
    except BROKEN as error:
        raise UserError(
            f"{url}: the archive cannot be read ({type(error).__name__}: {error}). Fetch it again"
        ) from error
    except OSError as error:
        if error.errno is None:  # gzip and bz2 report damage as an OSError without a number
            raise UserError(f"{url}: the archive cannot be read ({error}). Fetch it again") from error
        raise
