"""The token store: one folder a cell, its documents in id order, their tokens in raw files.

Each part of a cell owns a range of ids and is two files: `NUMBER.bin`, the documents' tokens one after the other (raw
little-endian uint16 or uint32, no header), and `NUMBER.arrow`, the index: id, source, offset and length in tokens, and
bytes of text. Order and cuts follow the content alone: an id is the hash of a text, so id order is as good as a
shuffle, and neither files nor workers nor the order of sources leave a trace.

*Select* writes, for each document shard, the documents that no stage drops, ordered by cell and id; *assemble* owns
a part of a cell, takes its slice of every selection, and gathers the tokens.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from stages import exact_duplicates, near_duplicates
from stages.artifact import Artifact, Shard, commit, new_file
from stages.content import content_digest
from stages.documents import ids_to_words, read_columns, words_to_ids
from stages.errors import UserError
from stages.exact_duplicates import SourceShard, read_raw
from stages.kernels.copy import copy_spans
from stages.kernels.sort import argsort_ids
from stages.recipe import Recipe, digest_of
from stages.task import Task

VERSION = 2
PART_TOKENS = 1 << 28
CHUNK_TOKENS = 1 << 22
DUPLICATE_COLUMNS = {exact_duplicates.CAUSE: "is_exact_duplicate", near_duplicates.CAUSE: "is_near_duplicate"}
"""The stages over all sources that drop documents, in their order, with the column that says so."""
INDEX = pa.schema(
    [
        pa.field("id", pa.binary(16), nullable=False),
        pa.field("source", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("length", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
    ]
)
SELECTED = np.dtype(
    [("cell", "<u4"), ("hi", "<u8"), ("lo", "<u8"), ("offset", "<u8"), ("length", "<u8"), ("bytes", "<u8")]
)


@dataclass(frozen=True)
class StoreShard:
    """A document shard on its way into the store: its identity among all sources and the columns that decide."""

    base: SourceShard
    exact: Path
    near: Path
    counts: Path
    tokens: Path
    cell: str

    @property
    def name(self) -> str:
        return f"selected/{self.base.rank:06d}"


@dataclass(frozen=True)
class Part:
    """Part `number` of the `count` equal id ranges of a cell; `rank` is the cell's place among the sorted names."""

    cell: str
    rank: int
    number: int
    count: int

    @property
    def name(self) -> str:
        return f"{self.cell}/{self.number:05d}"


def recipe(corpus: str, dtype: str, cells: Any, inputs: Mapping[str, Any]) -> Recipe:
    """The store's recipe; `inputs` holds the digests of every source's columns and of the stages over all sources."""
    return Recipe("store", VERSION, corpus, {"cells": cells, "dtype": dtype, "part_tokens": PART_TOKENS}, inputs)


@dataclass(frozen=True)
class Select:
    """Work: `selected/RANK.bin`, the kept documents of a shard by cell and id, and how many there are in each cell."""

    folder: Path
    cells: Sequence[str]

    def __call__(self, task: Task) -> None:
        shard: StoreShard = task.payload
        base = shard.base
        kept = read_columns(base.filters, ["kept"], base.rows).column("kept").to_numpy()
        lost = {}
        for cause, path in ((exact_duplicates.CAUSE, shard.exact), (near_duplicates.CAUSE, shard.near)):
            flag = read_columns(path, [DUPLICATE_COLUMNS[cause]], base.rows).column(0).to_numpy()
            lost[cause], kept = kept & flag, kept & ~flag
        documents = read_columns(base.documents, ["id", "bytes"], base.rows)
        hi, lo = ids_to_words(documents.column("id"))
        lengths = read_columns(shard.counts, ["token_count"], base.rows).column(0).to_numpy()
        offsets = np.cumsum(lengths) - lengths
        rows = np.flatnonzero(kept)
        rows = rows[argsort_ids(hi[rows], lo[rows])]
        out = np.empty(len(rows), SELECTED)
        out["cell"] = self.cells.index(shard.cell)
        out["hi"], out["lo"], out["offset"], out["length"] = hi[rows], lo[rows], offsets[rows], lengths[rows]
        out["bytes"] = documents.column("bytes").to_numpy()[rows]
        with new_file(self.folder, f"{task.name}.bin") as (file, made):
            file.write(out)
        dropped = {cause: int(lengths[mask].sum()) for cause, mask in lost.items()}
        counters = {
            "source": base.source,
            "tokens": {shard.cell: int(lengths[rows].sum())},
            "dropped_tokens": dropped,
        }
        commit(self.folder, task.name, [Shard(task.name, len(out), made[0].sha256, (made[0],), counters)])


