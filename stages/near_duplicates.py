"""The `near_duplicates` stage: of documents that are almost the same, over all sources, one is kept, on evidence.

A shared band proposes, a measured similarity decides (Jaccard or containment, exact, of the shingle sets), and only
against a document that is kept: no document goes because of a chain. Survival has a total order: source priority, then
length (the longer), then id. The decision is made in that order, so when a document's turn comes, everything it can
lose against has been decided. Each removal stores the kept document and the similarity.

Judged are the documents that their own filters and exact deduplication keep and that have enough shingles.

*Band* writes the band keys of a shard in order; *pair* owns a range of keys and proposes pairs within each bucket, each
document with the first few and the few before it, so that a bucket of any size costs in proportion to its size;
*gather* writes the shingle sets of the documents in some pair; *measure* computes the similarities of a shard's pairs;
*decide* removes; *scatter* gives the columns back to the shards.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from stages.artifact import File, ParquetShard, Shard, commit, new_file
from stages.documents import ids_to_words, read_columns, read_groups
from stages.exact_duplicates import SourceShard, read_raw
from stages.funnel import count_causes
from stages.kernels.shingles import shingle_sets
from stages.kernels.similarity import overlaps
from stages.normalize import text_buffers
from stages.recipe import Recipe
from stages.signatures import BANDS, NearDuplicates
from stages.similarity import reaches, resemblance
from stages.task import Task

VERSION = 1
CAUSE = "near_duplicates"
KEYS_PER_RANGE = 64_000_000
LEADERS, BEFORE = 4, 4
"""Each document of a bucket is paired with its first few and with the few before it, in the order of survival."""
CROWD = 1000
"""A bucket of more documents is counted as crowded."""
SCHEMA = pa.schema(
    [
        pa.field("judged", pa.bool_(), nullable=False),
        pa.field("is_near_duplicate", pa.bool_(), nullable=False),
        pa.field("kept_source", pa.string()),
        pa.field("kept_position", pa.int64()),
        pa.field("kept_id", pa.binary(16)),
        pa.field("similarity", pa.float64()),
    ]
)
DOC = [("order", "<u8"), ("hi", "<u8"), ("shard", "<u4"), ("row", "<u4")]
BANDED = np.dtype([("key", "<u8"), *DOC])
PAIR = np.dtype([(f"{side}_{name}", kind) for side in ("kept", "lost") for name, kind in DOC])
MEASURED = np.dtype([*PAIR.descr, ("similarity", "<f8")])
DECIDED = np.dtype(
    [("shard", "<u4"), ("row", "<u4"), ("kept_shard", "<u4"), ("kept_row", "<u4"), ("similarity", "<f8")]
)
INVOLVED = np.dtype([("row", "<u4"), ("start", "<u8")])


@dataclass(frozen=True)
class NearShard:
    """A document shard among all sources, with the columns that decide whether a document is judged."""

    base: SourceShard
    priority: int
    duplicates: Path
    signatures: Path
    keys: Path
    policy: NearDuplicates


def recipe(corpus: str, exact: str, sources: Mapping[str, tuple[int, NearDuplicates, Mapping[str, str]]]) -> Recipe:
    """The stage's recipe; `sources` maps a name to (priority, policy, digests of its stages), `exact` is the digest of
    exact deduplication."""
    config = {
        name: {"priority": priority, **policy.model_dump(mode="json")}
        for name, (priority, policy, _) in sources.items()
    }
    inputs = {"exact_duplicates": exact, "sources": {name: dict(digests) for name, (_, _, digests) in sources.items()}}
    return Recipe("near_duplicates", VERSION, corpus, {"sources": config, "leaders": LEADERS, "before": BEFORE}, inputs)


def ranges(documents: int) -> int:
    """Into how many ranges of keys the pairing is cut."""
    return max(1, -(-documents * BANDS // KEYS_PER_RANGE))


@dataclass(frozen=True)
class Band:
    """Work: `.banded/RANK.bin`, a row for each judged document and band, in the order of the keys."""

    folder: Path

    def __call__(self, task: Task) -> None:
        shard: NearShard = task.payload
        base, rows = shard.base, shard.base.rows
        judged = judged_rows(shard)
        documents = read_columns(base.documents, ["id", "bytes"], rows)
        hi, _ = ids_to_words(documents.column("id"))
        keys = read_raw(shard.keys, np.dtype("<u8")).reshape(-1, BANDS)[judged]
        out = np.empty((len(judged), BANDS), BANDED)
        out["key"] = keys
        lengths = documents.column("bytes").to_numpy()[judged]
        out["order"] = survival(shard.priority, lengths)[:, None]
        out["hi"], out["row"] = hi[judged][:, None], judged.astype(np.uint32)[:, None]
        out["shard"] = base.rank
        flat = out.reshape(-1)
        flat = flat[np.argsort(flat["key"], kind="stable")]
        counters = {"judged": len(judged)}
        commit(self.folder, task.name, [_raw(self.folder, f"{task.name}", {".bin": flat}, counters)])


def judged_rows(shard: NearShard) -> np.ndarray:
    """The rows that are compared: kept so far, of a source that takes part, with enough shingles. int64."""
    base = shard.base
    kept = read_columns(base.filters, ["kept"], base.rows).column(0).to_numpy()
    duplicate = read_columns(shard.duplicates, ["is_exact_duplicate"], base.rows).column(0).to_numpy()
    shingles = read_columns(shard.signatures, ["shingles"], base.rows).column(0).to_numpy()
    wanted = shard.policy.shingle != "none"
    return np.flatnonzero(kept & ~duplicate & (shingles >= shard.policy.min_shingles) & wanted)


def survival(priority: int, lengths: np.ndarray) -> np.ndarray:
    """The first part of the order of survival as uint64, smaller first: priority (higher first), then length in bytes
    (longer first). The id follows."""
    high = np.uint64((1 << 15) - 1 - priority) << np.uint64(48)
    return high | (np.uint64((1 << 48) - 1) - lengths.astype(np.uint64))


@dataclass(frozen=True)
class Pair:
    """Work: the pairs that one range of keys proposes, `.pairs/RANGE.lost.bin` by the later document and
    `.pairs/RANGE.kept.bin` by the earlier one."""

    folder: Path
    shards: Sequence[NearShard]
    ranges: int

    def __call__(self, task: Task) -> None:
        number: int = task.payload
        slices = []
        for shard in self.shards:
            rows = read_raw(self.folder / f"{banded_task(shard)}.bin", BANDED)
            bounds = [_bound(rows["key"], n, self.ranges) for n in (number, number + 1)]
            slices.append(np.array(rows[bounds[0] : bounds[1]]))
        rows = np.concatenate(slices)
        rows = rows[np.lexsort((rows["row"], rows["shard"], rows["hi"], rows["order"], rows["key"]))]
        kept, lost, buckets = pair_buckets(rows["key"])
        pairs = np.empty(len(kept), PAIR)
        for name, _ in DOC:
            pairs[f"kept_{name}"], pairs[f"lost_{name}"] = rows[name][kept], rows[name][lost]
        pairs = _distinct(pairs, ("kept_row", "kept_shard", "lost_row", "lost_shard"))
        by_kept = pairs[np.lexsort((pairs["kept_row"], pairs["kept_shard"]))]
        counters = {
            "buckets": int((buckets > 1).sum()),
            "largest_bucket": int(buckets.max(initial=0)),
            "crowded_buckets": int((buckets > CROWD).sum()),
            "pairs": len(pairs),
        }
        files = {".lost.bin": pairs, ".kept.bin": by_kept[["kept_shard", "kept_row"]].astype(_PLACE)}
        commit(self.folder, task.name, [_raw(self.folder, task.name, files, counters)])


_PLACE = np.dtype([("shard", "<u4"), ("row", "<u4")])


def pair_buckets(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs (earlier, later) of rows within runs of equal keys, int64, and the length of every run.

    keys: uint64, sorted; within a run rows are in the order of survival.
    """
    starts = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]]) if len(keys) else np.zeros(0, np.int64)
    sizes = np.diff(np.r_[starts, len(keys)])
    within = np.arange(len(keys)) - np.repeat(starts, sizes)
    firsts = np.minimum(within, LEADERS)
    befores = np.minimum(np.maximum(within - LEADERS, 0), BEFORE)
    kept = np.empty(int((firsts + befores).sum()), np.int64)
    lost = np.repeat(np.arange(len(keys)), firsts + befores)
    _fill_pairs(np.repeat(starts, sizes), firsts, befores, kept)
    return kept, lost, sizes


