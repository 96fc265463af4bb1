"""Typed columns (Parquet, Arrow) to batches: which column, which types, which rows are good."""

import difflib

import numpy as np
import pyarrow as pa

from stages.errors import UserError
from stages.sources.rows import BadRow, Batch, Reason, excerpt, record_batch
from stages.sources.text import invalid_utf8


def pick_columns(schema: pa.Schema, text: str, row_id: str | None, where: str) -> tuple[str, str | None]:
    """Check that the two columns exist and have a type that can be read; UserError names `where` otherwise.

    Text may be string, large_string, string_view or a dictionary of those; ids also any integer.
    """
    for key, name in (("text", text), ("id", row_id)):
        if name is None:
            continue
        index = schema.get_field_index(name)
        if index < 0:
            close = difflib.get_close_matches(name, schema.names, 1, 0.5)
            nearest = f"; the nearest name is {close[0]}" if close else ""
            raise UserError(
                f"{where}: no {'single ' if name in schema.names else ''}column {name!r}, which `{key}` asks for. "
                f"Columns: {', '.join(schema.names)}{nearest}. Set `{key}`"
            )
        kind = schema.field(index).type
        if not (_is_text(kind) or (key == "id" and pa.types.is_integer(kind))):
            raise UserError(f"{where}: column {name!r} has type {kind}, but `{key}` needs strings. Set `{key}`")
    return text, row_id


def column_batches(
    text: pa.Array, source_id: pa.Array | None, file: int, first_row: int, max_document_bytes: int
) -> Batch:
    """One batch from two columns whose row 0 is row `first_row` of the file."""
    text = text.cast(pa.large_string(), safe=False)
    ids = pa.nulls(len(text), pa.string()) if source_id is None else source_id.cast(pa.string(), safe=False)
    null = text.is_null().to_numpy(zero_copy_only=False)
    lengths = np.zeros(len(text), np.int64)
    offsets = np.frombuffer(text.buffers()[1], np.int64, len(text) + 1, text.offset * 8)
    np.subtract(offsets[1:], offsets[:-1], out=lengths)
    oversized = lengths > max_document_bytes
    invalid = invalid_utf8(text) | invalid_utf8(ids)
    bad_mask = null | (lengths == 0) | oversized | invalid
    if not bad_mask.any():
        return Batch(record_batch(file, first_row + np.arange(len(text)), ids, text), [])
    bad = []
    for index in np.flatnonzero(bad_mask):
        if null[index]:
            reason = Reason.NULL_TEXT
        elif oversized[index]:
            reason = Reason.OVERSIZED
        elif invalid[index]:
            reason = Reason.INVALID_UTF8
        else:
            reason = Reason.EMPTY_TEXT
        shown = b"" if null[index] else memoryview(text[int(index)].as_buffer())[:800].tobytes()
        bad.append(BadRow(file, first_row + int(index), reason, excerpt(shown)))
    good = np.flatnonzero(~bad_mask)
    take = pa.array(good)
    return Batch(record_batch(file, first_row + good, ids.take(take), text.take(take)), bad)


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))