@dataclass(frozen=True)
class Assemble:
    """Work: one part of a cell."""

    folder: Path
    shards: Sequence[StoreShard]
    dtype: str

    def __call__(self, task: Task) -> None:
        part: Part = task.payload
        slices = [self._slice(shard, part) for shard in self.shards]
        rows = np.concatenate(slices)
        rank = np.repeat(np.arange(len(slices), dtype=np.int32), [len(s) for s in slices])
        order = argsort_ids(rows["hi"], rows["lo"])
        rows, rank = rows[order], rank[order]
        lengths = rows["length"].astype(np.int64)
        index = self._index(rows, rank, lengths)
        with new_file(self.folder, f"{part.name}.bin") as (file, tokens):
            for chunk in self._tokens(rows, rank, lengths):
                file.write(chunk)
        with (
            new_file(self.folder, f"{part.name}.arrow") as (file, indexed),
            pa.ipc.new_file(file, INDEX) as writer,
        ):
            writer.write_batch(index)
        content = digest_of([content_digest(index), tokens[0].sha256])
        counters = {
            "cell": part.cell,
            "tokens": int(lengths.sum()),
            "sources": self._by_source(rows, rank, lengths),
        }
        commit(self.folder, task.name, [Shard(part.name, len(rows), content, (tokens[0], indexed[0]), counters)])

    def _slice(self, shard: StoreShard, part: Part) -> np.ndarray:
        rows = read_raw(self.folder / f"{shard.name}.bin", SELECTED)
        first, last = np.searchsorted(rows["cell"], [part.rank, part.rank + 1])
        rows = rows[first:last]
        bounds = [number * (1 << 64) // part.count for number in (part.number, part.number + 1)]
        start = int(np.searchsorted(rows["hi"], np.uint64(bounds[0])))
        stop = len(rows) if bounds[1] == 1 << 64 else int(np.searchsorted(rows["hi"], np.uint64(bounds[1])))
        return np.array(rows[start:stop])

    def _index(self, rows: np.ndarray, rank: np.ndarray, lengths: np.ndarray) -> pa.RecordBatch:
        names = sorted({s.base.source for s in self.shards})
        codes = np.array([names.index(s.base.source) for s in self.shards], np.int32)[rank]
        return pa.RecordBatch.from_arrays(
            [
                words_to_ids(rows["hi"], rows["lo"]),
                pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(names, pa.string())),
                pa.array(np.cumsum(lengths) - lengths),
                pa.array(lengths),
                pa.array(rows["bytes"].astype(np.int64)),
            ],
            schema=INDEX,
        )

    def _tokens(self, rows: np.ndarray, rank: np.ndarray, lengths: np.ndarray) -> Iterator[np.ndarray]:
        """The tokens of the part in order, some millions at a time."""
        dtype = np.dtype(self.dtype)
        mapped = {int(r): read_raw(self.shards[r].tokens, dtype) for r in np.unique(rank)}
        ends = np.cumsum(lengths)
        start = 0
        while start < len(rows):
            begun = int(ends[start - 1]) if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, begun + CHUNK_TOKENS, "right")))
            places = ends[start:stop] - lengths[start:stop] - begun
            out = np.empty(int(ends[stop - 1]) - begun, dtype)
            for r in np.unique(rank[start:stop]):
                mine = start + np.flatnonzero(rank[start:stop] == r)
                self._check(mapped[int(r)], rows[mine], int(r))
                copy_spans(
                    mapped[int(r)],
                    rows["offset"][mine].astype(np.int64),
                    lengths[mine],
                    out,
                    places[mine - start],
                )
            yield out
            start = stop

    def _check(self, tokens: np.ndarray, rows: np.ndarray, rank: int) -> None:
        if len(rows) and int((rows["offset"] + rows["length"]).max()) > len(tokens):
            raise UserError(
                f"{self.shards[rank].tokens}: holds {len(tokens)} tokens, fewer than its counts say; remove "
                f"{self.shards[rank].tokens.parent} and build again"
            )

    def _by_source(self, rows: np.ndarray, rank: np.ndarray, lengths: np.ndarray) -> dict[str, dict[str, int]]:
        table: dict[str, dict[str, int]] = {}
        for r in np.unique(rank):
            mine = rank == r
            entry = table.setdefault(self.shards[r].base.source, {"documents": 0, "tokens": 0, "bytes": 0})
            entry["documents"] += int(mine.sum())
            entry["tokens"] += int(lengths[mine].sum())
            entry["bytes"] += int(rows["bytes"][mine].sum())
        return table


def plan_parts(cells: Mapping[str, int]) -> list[Part]:
    """The parts of every cell, from the cells' tokens; an empty cell has one empty part."""
    parts = []
    for rank, cell in enumerate(sorted(cells)):
        count = max(1, -(-cells[cell] // PART_TOKENS))
        parts += [Part(cell, rank, number, count) for number in range(count)]
    return parts


@dataclass(frozen=True)
class StorePart:
    """A part of a cell, mapped: its index of n documents in id order (schema `INDEX`), and their tokens."""

    name: str
    index: pa.Table
    tokens: np.ndarray

    @cached_property
    def ids(self) -> tuple[np.ndarray, np.ndarray]:
        """High and low words of the ids, uint64 (n)."""
        return ids_to_words(self.index.column("id"))

    @cached_property
    def offset(self) -> np.ndarray:
        """Where each document begins in `tokens`, int64 (n)."""
        return self.index.column("offset").to_numpy()

    @cached_property
    def length(self) -> np.ndarray:
        """Tokens of each document, int64 (n)."""
        return self.index.column("length").to_numpy()


def cell_parts(store: Artifact, cell: str) -> list[Shard]:
    """The shards of a cell in id order; an unknown cell has none."""
    return [s for s in store.shards if s.counters["cell"] == cell]


def cells_of(store: Artifact) -> dict[str, dict[str, dict[str, int]]]:
    """The cells x sources table: documents, tokens and bytes of every source in every cell."""
    table: dict[str, dict[str, dict[str, int]]] = {}
    for shard in store.shards:
        cell = table.setdefault(shard.counters["cell"], {})
        for source, counts in shard.counters["sources"].items():
            entry = cell.setdefault(source, dict.fromkeys(counts, 0))
            for key, value in counts.items():
                entry[key] += value
    return table


def open_part(store: Artifact, shard: Shard) -> StorePart:
    """Map one part of the store."""
    dtype = np.dtype(store.recipe["config"]["dtype"])
    with pa.memory_map(str(store.path(shard, ".arrow"))) as source:
        index = pa.ipc.open_file(source).read_all()
    return StorePart(shard.name, index, read_raw(store.path(shard, ".bin"), dtype))
