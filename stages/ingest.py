"""The `ingest` stage: raw rows become document shards; rows that cannot be are quarantined with the reason.

Text is normalized by the rules of `stages.normalize`; the id of a document is the xxh3-128 of the normalized text.
A source is cut into units (contiguous runs of its sorted files, or of a file's row groups) of about `shard_bytes`;
a unit becomes one or more shards `documents/UNIT-PART` and one shard `quarantine/UNIT`, which also carries the
unit's counts.
"""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.artifact import ParquetShard, Shard, commit
from stages.documents import BATCH_BYTES, SCHEMA, words_to_ids
from stages.funnel import Count, Funnel
from stages.kernels.xxh3 import xxh3_128
from stages.normalize import NORMALIZE_VERSION, NormalizeConfig, normalize
from stages.recipe import Recipe
from stages.sources.listing import Listing
from stages.sources.read import read_unit
from stages.sources.rows import BadRow, Reason, excerpt
from stages.task import Task

VERSION = 1
QUARANTINE = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("excerpt", pa.string(), nullable=False),
    ]
)


def recipe(
    source: str,
    identity: str,
    normalizing: NormalizeConfig,
    max_document: int,
    shard_bytes: int,
    sample: Any = None,
) -> Recipe:
    """The stage's recipe for one source; `identity` is the digest of the source's files and of how they are read."""
    config = {
        "normalize": normalizing.model_dump(mode="json"),
        "normalize_version": NORMALIZE_VERSION,
        "max_document": max_document,
        "shard_bytes": shard_bytes,
        "sample": sample,
    }
    return Recipe("ingest", VERSION, source, config, {"source": identity})


@dataclass(frozen=True)
class Ingest:
    """Work: one unit of a source. `limit` stops a sample after so many bytes of text (None reads everything)."""

    listing: Listing
    normalizing: NormalizeConfig
    folder: Path
    max_document: int
    shard_bytes: int
    limit: int | None = None

    def __call__(self, task: Task) -> None:
        names = [f.name for f in self.listing.files]
        shards: list[Shard] = []
        bad: list[BadRow] = []
        totals = {"rows": 0, "documents": 0, "bytes": 0, "raw_bytes": 0}
        changes: dict[str, int] = {}
        with contextlib.ExitStack() as stack:
            writer = self._open(stack, task.name, 0)
            batch_bytes = BATCH_BYTES if self.limit is None else min(BATCH_BYTES, self.limit)
            for rows, batch_bad in read_unit(self.listing.read, task.payload, batch_bytes):
                bad += batch_bad
                totals["rows"] += rows.num_rows + len(batch_bad)
                batch, more_bad, changed, raw_bytes = self._documents(rows, names)
                bad += more_bad
                for key, value in changed.items():
                    changes[key] = changes.get(key, 0) + value
                totals["raw_bytes"] += raw_bytes
                if batch.num_rows:
                    if writer.size >= self.shard_bytes:
                        shards.append(writer.close())
                        writer = self._open(stack, task.name, len(shards))
                    size = int(pc.sum(batch.column("bytes")).as_py())
                    totals["documents"] += batch.num_rows
                    totals["bytes"] += size
                    writer.write(batch)
                    writer.size += size
                if self.limit is not None and totals["bytes"] >= self.limit:
                    break
            if not totals["documents"]:
                writer.write(pa.RecordBatch.from_pylist([], schema=SCHEMA))
            shards.append(writer.close())
        bad.sort(key=lambda b: (b.file, b.row))
        shards.append(self._quarantine(task.name, bad, names, totals, changes))
        commit(self.folder, task.name, shards)

    def _documents(
        self, rows: pa.RecordBatch, names: list[str]
    ) -> tuple[pa.RecordBatch, list[BadRow], dict[str, int], int]:
        """Good rows as documents; those that come out empty or too long as bad rows; counts; bytes of raw text."""
        raw = rows.column("text")
        raw_bytes = int(pc.sum(pc.binary_length(raw)).as_py() or 0)
        texts, changes = normalize(raw, self.normalizing)
        sizes = pc.binary_length(texts).to_numpy()
        wrong = (sizes == 0) | (sizes > self.max_document)
        bad = [
            BadRow(
                rows.column("file")[i].as_py(),
                rows.column("row")[i].as_py(),
                Reason.EMPTY_TEXT if sizes[i] == 0 else Reason.OVERSIZED,
                excerpt(
                    texts.slice(i, 1)
                    .cast(pa.large_binary())[0]
                    .as_buffer()
                    .slice(0, min(800, int(sizes[i])))
                    .to_pybytes()
                ),
            )
            for i in np.flatnonzero(wrong).tolist()
        ]
        if bad:
            good = pa.array(~wrong)
            rows, texts, sizes = rows.filter(good), texts.filter(good), sizes[~wrong]
        files = pa.DictionaryArray.from_arrays(rows.column("file"), pa.array(names, pa.string())).dictionary_decode()
        columns = [_ids(texts), texts, pa.array(sizes), rows.column("source_id"), files, rows.column("row")]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA), bad, changes, raw_bytes

    def _open(self, stack: contextlib.ExitStack, unit: str, part: int) -> "_DocumentWriter":
        return stack.enter_context(_DocumentWriter(self.folder, f"documents/{unit}-{part:03d}"))

    def _quarantine(
        self, unit: str, bad: list[BadRow], names: list[str], totals: dict[str, int], changes: dict[str, int]
    ) -> Shard:
        rows = [{"file": names[b.file], "row": b.row, "reason": str(b.reason), "excerpt": b.excerpt} for b in bad]
        name = f"quarantine/{unit}"
        with ParquetShard(self.folder, f"{name}.parquet", QUARANTINE) as parquet:
            parquet.write(pa.RecordBatch.from_pylist(rows, schema=QUARANTINE))
        reasons = {str(r): Count(sum(b.reason == r for b in bad)) for r in Reason}
        kept = Count(totals["documents"], totals["bytes"])
        funnel = Funnel(Count(totals["rows"], kept.bytes), kept, reasons, reasons)
        counts = {
            "raw_bytes": totals["raw_bytes"],
            **{f"normalized.{k}": v for k, v in sorted(changes.items())},
        }
        counters = {"funnel": funnel.to_json(), "counts": counts}
        return Shard(name, parquet.rows, parquet.content, (parquet.file,), counters)


class _DocumentWriter:
    """A document shard in the making."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name, self.size, self.open = name, 0, False
        options = {"use_dictionary": ["file"], "write_statistics": ["row"]}
        self._parquet = ParquetShard(folder, f"{name}.parquet", SCHEMA, **options)

    def __enter__(self) -> "_DocumentWriter":
        self._parquet.__enter__()
        self.open = True
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        self._parquet.write(batch)

    def close(self) -> Shard:
        self.__exit__(None, None, None)
        return Shard(self.name, self._parquet.rows, self._parquet.content, (self._parquet.file,), {"bytes": self.size})

    def __exit__(self, *failure: Any) -> None:
        if self.open:
            self.open = False
            self._parquet.__exit__(*failure)


def _ids(texts: pa.LargeStringArray) -> pa.Array:
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    content = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    hi, lo = xxh3_128(content, ends)
    return words_to_ids(hi, lo)
