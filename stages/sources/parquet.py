"""Parquet files to batches, a bounded part of a row group at a time."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stages.errors import UserError
from stages.sources.columns import column_batches, pick_columns
from stages.sources.rows import Batch
from stages.sources.spec import ParquetRead


def row_group_bytes(opened: Any, where: str) -> list[int]:
    """Stored (compressed) bytes of every row group. UserError when the footer cannot be read."""
    metadata = _open(opened, where).metadata
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    return [sum(g.column(c).total_compressed_size for c in range(g.num_columns)) for g in groups]


def read_rows(
    read: ParquetRead,
    opened: Any,
    where: str,
    file: int,
    start: int | None,
    stop: int | None,
    batch_bytes: int,
    max_document_bytes: int,
) -> Iterator[Batch]:
    """Row groups `start` to `stop` (None: all) of one open file. Row numbers count from the file's first row.

    UserError: not a Parquet file, truncated or damaged, or a column that is missing or has the wrong type.
    """
    parquet = _open(opened, where)
    text, row_id = pick_columns(parquet.schema_arrow, read.text, read.id, where)
    columns = [text] if row_id is None else [text, row_id]
    metadata = parquet.metadata
    groups = range(metadata.num_row_groups)[slice(start, stop)]
    row = sum(metadata.row_group(i).num_rows for i in range(groups.start))
    for group in groups:
        info = metadata.row_group(group)
        rows = max(info.num_rows, 1)
        text_bytes = sum(
            info.column(c).total_uncompressed_size
            for c in range(info.num_columns)
            if info.column(c).path_in_schema in columns
        )
        step = min(max(1, rows * batch_bytes // max(text_bytes, 1)), rows)
        try:
            for batch in parquet.iter_batches(step, row_groups=[group], columns=columns, use_threads=False):
                ids = batch.column(row_id) if row_id is not None else None
                yield column_batches(batch.column(text), ids, file, row, max_document_bytes)
                row += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"{where}: row group {group} is damaged ({error}). Fetch the file again") from error


def _open(opened: Any, where: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(opened, pre_buffer=False, buffer_size=1 << 20)
    except (pa.ArrowException, OSError) as error:
        raise UserError(
            f"{where}: not a whole Parquet file ({error}). Fetch it again, or set another `format`"
        ) from error