@njit(cache=True, nogil=True)
def _fill_pairs(start: np.ndarray, firsts: np.ndarray, befores: np.ndarray, kept: np.ndarray) -> None:
    k = 0
    for i in range(len(start)):
        for j in range(firsts[i]):
            kept[k] = start[i] + j
            k += 1
        for j in range(befores[i]):
            kept[k] = i - 1 - j
            k += 1


@dataclass(frozen=True)
class Gather:
    """Work: the shingle sets of the documents of a shard that are in some pair, `.sets/RANK.hashes.bin` with
    `.sets/RANK.rows.bin`."""

    folder: Path
    ranges: int

    def __call__(self, task: Task) -> None:
        shard: NearShard = task.payload
        found = [self._rows(number, shard.base.rank) for number in range(self.ranges)]
        rows = np.unique(np.concatenate(found))
        index = np.empty(len(rows) + 1, INVOLVED)
        index["row"][:-1], index["row"][-1] = rows, np.iinfo(np.uint32).max
        total, done, begun = 0, 0, 0
        with new_file(self.folder, f"{task.name}.hashes.bin") as (file, hashes):
            for batch in read_groups(shard.base.documents, ["text"]) if len(rows) else ():
                stop = int(np.searchsorted(rows, begun + batch.num_rows))
                mine = rows[done:stop].astype(np.int64) - begun
                texts = batch.column(0).take(pa.array(mine))
                data, offsets = text_buffers(texts)
                values, starts = shingle_sets(data, offsets, shard.policy.shingle, shard.policy.size)
                index["start"][done:stop] = total + starts[:-1]
                file.write(values.astype("<u8"))
                total, done, begun = total + len(values), stop, begun + batch.num_rows
        index["start"][-1] = total
        with new_file(self.folder, f"{task.name}.rows.bin") as (file, indexed):
            file.write(index)
        commit(self.folder, task.name, [Shard(task.name, len(rows), hashes[0].sha256, (hashes[0], indexed[0]))])

    def _rows(self, number: int, rank: int) -> np.ndarray:
        lost = read_raw(self.folder / f"{pair_task(number)}.lost.bin", PAIR)
        kept = read_raw(self.folder / f"{pair_task(number)}.kept.bin", _PLACE)
        a, b = np.searchsorted(lost["lost_shard"], [rank, rank + 1])
        c, d = np.searchsorted(kept["shard"], [rank, rank + 1])
        return np.concatenate([lost["lost_row"][a:b], kept["row"][c:d]])


