"""One document a file."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from stages.sources.archive import BROKEN
from stages.sources.rows import BadRow, Batch, Reason, excerpt, record_batch
from stages.sources.text import BOM, is_utf8


class FileBatcher:
    """Gathers whole files into batches of about `batch_bytes`; each file is row 0 of itself."""

    def __init__(self, batch_bytes: int, max_document_bytes: int) -> None:
        self.batch_bytes = batch_bytes
        self.max_document_bytes = max_document_bytes
        self._clear()

    def _clear(self) -> None:
        self._files: list[int] = []
        self._names: list[str] = []
        self._texts: list[bytes] = []
        self._bad: list[BadRow] = []
        self._bytes = 0

    def add(self, file: int, name: str, opened: Any) -> Iterator[Batch]:
        """Read one open file; yields the batch when it is full. At most `max_document_bytes` + 1 bytes are
        held.
        """
        try:
            data = opened.read(self.max_document_bytes + 1)
            while len(data) <= self.max_document_bytes and (
                more := opened.read(self.max_document_bytes + 1 - len(data))
            ):
                data += more
        except BROKEN as error:
            self._bad.append(BadRow(file, 0, Reason.CORRUPT_FILE, excerpt(str(error))))
            return
        reason = self._reason(data)
        if reason is None:
            self._files.append(file)
            self._names.append(name)
            self._texts.append(data.removeprefix(BOM))
            self._bytes += len(data)
        else:
            self._bad.append(BadRow(file, 0, reason, excerpt(data)))
        if self._bytes >= self.batch_bytes:
            yield from self.flush()

    def flush(self) -> Iterator[Batch]:
        """What is left."""
        if self._files or self._bad:
            texts = pa.array(self._texts, pa.large_binary()).view(pa.large_string())
            rows = np.zeros(len(self._files), np.int64)
            names = pa.array(self._names, pa.string())
            yield Batch(record_batch(np.array(self._files, np.int32), rows, names, texts), self._bad)
        self._clear()

    def _reason(self, data: bytes) -> Reason | None:
        if len(data) > self.max_document_bytes:
            return Reason.OVERSIZED
        if not data.removeprefix(BOM):
            return Reason.EMPTY_TEXT
        return None if is_utf8(data) else Reason.INVALID_UTF8
