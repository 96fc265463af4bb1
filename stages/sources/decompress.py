"""Plain, gzip and Zstandard streams, told apart by their first bytes, inflated in bounded pieces.

What could be read of a damaged stream is always delivered before `Damaged` is raised.
"""

import zlib
from collections.abc import Iterator
from typing import BinaryIO

import zstandard

from stages.errors import UserError
from stages.sources.archive import BROKEN
from stages.sources.rows import Reason

READ_BYTES = 1 << 18
PIECE_BYTES = 1 << 22
ZSTD_READ_BYTES = 1 << 14  # one decompress call expands at most 128 KiB for every 4 bytes
GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
ZSTD_SKIPPABLE = tuple(bytes([b]) + b"\x2a\x4d\x18" for b in range(0x50, 0x60))
FOREIGN = {
    b"BZh": "bzip2 file: recompress it with gzip or zstd",
    b"\xfd7zXZ": "xz file: recompress it with gzip or zstd",
    b"PK\x03\x04": "zip archive: read it as zip://MEMBERS::PATH",
    b"PAR1": "Parquet file: set `format: parquet`",
    b"ARROW1": "Arrow file: convert it to Parquet",
}


class Damaged(Exception):
    """The stream ends early or its bytes are wrong from here on; `reason` says which."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def inflate(raw: BinaryIO, name: str) -> Iterator[bytes]:
    """The stream's content in pieces of at most a few MiB. `name` is for errors and tells an empty `.gz`
    from an empty file.

    Raises Damaged after the last readable piece, UserError for a kind of file that is no text at all.
    """
    head = _read(raw, READ_BYTES)
    for magic, advice in FOREIGN.items():
        if head.startswith(magic):
            raise UserError(f"{name} is a {advice}")
    if head.startswith(GZIP_MAGIC):
        yield from _gzip(head, raw)
    elif head.startswith((ZSTD_MAGIC, *ZSTD_SKIPPABLE)):
        yield from _zstd(head, raw)
    elif not head and name.lower().endswith((".gz", ".gzip", ".zst", ".zstd")):
        raise Damaged(Reason.TRUNCATED_FILE, "0 bytes, not even a header")
    else:
        while head:
            yield head
            head = _read(raw, READ_BYTES)


def _read(raw: BinaryIO, size: int) -> bytes:
    """Up to `size` bytes, fewer only at the end; damage in a surrounding archive becomes Damaged."""
    parts: list[bytes] = []
    while size > 0:
        try:
            part = raw.read(size)
        except BROKEN as error:
            raise Damaged(Reason.CORRUPT_FILE, f"{type(error).__name__}: {error}") from error
        if not part:
            break
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _gzip(data: bytes, raw: BinaryIO) -> Iterator[bytes]:
    members = 0
    while data:
        if members:  # zero padding after a member is allowed, as in gzip itself
            data = data.lstrip(b"\0")
            if not data:
                data = _read(raw, READ_BYTES)
                continue
        if members and not GZIP_MAGIC.startswith(data[:2]):
            raise Damaged(Reason.CORRUPT_FILE, "bytes after the end of the gzip stream")
        inflater = zlib.decompressobj(wbits=31)
        while not inflater.eof:
            if not data:
                data = _read(raw, READ_BYTES)
                if not data:
                    yield inflater.decompress(b"", PIECE_BYTES)
                    raise Damaged(Reason.TRUNCATED_FILE, "the gzip stream ends early")
            before = inflater.copy()
            try:
                piece = inflater.decompress(data, PIECE_BYTES)
            except zlib.error as error:
                yield _salvage(before, data)
                raise Damaged(Reason.CORRUPT_FILE, str(error)) from error
            data = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
            if piece:
                yield piece
        members += 1
        data = data or _read(raw, READ_BYTES)


def _salvage(inflater: "zlib._Decompress", data: bytes) -> bytes:
    """What `data` gives before the byte that zlib refuses."""
    pieces = []
    try:
        for index in range(len(data)):
            pieces.append(inflater.decompress(data[index : index + 1], PIECE_BYTES))
    except zlib.error:
        pass
    return b"".join(pieces)


def _zstd(data: bytes, raw: BinaryIO) -> Iterator[bytes]:
    while data:
        if len(data) < 4:
            data += _read(raw, ZSTD_READ_BYTES)
        if not data.startswith((ZSTD_MAGIC, *ZSTD_SKIPPABLE)):
            raise Damaged(Reason.CORRUPT_FILE, "bytes after the end of the zstd stream")
        inflater = zstandard.ZstdDecompressor().decompressobj()
        while not inflater.eof:
            if not data:
                data = _read(raw, ZSTD_READ_BYTES)
                if not data:
                    raise Damaged(Reason.TRUNCATED_FILE, "the zstd stream ends early")
            head, data = data[:ZSTD_READ_BYTES], data[ZSTD_READ_BYTES:]
            try:
                piece = inflater.decompress(head)
            except zstandard.ZstdError as error:
                raise Damaged(Reason.CORRUPT_FILE, str(error)) from error
            if inflater.eof:
                data = inflater.unused_data + data
            if piece:
                yield piece
        data = data or _read(raw, ZSTD_READ_BYTES)