@dataclass(frozen=True)
class Measure:
    """Work: the pairs of a shard's documents whose similarity reaches the threshold, `.measured/RANK.bin`."""

    folder: Path
    shards: Sequence[NearShard]
    ranges: int

    def __call__(self, task: Task) -> None:
        shard: NearShard = task.payload
        pairs = np.concatenate([self._pairs(number, shard.base.rank) for number in range(self.ranges)])
        pairs = _distinct(pairs, ("kept_row", "kept_shard", "lost_row", "lost_shard"))
        same = np.array([s.policy.tag == shard.policy.tag for s in self.shards], bool)
        pairs = pairs[same[pairs["kept_shard"]]]
        own = self._sets(shard.base.rank)
        common, whole = np.zeros(len(pairs), np.int64), np.zeros(len(pairs), np.int64)
        for rank in np.unique(pairs["kept_shard"]).tolist():
            mine = np.flatnonzero(pairs["kept_shard"] == rank)
            other = self._sets(rank)
            a, b = other.places(pairs["kept_row"][mine]), own.places(pairs["lost_row"][mine])
            shared, size_a, size_b = overlaps(other.hashes, other.starts, a, own.hashes, own.starts, b)
            contained = shard.policy.measure == "containment"
            common[mine], whole[mine] = (shared, size_b) if contained else resemblance(shared, size_a, size_b)
        similar = reaches(common, whole, shard.policy.threshold)
        out = np.empty(int(similar.sum()), MEASURED)
        for name in PAIR.names or ():
            out[name] = pairs[name][similar]
        out["similarity"] = common[similar] / whole[similar]
        counters = {"measured": len(pairs), "similar": len(out)}
        commit(self.folder, task.name, [_raw(self.folder, task.name, {".bin": out}, counters)])

    def _pairs(self, number: int, rank: int) -> np.ndarray:
        lost = read_raw(self.folder / f"{pair_task(number)}.lost.bin", PAIR)
        start, stop = np.searchsorted(lost["lost_shard"], [rank, rank + 1])
        return np.array(lost[start:stop])

    def _sets(self, rank: int) -> "_Sets":
        name = f".sets/{rank:06d}"
        index = read_raw(self.folder / f"{name}.rows.bin", INVOLVED)
        hashes = read_raw(self.folder / f"{name}.hashes.bin", np.dtype("<u8"))
        return _Sets(np.array(index["row"][:-1]), index["start"].astype(np.int64), hashes)


