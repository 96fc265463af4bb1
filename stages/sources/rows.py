"""What reading yields: batches of good rows, and a record for each bad one."""

from enum import StrEnum
from typing import NamedTuple

import numpy as np
import pyarrow as pa

EXCERPT_CHARS = 200
DEFAULT_BATCH_BYTES = 8 << 20
DEFAULT_MAX_DOCUMENT_BYTES = 64 << 20

SCHEMA = pa.schema(
    [
        pa.field("file", pa.int32(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("source_id", pa.string()),
        pa.field("text", pa.large_string(), nullable=False),
    ]
)
"""`file` is the index in the listing; `row` counts every row of the file from 0, bad ones included."""


class Reason(StrEnum):
    """Why a row was not delivered. `truncated_file` and `corrupt_file` stand for everything from that row
    on.
    """

    INVALID_UTF8 = "invalid_utf8"
    INVALID_JSON = "invalid_json"
    NOT_AN_OBJECT = "not_an_object"
    MISSING_TEXT = "missing_text"
    NULL_TEXT = "null_text"
    EMPTY_TEXT = "empty_text"
    TEXT_NOT_STRING = "text_not_string"
    ID_NOT_STRING = "id_not_string"
    LONE_SURROGATE = "lone_surrogate"
    OVERSIZED = "oversized"
    TRUNCATED_FILE = "truncated_file"
    CORRUPT_FILE = "corrupt_file"


class BadRow(NamedTuple):
    """A row that was not delivered. `file`: index in the listing; `row`: number in the file; `excerpt`: <=
    200 chars.
    """

    file: int
    row: int
    reason: Reason
    excerpt: str


class Batch(NamedTuple):
    """Good rows (`SCHEMA`, in row order) and the bad rows met on the way, also in row order."""

    rows: pa.RecordBatch
    bad: list[BadRow]


def excerpt(raw: bytes | str) -> str:
    """The first 200 characters; undecodable bytes show as U+FFFD."""
    if isinstance(raw, bytes):
        raw = raw[: 4 * EXCERPT_CHARS].decode("utf-8", "replace")
    return raw[:EXCERPT_CHARS].encode("utf-8", "replace").decode()


def record_batch(file: int | np.ndarray, row: np.ndarray, source_id: pa.Array, text: pa.Array) -> pa.RecordBatch:
    """Columns to a `SCHEMA` batch. `file` is one index or int32[n]; `row` int64[n]; both arrays have n
    values.
    """
    files = np.broadcast_to(np.asarray(file, np.int32), row.shape)
    return pa.RecordBatch.from_arrays([pa.array(files), pa.array(row, pa.int64()), source_id, text], schema=SCHEMA)


def empty_batch() -> pa.RecordBatch:
    """A `SCHEMA` batch of no rows."""
    return record_batch(0, np.zeros(0, np.int64), pa.array([], pa.string()), pa.array([], pa.large_string()))
