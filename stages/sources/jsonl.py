"""JSON Lines to batches: inflate in pieces, cut at newlines, scan a block at a time."""

import threading
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa

from stages.sources import json_scan
from stages.sources.decompress import Damaged, inflate
from stages.sources.json_line import Row, read_line
from stages.sources.rows import BadRow, Batch, Reason, empty_batch, excerpt, record_batch
from stages.sources.spec import JsonlRead
from stages.sources.text import BOM, is_utf8


class OversizedLine(NamedTuple):
    """A line above the cap, of which only the beginning was kept."""

    head: bytes


def read_rows(
    read: JsonlRead, raw: BinaryIO, name: str, file: int, batch_bytes: int, max_document_bytes: int
) -> Iterator[Batch]:
    """One open file as batches of about `batch_bytes` of JSON. `file` is the index in the listing.

    Blank lines are no rows. A line above `max_document_bytes` is never held as a whole. Damage in the
    compressed stream ends the file with one bad row, numbered after the last whole line; the torn line is
    not read.
    """
    row = 0
    try:
        for block in line_blocks(inflate(raw, name), batch_bytes, max_document_bytes):
            if isinstance(block, OversizedLine):
                yield Batch(empty_batch(), [BadRow(file, row, Reason.OVERSIZED, excerpt(block.head))])
                row += 1
            else:
                rows, batch = parse_block(read, block, file, row, max_document_bytes)
                row += rows
                yield batch
    except Damaged as damage:
        yield Batch(empty_batch(), [BadRow(file, row, damage.reason, excerpt(str(damage)))])


def line_blocks(pieces: Iterator[bytes], block_bytes: int, max_line_bytes: int) -> Iterator[bytes | OversizedLine]:
    """Regroup pieces of a file into blocks of whole lines, each ending with a newline; a BOM at the start
    is dropped.

    Holds at most about `block_bytes + max_line_bytes`. When `pieces` raises, the whole lines so far are
    yielded first.
    """
    held = bytearray()
    whole = 0  # held[:whole] are complete lines
    skipping = False
    damage: Damaged | None = None
    pieces = _without_bom(pieces)
    while True:
        try:
            piece = next(pieces, b"")
        except Damaged as error:
            damage, piece = error, b""
        if not piece:
            break
        if skipping:
            newline = piece.find(b"\n")
            if newline < 0:
                continue
            piece = piece[newline + 1 :]
            skipping = False
        newline = piece.rfind(b"\n")
        if newline >= 0:
            first = piece.find(b"\n")
            if len(held) - whole + first > max_line_bytes:  # the held line is too long now that its end is known
                if whole:
                    yield _copy(held, whole)
                yield OversizedLine(bytes(held[whole : whole + 1024]) or piece[:1024])
                held.clear()
                piece = piece[first + 1 :]
                whole = newline - first
            else:
                whole = len(held) + newline + 1
        held += piece
        if len(held) - whole > max_line_bytes:
            if whole:
                yield _copy(held, whole)
            yield OversizedLine(bytes(held[whole : whole + 1024]))
            held.clear()
            whole = 0
            skipping = True
        elif whole >= block_bytes:
            yield _copy(held, whole)
            del held[:whole]
            whole = 0
    if damage is not None:
        del held[whole:]
    if held:
        if held[-1:] != b"\n":
            held += b"\n"
        yield bytes(held)
    if damage is not None:
        raise damage


def _copy(held: bytearray, stop: int) -> bytes:
    with memoryview(held) as view:
        return bytes(view[:stop])


def _without_bom(pieces: Iterator[bytes]) -> Iterator[bytes]:
    head = b""
    for piece in pieces:
        head += piece
        if len(head) >= len(BOM) or not BOM.startswith(head):
            head = head.removeprefix(BOM)
            if head:
                yield head
            yield from (later for later in pieces if later)
            return
    if head:
        yield head


