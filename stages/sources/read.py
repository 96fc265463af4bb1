"""From a unit to batches, whatever the format."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import BinaryIO

from stages.sources import hf, jsonl, parquet
from stages.sources.archive import Archive
from stages.sources.files import FileBatcher
from stages.sources.listing import SourceFile
from stages.sources.rows import DEFAULT_BATCH_BYTES, DEFAULT_MAX_DOCUMENT_BYTES, Batch
from stages.sources.spec import FilesRead, HfRead, JsonlRead, ParquetRead
from stages.sources.storage import open_binary
from stages.sources.units import Unit


def read_unit(
    read: JsonlRead | ParquetRead | FilesRead | HfRead,
    unit: Unit,
    batch_bytes: int = DEFAULT_BATCH_BYTES,
    max_document_bytes: int = DEFAULT_MAX_DOCUMENT_BYTES,
) -> Iterator[Batch]:
    """The rows of a unit, in listing order and row order, good and bad: every row is in exactly one of the
    two.

    Batches hold about `batch_bytes` of raw data; where they are cut carries no meaning. A row above
    `max_document_bytes` (a raw JSON line, a file, or the text of a column) is bad. UserError names source
    and file when nothing of a file can be read: gone, not Parquet, no such column, a broken archive.
    """
    batcher = FileBatcher(batch_bytes, max_document_bytes)
    with _Opener() as opener:
        for part in unit.parts:
            where = f"source {unit.source}: {part.file.url if part.file.member is None else part.file.name}"
            if isinstance(read, HfRead):
                start, stop = part.start or 0, part.stop if part.stop is not None else part.file.rows or 0
                url = part.file.url
                batches = hf.read_rows(read, url, part.index, start, stop, batch_bytes, max_document_bytes)
                yield from _non_empty(batches)
                continue
            with opener.open(part.file) as opened:
                if isinstance(read, JsonlRead):
                    batches = jsonl.read_rows(read, opened, where, part.index, batch_bytes, max_document_bytes)
                elif isinstance(read, ParquetRead):
                    batches = parquet.read_rows(
                        read,
                        opened,
                        where,
                        part.index,
                        part.start,
                        part.stop,
                        batch_bytes,
                        max_document_bytes,
                    )
                else:
                    batches = batcher.add(part.index, part.file.name, opened)
                yield from _non_empty(batches)
        yield from batcher.flush()


def _non_empty(batches: Iterator[Batch]) -> Iterator[Batch]:
    return (batch for batch in batches if batch.rows.num_rows or batch.bad)


class _Opener(ExitStack):
    """Opens files and members, and keeps the last archive open for the members that follow."""

    def __init__(self) -> None:
        super().__init__()
        self._archive: Archive | None = None

    def open(self, file: SourceFile) -> BinaryIO:
        if file.member is None:
            return open_binary(file.url)
        if self._archive is None or self._archive.url != file.url:
            self.close()
            self._archive = self.enter_context(Archive(file.url))
        return self._archive.open(file.member)