@dataclass(frozen=True)
class _Sets:
    """The shingle sets of some rows of a shard. rows: uint32 (n), ascending; starts: int64 (n + 1) in `hashes`."""

    rows: np.ndarray
    starts: np.ndarray
    hashes: np.ndarray

    def places(self, rows: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.rows, rows).astype(np.int64)


@dataclass(frozen=True)
class Decide:
    """Work: what is removed, and on which evidence, `.decided/all.bin` by shard and row."""

    folder: Path
    shards: Sequence[NearShard]

    def __call__(self, task: Task) -> None:
        pairs = np.concatenate([read_raw(self.folder / f"{measured_task(s)}.bin", MEASURED) for s in self.shards])
        out = decide(pairs)
        commit(self.folder, task.name, [_raw(self.folder, task.name, {".bin": out}, {"removed": len(out)})])


def decide(pairs: np.ndarray) -> np.ndarray:
    """The removals among similar pairs (`MEASURED`), as `DECIDED` rows by shard and row.

    In the order of survival, a document is removed when some document of its pairs is kept; the evidence is the most
    similar of those, and of equally similar ones the first in the order.
    """
    order = ("kept_row", "kept_shard", "kept_hi", "kept_order", "lost_row", "lost_shard", "lost_hi", "lost_order")
    pairs = pairs[np.lexsort(tuple(pairs[name] for name in order))]
    place = {side: _place(pairs[f"{side}_shard"], pairs[f"{side}_row"]) for side in ("kept", "lost")}
    names = np.unique(np.concatenate([place["kept"], place["lost"]]))
    kept, lost = np.searchsorted(names, place["kept"]), np.searchsorted(names, place["lost"])
    evidence = np.full(len(names), -1, np.int64)
    _remove(kept, lost, np.ascontiguousarray(pairs["similarity"]), evidence)
    chosen = pairs[evidence[evidence >= 0]]
    out = np.empty(len(chosen), DECIDED)
    for name, field in (
        ("shard", "lost_shard"),
        ("row", "lost_row"),
        ("kept_shard", "kept_shard"),
        ("kept_row", "kept_row"),
    ):
        out[name] = chosen[field]
    out["similarity"] = chosen["similarity"]
    return out[np.lexsort((out["row"], out["shard"]))]


def _place(shard: np.ndarray, row: np.ndarray) -> np.ndarray:
    return (shard.astype(np.uint64) << np.uint64(32)) | row.astype(np.uint64)


@njit(cache=True, nogil=True)
def _remove(kept: np.ndarray, lost: np.ndarray, similarity: np.ndarray, evidence: np.ndarray) -> None:
    """Pairs come grouped by the later document, in the order of survival; `evidence` receives the pair that removes."""
    for i in range(len(kept)):
        if evidence[kept[i]] >= 0:
            continue
        best = evidence[lost[i]]
        if best < 0 or similarity[i] > similarity[best]:
            evidence[lost[i]] = i