def parse_block(read: JsonlRead, block: bytes, file: int, first_row: int, max_document_bytes: int) -> tuple[int, Batch]:
    """(rows in the block, batch) of whole lines ending with a newline; the first row has number
    `first_row`.
    """
    data = np.frombuffer(block, np.uint8)
    flags = _scratch(-(-len(block) // 8) * 8)
    lines = json_scan.count_newlines(data)
    text, ids = np.empty(len(block), np.uint8), np.empty(len(block) if read.id else 0, np.uint8)
    text_offsets, id_offsets = np.empty(lines + 1, np.int64), np.empty(lines + 1, np.int32)
    id_null, status = np.empty(lines, bool), np.empty(lines, np.uint8)
    starts = np.empty(lines + 1, np.int64)
    if is_utf8(block):
        keys = (_key(read.text), _key(read.id or ""))
        clean = json_scan.scan_lines(
            data, *keys, max_document_bytes, text, text_offsets, ids, id_offsets, id_null, starts, status, flags
        )
        line_rows = first_row - 1 + np.cumsum(status != json_scan.BLANK)
        good = record_batch(
            file,
            line_rows[status == json_scan.CLEAN],
            _strings(pa.string(), ids[: id_offsets[clean]].copy(), id_offsets[: clean + 1], id_null[:clean]),
            _strings(pa.large_string(), text, text_offsets[: clean + 1], None),
        )
    else:
        return _parse_torn_block(read, block, file, first_row, max_document_bytes)
    unclear = np.flatnonzero(status == json_scan.UNCLEAR)
    rows = int(np.count_nonzero(status != json_scan.BLANK))
    if not len(unclear):
        return rows, Batch(good, [])
    settled = [(int(line_rows[line]), block[starts[line] : starts[line + 1] - 1]) for line in unclear]
    late, bad = _settle(read, settled, file, max_document_bytes)
    return rows, Batch(_merge(good, late), bad)


def _parse_torn_block(
    read: JsonlRead, block: bytes, file: int, first_row: int, max_document_bytes: int
) -> tuple[int, Batch]:
    """A block with invalid UTF-8: the lines that have it are set aside, the others scanned together."""
    kept: list[bytes] = []
    torn: list[BadRow] = []
    torn_rows = 0
    for line in block.split(b"\n")[:-1]:
        if not line.strip(b" \t\r"):
            continue
        row = len(kept) + torn_rows
        if is_utf8(line):
            kept.append(line)
        else:
            torn_rows += 1
            reason = Reason.OVERSIZED if len(line) > max_document_bytes else Reason.INVALID_UTF8
            torn.append(BadRow(file, first_row + row, reason, excerpt(line)))
    if not kept:
        return torn_rows, Batch(empty_batch(), torn)
    places = np.array([b.row for b in torn], np.int64)
    numbers = np.setdiff1d(first_row + np.arange(len(kept) + torn_rows), places, assume_unique=True)
    _, batch = parse_block(read, b"\n".join([*kept, b""]), file, 0, max_document_bytes)
    rows = batch.rows.set_column(1, batch.rows.schema.field("row"), pa.array(numbers[batch.rows.column("row")]))
    bad = [b._replace(row=int(numbers[b.row])) for b in batch.bad]
    return len(numbers) + torn_rows, Batch(rows, sorted(torn + bad, key=lambda b: b.row))


def _settle(
    read: JsonlRead, lines: list[tuple[int, bytes]], file: int, max_document_bytes: int
) -> tuple[pa.RecordBatch, list[BadRow]]:
    numbers: list[int] = []
    good: list[Row] = []
    bad: list[BadRow] = []
    for row, raw in lines:
        outcome = read_line(raw, read.text, read.id, max_document_bytes)
        if isinstance(outcome, Row):
            numbers.append(row)
            good.append(outcome)
        else:
            bad.append(BadRow(file, row, outcome, excerpt(raw)))
    source_ids = pa.array([row.source_id for row in good], pa.string())
    texts = pa.array([row.text for row in good], pa.large_string())
    return record_batch(file, np.array(numbers, np.int64), source_ids, texts), bad


def _merge(first: pa.RecordBatch, second: pa.RecordBatch) -> pa.RecordBatch:
    if not second.num_rows:
        return first
    both = pa.concat_batches([first, second])
    return both.take(pa.array(np.argsort(both.column("row").to_numpy())))


_held = threading.local()


def _scratch(size: int) -> np.ndarray:
    """uint8[size] of memory that is reused: fresh pages for every block cost as much as the flagging
    itself.
    """
    buffer: np.ndarray | None = getattr(_held, "buffer", None)
    if buffer is None or len(buffer) < size:
        buffer = _held.buffer = np.empty(size, np.uint8)
    return buffer[:size]


def _key(key: str) -> np.ndarray:
    return np.frombuffer(key.encode(), np.uint8)


def _strings(kind: pa.DataType, data: np.ndarray, offsets: np.ndarray, null: np.ndarray | None) -> pa.Array:
    validity = None
    if null is not None and null.any():
        validity = pa.array(~null).buffers()[1]
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data[: int(offsets[-1])])]
    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers)
