"""The `exact_duplicates` stage: of the documents with one id, over all sources, one is kept.

The survivor is the first by source priority (higher first), then source name, then position in the source, among those
that their source's own filters keep. A document is a duplicate when a survivor other than itself exists, also when a
filter drops it anyway, so that every cause is recorded.

Sort, reduce, scatter over files. *Sort* writes each document shard's ids in ascending order; *reduce* owns a range of
ids, takes that slice of every sorted shard and writes (shard, row, survivor) of the duplicates; *scatter* gives them
back to the shards as columns. The number of ranges follows the number of documents and changes nothing in the result.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from stages.artifact import File, ParquetShard, Shard, commit, new_file
from stages.documents import ids_to_words, read_columns
from stages.funnel import count_causes
from stages.kernels.sort import argsort_ids
from stages.recipe import Recipe
from stages.task import Task

VERSION = 1
CAUSE = "exact_duplicates"
DOCUMENTS_PER_RANGE = 8_000_000
SCHEMA = pa.schema(
    [
        pa.field("is_exact_duplicate", pa.bool_(), nullable=False),
        pa.field("kept_source", pa.string()),
        pa.field("kept_position", pa.int64()),
    ]
)
SORTED = np.dtype([("hi", "<u8"), ("lo", "<u8"), ("row", "<u4"), ("kept", "u1")])
FOUND = np.dtype([("shard", "<u4"), ("row", "<u4"), ("kept_shard", "<u4"), ("kept_row", "<u4")])


@dataclass(frozen=True)
class SourceShard:
    """A document shard among all sources. `rank` is its place in the order of survival, `position` the place of its
    first row in the source."""

    rank: int
    source: str
    name: str
    documents: Path
    filters: Path
    rows: int
    position: int


def recipe(corpus: str, sources: Mapping[str, tuple[int, str, str]]) -> Recipe:
    """The stage's recipe; `sources` maps a name to (priority, ingest digest, filters digest)."""
    inputs = {name: {"documents": d, "filters": f} for name, (_, d, f) in sources.items()}
    return Recipe("exact_duplicates", VERSION, corpus, {"priority": {n: p for n, (p, _, _) in sources.items()}}, inputs)