@dataclass(frozen=True)
class Scatter:
    """Work: the columns of one document shard, in `SOURCE/NAME.parquet`."""

    folder: Path
    shards: Sequence[NearShard]

    def __call__(self, task: Task) -> None:
        shard: NearShard = task.payload
        base = shard.base
        decided = read_raw(self.folder / f"{DECIDE_TASK}.bin", DECIDED)
        start, stop = np.searchsorted(decided["shard"], [base.rank, base.rank + 1])
        rows = np.array(decided[start:stop])
        judged, removed = np.zeros(base.rows, bool), np.zeros(base.rows, bool)
        judged[judged_rows(shard)] = True
        removed[rows["row"]] = True
        columns: dict[str, Any] = {
            "source": np.full(base.rows, None, object),
            "position": np.zeros(base.rows, np.int64),
            "id": np.full(base.rows, None, object),
            "similarity": np.zeros(base.rows),
        }
        columns["source"][rows["row"]] = np.array([s.base.source for s in self.shards], object)[rows["kept_shard"]]
        begins = np.array([s.base.position for s in self.shards], np.int64)
        columns["position"][rows["row"]] = begins[rows["kept_shard"]] + rows["kept_row"]
        columns["similarity"][rows["row"]] = rows["similarity"]
        for rank in np.unique(rows["kept_shard"]).tolist():
            mine = rows[rows["kept_shard"] == rank]
            ids = read_columns(self.shards[rank].base.documents, ["id"]).column(0).take(pa.array(mine["kept_row"]))
            columns["id"][mine["row"]] = np.array(ids.to_pylist(), object)
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array(judged),
                pa.array(removed),
                pa.array(columns["source"], pa.string()),
                pa.array(columns["position"], mask=~removed),
                pa.array(columns["id"], pa.binary(16)),
                pa.array(columns["similarity"], mask=~removed),
            ],
            schema=SCHEMA,
        )
        kept = read_columns(base.filters, ["kept"], base.rows).column(0).to_numpy()
        kept &= ~read_columns(shard.duplicates, ["is_exact_duplicate"], base.rows).column(0).to_numpy()
        sizes = read_columns(base.documents, ["bytes"], base.rows).column("bytes").to_numpy()
        funnel, _ = count_causes({CAUSE: removed[kept]}, sizes[kept])
        with ParquetShard(self.folder, f"{task.name}.parquet", SCHEMA) as parquet:
            parquet.write(batch)
        counters = {"funnel": funnel.to_json(), "counts": {"judged": int(judged.sum())}}
        commit(self.folder, task.name, [Shard(task.name, base.rows, parquet.content, (parquet.file,), counters)])


DECIDE_TASK = ".decided/all"


def banded_task(shard: NearShard) -> str:
    """The task, and file, of a shard's band keys."""
    return f".banded/{shard.base.rank:06d}"


def pair_task(number: int) -> str:
    """The task, and files, of a range's pairs."""
    return f".pairs/{number:06d}"


def sets_task(shard: NearShard) -> str:
    """The task, and files, of a shard's shingle sets."""
    return f".sets/{shard.base.rank:06d}"


def measured_task(shard: NearShard) -> str:
    """The task, and file, of a shard's similar pairs."""
    return f".measured/{shard.base.rank:06d}"


def steps(folder: Path, shards: Sequence[NearShard]) -> Iterator[list[Task]]:
    """The tasks of the stage, step by step; the last ones write the shards that stay."""
    count = ranges(sum(s.base.rows for s in shards))
    size = [s.base.rows * BANDS * 8 for s in shards]
    band, pair, gather = Band(folder), Pair(folder, shards, count), Gather(folder, count)
    measure, scatter = Measure(folder, shards, count), Scatter(folder, shards)
    yield [Task(banded_task(s), band, s, n) for s, n in zip(shards, size, strict=True)]
    yield [Task(pair_task(n), pair, n, sum(size) // count) for n in range(count)]
    yield [Task(sets_task(s), gather, s, n) for s, n in zip(shards, size, strict=True)]
    yield [Task(measured_task(s), measure, s, n) for s, n in zip(shards, size, strict=True)]
    yield [Task(DECIDE_TASK, Decide(folder, shards), None, 0)]
    yield [Task(f"{s.base.source}/{s.base.name}", scatter, s, n) for s, n in zip(shards, size, strict=True)]


def _distinct(rows: np.ndarray, keys: tuple[str, ...]) -> np.ndarray:
    """Sorted by the keys (the last the most significant), one row of each."""
    rows = rows[np.lexsort(tuple(rows[k] for k in keys))]
    fresh = np.ones(len(rows), bool)
    if len(rows):
        fresh[1:] = np.logical_or.reduce([rows[k][1:] != rows[k][:-1] for k in keys])
    return rows[fresh]


def _raw(folder: Path, name: str, files: Mapping[str, np.ndarray], counters: Mapping[str, Any]) -> Shard:
    made: list[File] = []
    for suffix, rows in files.items():
        with new_file(folder, f"{name}{suffix}") as (file, written):
            file.write(np.ascontiguousarray(rows))
        made += written
    return Shard(name, sum(len(r) for r in files.values()), made[0].sha256, tuple(made), counters)


def _bound(keys: np.ndarray, number: int, count: int) -> int:
    if number >= count:
        return len(keys)
    return int(np.searchsorted(keys, np.uint64(number * (1 << 64) // count)))
