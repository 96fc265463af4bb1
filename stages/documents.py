"""Document shards: the one place where the text of a source is kept, and how later stages walk over it.

A row group is the unit of work: about `BATCH_BYTES` of text. Attribute shards have the same names, the same rows and
the same row groups, so a join is a zip, and it is checked.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stages.artifact import Artifact, Shard
from stages.errors import UserError

BATCH_BYTES = 8 << 20
SCHEMA = pa.schema(
    [
        pa.field("id", pa.binary(16), nullable=False),
        pa.field("text", pa.large_string(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("source_id", pa.string()),
        pa.field("file", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
    ]
)


def document_shards(ingest: Artifact) -> list[Shard]:
    """The shards of an ingest artifact that hold documents, in order; its other shards hold quarantined rows."""
    return [s for s in ingest.shards if s.name.startswith("documents/")]


def shard_name(shard: Shard) -> str:
    """The name that a document shard and all its attribute shards share: `UNIT-PART`."""
    return shard.name.rpartition("/")[2]


def read_groups(path: Path, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The row groups of a shard as record batches, one after the other.

    Raises UserError naming the file when it is not a whole Parquet file.
    """
    try:
        with pq.ParquetFile(path, memory_map=False, pre_buffer=False) as file:
            schema = file.schema_arrow
            schema = pa.schema([schema.field(c) for c in columns]) if columns is not None else schema
            for i in range(file.num_row_groups):
                yield one_batch(file.read_row_group(i, columns=columns, use_threads=False), schema)
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path}: cannot be read: {error}; remove {path.parent} and build again") from None


def read_columns(path: Path, columns: list[str] | None = None, rows: int | None = None) -> pa.Table:
    """Whole columns of a shard at once; only for columns that are small beside the text.

    Raises UserError naming the file when it is not a whole Parquet file, or has not `rows` rows where that is given.
    """
    try:
        table = pq.read_table(path, columns=columns, use_threads=False, memory_map=False)
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path}: cannot be read: {error}; remove {path.parent} and build again") from None
    if rows is not None and table.num_rows != rows:
        raise UserError(
            f"{path}: has {table.num_rows} rows where its documents have {rows}; remove {path.parent} and build again"
        )
    return table


def one_batch(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    """A table as a single record batch, also when it has no rows."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=schema)


def ids_to_words(ids: pa.Array | pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """16-byte ids (big-endian) as two uint64 arrays, high and low, of the machine's byte order."""
    if isinstance(ids, pa.ChunkedArray):
        ids = ids.combine_chunks() if ids.num_chunks != 1 else ids.chunk(0)
    data = ids.buffers()[1]
    if data is None or not len(ids):
        return np.zeros(0, np.uint64), np.zeros(0, np.uint64)
    words = np.frombuffer(data, ">u8")[2 * ids.offset : 2 * (ids.offset + len(ids))].reshape(-1, 2)
    return words[:, 0].astype(np.uint64), words[:, 1].astype(np.uint64)


def words_to_ids(hi: np.ndarray, lo: np.ndarray) -> pa.Array:
    """The inverse of `ids_to_words`."""
    words = np.empty((len(hi), 2), ">u8")
    words[:, 0], words[:, 1] = hi, lo
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(hi), [None, pa.py_buffer(words.tobytes())])