def ranges(documents: int) -> int:
    """Into how many id ranges the reduce step is cut."""
    return max(1, -(-documents // DOCUMENTS_PER_RANGE))


@dataclass(frozen=True)
class SortIds:
    """Work: a shard's ids in ascending order, with row and whether its own filters keep it, as `.sorted/RANK.bin`."""

    folder: Path

    def __call__(self, task: Task) -> None:
        shard: SourceShard = task.payload
        hi, lo = ids_to_words(read_columns(shard.documents, ["id"], shard.rows).column("id"))
        kept = read_columns(shard.filters, ["kept"], shard.rows).column("kept").to_numpy()
        order = argsort_ids(hi, lo)
        out = np.empty(len(order), SORTED)
        out["hi"], out["lo"], out["row"], out["kept"] = hi[order], lo[order], order, kept[order]
        commit(self.folder, task.name, [_raw_shard(self.folder, task.name, out)])


@dataclass(frozen=True)
class FindDuplicates:
    """Work: the duplicates of one id range, sorted by shard and row, as `.found/RANGE.bin`."""

    folder: Path
    shards: Sequence[SourceShard]
    ranges: int

    def __call__(self, task: Task) -> None:
        number: int = task.payload
        slices, ranks = [], []
        for shard in self.shards:
            ids = read_raw(self.folder / f"{sorted_task(shard)}.bin", SORTED)
            start, stop = (_bound(ids["hi"], number, self.ranges), _bound(ids["hi"], number + 1, self.ranges))
            slices.append(np.array(ids[start:stop]))
            ranks.append(np.full(stop - start, shard.rank, np.uint32))
        rows, rank = np.concatenate(slices), np.concatenate(ranks)
        found = find_duplicates(rows["hi"], rows["lo"], rows["kept"].astype(bool), rank, rows["row"])
        commit(self.folder, task.name, [_raw_shard(self.folder, task.name, found)])


def find_duplicates(hi: np.ndarray, lo: np.ndarray, kept: np.ndarray, rank: np.ndarray, row: np.ndarray) -> np.ndarray:
    """The duplicates among documents given in the order of survival, as `FOUND` rows sorted by shard and row.

    hi, lo: uint64 ids; kept: bool, whether the document's own filters keep it; rank, row: uint32 of its shard.
    """
    order = argsort_ids(hi, lo)
    fresh = np.ones(len(order), bool)
    fresh[1:] = (hi[order][1:] != hi[order][:-1]) | (lo[order][1:] != lo[order][:-1])
    group = np.cumsum(fresh) - 1
    groups = int(group[-1]) + 1 if len(group) else 0
    survivor = np.full(groups, -1, np.int64)
    candidates = np.flatnonzero(kept[order])[::-1]
    survivor[group[candidates]] = candidates
    mine = survivor[group] if groups else np.zeros(0, np.int64)
    lost = np.flatnonzero((mine >= 0) & (mine != np.arange(len(order))))
    out = np.empty(len(lost), FOUND)
    out["shard"], out["row"] = rank[order[lost]], row[order[lost]]
    out["kept_shard"], out["kept_row"] = rank[order[mine[lost]]], row[order[mine[lost]]]
    return out[np.lexsort((out["row"], out["shard"]))]


@dataclass(frozen=True)
class ScatterDuplicates:
    """Work: the columns of one document shard, in `SOURCE/NAME.parquet`."""

    folder: Path
    shards: Sequence[SourceShard]
    ranges: int

    def __call__(self, task: Task) -> None:
        shard: SourceShard = task.payload
        rows = np.concatenate([self._mine(number, shard.rank) for number in range(self.ranges)])
        duplicate = np.zeros(shard.rows, bool)
        duplicate[rows["row"]] = True
        source = np.full(shard.rows, None, object)
        position = np.zeros(shard.rows, np.int64)
        source[rows["row"]] = np.array([s.source for s in self.shards], object)[rows["kept_shard"]]
        begins = np.array([s.position for s in self.shards], np.int64)
        position[rows["row"]] = begins[rows["kept_shard"]] + rows["kept_row"]
        batch = pa.RecordBatch.from_arrays(
            [pa.array(duplicate), pa.array(source, pa.string()), pa.array(position, mask=~duplicate)],
            schema=SCHEMA,
        )
        kept = read_columns(shard.filters, ["kept"], shard.rows).column("kept").to_numpy()
        sizes = read_columns(shard.documents, ["bytes"], shard.rows).column("bytes").to_numpy()
        funnel, _ = count_causes({CAUSE: duplicate[kept]}, sizes[kept])
        with ParquetShard(self.folder, f"{task.name}.parquet", SCHEMA) as parquet:
            parquet.write(batch)
        counters = {"funnel": funnel.to_json()}
        commit(self.folder, task.name, [Shard(task.name, shard.rows, parquet.content, (parquet.file,), counters)])

    def _mine(self, number: int, rank: int) -> np.ndarray:
        found = read_raw(self.folder / f"{found_task(number)}.bin", FOUND)
        start, stop = np.searchsorted(found["shard"], [rank, rank + 1])
        return np.array(found[start:stop])


def steps(folder: Path, shards: Sequence[SourceShard]) -> Iterator[list[Task]]:
    """The tasks of the stage, step by step; the last ones write the shards that stay."""
    count = ranges(sum(s.rows for s in shards))
    sizes = [16 * s.rows for s in shards]
    sort, find, scatter = (
        SortIds(folder),
        FindDuplicates(folder, shards, count),
        ScatterDuplicates(folder, shards, count),
    )
    yield [Task(sorted_task(s), sort, s, size) for s, size in zip(shards, sizes, strict=True)]
    yield [Task(found_task(n), find, n, sum(sizes) // count) for n in range(count)]
    yield [Task(f"{s.source}/{s.name}", scatter, s, size) for s, size in zip(shards, sizes, strict=True)]


def sorted_task(shard: SourceShard) -> str:
    """The task, and the file without its suffix, that sorts a shard's ids."""
    return f".sorted/{shard.rank:06d}"


def found_task(number: int) -> str:
    """The task, and the file without its suffix, that finds a range's duplicates."""
    return f".found/{number:06d}"


def read_raw(path: Path, dtype: np.dtype) -> np.ndarray:
    """A raw file of records, mapped; an empty file cannot be mapped and is an empty array."""
    return np.memmap(path, dtype, mode="r") if path.stat().st_size else np.zeros(0, dtype)


def _raw_shard(folder: Path, name: str, rows: np.ndarray) -> Shard:
    made: list[File]
    with new_file(folder, f"{name}.bin") as (file, made):
        file.write(rows)
    return Shard(name, len(rows), made[0].sha256, (made[0],))


def _bound(hi: np.ndarray, number: int, count: int) -> int:
    """The first index whose id lies in range `number` or later, when 2^64 is cut into `count` equal ranges."""
    if number >= count:
        return len(hi)
    return int(np.searchsorted(hi, np.uint64(number * (1 << 64) // count)))
