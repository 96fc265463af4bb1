"""Reading a mixture: any sequence of the run, from the store directly or from the written shards, with equal arrays.

    data = mixer.reader.open("build/latest/demo")
    data[0]["input_ids"]                     # one sequence
    for batch in data.batches(8, rank=0, world_size=2, start=100):
        batch["input_ids"]                   # [4, 2048]

A `Dataset` has `len` and `[i]`, so it serves as a map-style dataset of PyTorch without either knowing of the other.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow.parquet as pq

from mixer.manifest import read_manifest
from mixer.mixture import Mixture, open_mixture
from mixer.order import Order
from mixer.sequences import Stream
from stages.errors import UserError

KEPT_GROUPS = 8


def open(path: str | Path, source: Literal["auto", "store", "shards"] = "auto") -> "Dataset":
    """Open a manifest, or the folder that holds it. `auto` reads the shards where they were written, else the store.

    Raises UserError when there is no manifest, or nothing to read it from.
    """
    path = Path(path)
    path = path / "manifest.json" if path.is_dir() else path
    manifest = read_manifest(path)
    if source == "auto":
        source = "shards" if manifest["materialized"] else "store"
    if source == "shards":
        return Dataset(manifest, ShardReader(path.parent, manifest))
    mixture, _ = open_mixture(path)
    return Dataset(manifest, StoreReader(mixture))


class Dataset:
    """The training sequences of a run, in the order of training.

    An item is a dict: `input_ids` (uint16 or uint32, [length]), `domain` (name) and `position`. A slice or a list of
    positions gives `input_ids` [n, length], `domain` (list of names) and `position` (int64 [n]); all of them must have
    one sequence length.
    """

    def __init__(self, manifest: Mapping[str, Any], source: "StoreReader | ShardReader") -> None:
        self.manifest, self._source = manifest, source
        self.domains: tuple[str, ...] = tuple(manifest["domains"])
        self._segments = [(s["first"], s["first"] + s["sequences"], s["sequence_length"]) for s in manifest["segments"]]

    def __len__(self) -> int:
        """Sequences of the run."""
        return int(self.manifest["totals"]["sequences"])

    def __getitem__(self, index: int | slice | Sequence[int] | np.ndarray) -> dict[str, Any]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            return self._rows(np.arange(start, stop, step))
        if isinstance(index, Sequence | np.ndarray):
            return self._rows(np.array([self._position(int(i)) for i in index], np.int64))
        position = self._position(int(index))
        found = self._rows(np.array([position]))
        return {"input_ids": found["input_ids"][0], "domain": found["domain"][0], "position": position}

    def _position(self, index: int) -> int:
        position = index + (len(self) if index < 0 else 0)
        if not 0 <= position < len(self):
            raise IndexError(f"position {index} of a run of {len(self)} sequences")
        return position

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Several items at once, which PyTorch's loader asks for where it can."""
        return [self[i] for i in indices]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[i] for i in range(len(self)))

    def batches(
        self, batch_size: int, rank: int = 0, world_size: int = 1, start: int = 0, drop_last: bool = True
    ) -> Iterator[dict[str, Any]]:
        """The global batches from number `start` on, of each the part of one rank: its contiguous share of the rows.

        Which rows a global batch holds depends on neither rank nor world size, so a run goes on at any batch with any
        other number of ranks. A batch never crosses a change of the sequence length; a batch that is not full, at such
        a change or at the end, is left out unless `drop_last` is false. Raises ValueError when the world size does not
        divide the batch, or for a rank outside it.
        """
        if batch_size < 1 or world_size < 1 or batch_size % world_size:
            raise ValueError(f"{world_size} ranks do not divide a batch of {batch_size} sequences")
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} is not in a world of {world_size}")
        for number in range(start, self.batch_count(batch_size, drop_last)):
            first, stop = self.batch_span(number, batch_size, drop_last)
            size = stop - first
            mine = np.arange(first + size * rank // world_size, first + size * (rank + 1) // world_size)
            yield self._rows(mine, next(length for begin, end, length in self._segments if begin <= first < end))

    def batch_count(self, batch_size: int, drop_last: bool = True) -> int:
        """How many global batches there are."""
        return sum(_batches_in(stop - first, batch_size, drop_last) for first, stop in stretches(self.manifest))

    def batch_span(self, number: int, batch_size: int, drop_last: bool = True) -> tuple[int, int]:
        """The positions [first, stop) of a global batch. Raises IndexError when there is none of that number."""
        left = number
        for first, stop in stretches(self.manifest):
            count = _batches_in(stop - first, batch_size, drop_last)
            if 0 <= left < count:
                begin = first + left * batch_size
                return begin, min(begin + batch_size, stop)
            left -= count
        raise IndexError(f"batch {number} of {self.batch_count(batch_size, drop_last)}")

    def _rows(self, positions: np.ndarray, length_of_none: int | None = None) -> dict[str, Any]:
        """The sequences at these positions; without any, no rows of `length_of_none`, for a rank that gets none."""
        lengths = {
            length for first, stop, length in self._segments if ((positions >= first) & (positions < stop)).any()
        }
        if len(lengths) > 1:
            raise ValueError(
                f"these positions have sequences of {len(lengths)} lengths ({sorted(lengths)}); ask for fewer"
            )
        length = lengths.pop() if lengths else length_of_none or self._segments[-1][2]
        tokens, domains = self._source.rows(positions, length)
        return {"input_ids": tokens, "domain": [self.domains[d] for d in domains], "position": positions}


def stretches(manifest: Mapping[str, Any]) -> list[tuple[int, int]]:
    """The positions [first, stop) of a run that have one sequence length; a batch never crosses their ends."""
    merged: list[list[int]] = []
    for segment in manifest["segments"]:
        first, length = segment["first"], segment["sequence_length"]
        if merged and merged[-1][2] == length:
            merged[-1][1] = first + segment["sequences"]
        else:
            merged.append([first, first + segment["sequences"], length])
    return [(first, stop) for first, stop, _ in merged]


def _batches_in(sequences: int, batch_size: int, drop_last: bool) -> int:
    return sequences // batch_size if drop_last else -(-sequences // batch_size)


class StoreReader:
    """Sequences put together from the token store."""

    def __init__(self, mixture: Mixture) -> None:
        self.mixture = mixture
        self._orders: dict[int, Order] = {}
        self._streams: dict[int, Stream] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"mixture": self.mixture, "_orders": {}, "_streams": {}}

    def rows(self, positions: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Tokens [n, length] and domain indices [n] of the positions."""
        out = np.zeros((len(positions), length), np.dtype(self.mixture.dtype))
        domains, begins = self.locate(positions)
        for number in np.unique(domains).tolist():
            mine = np.flatnonzero(domains == number)
            stream = self.stream(number)
            stream.gather(stream.pieces(begins[mine], length), out, mine)
        return out, domains

    def locate(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Domain index of every position, and where it starts in the domain's stream, in tokens."""
        domains, begins = np.zeros(len(positions), np.int64), np.zeros(len(positions), np.int64)
        for number, segment in enumerate(self.mixture.segments):
            mine = np.flatnonzero((positions >= segment.first) & (positions < segment.first + segment.sequences))
            if not len(mine):
                continue
            local = positions[mine] - segment.first
            low = int(local.min())
            order = self._order(number)
            if int(local.max()) - low < 4 * len(local) + 65536:
                found, places = order.stream_index(low, int(local.max()) + 1)
                found, places = found[local - low], places[local - low]
            else:
                pairs = [order.locate(int(i)) for i in local]
                found, places = np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs])
            domains[mine], begins[mine] = found, self.mixture.begins(number, found, places)
        return domains, begins

    def stream(self, number: int) -> Stream:
        """The training stream of a domain."""
        if number not in self._streams:
            self._streams[number] = self.mixture.open(self.mixture.domains[number], "train")
        return self._streams[number]

    def _order(self, segment: int) -> Order:
        if segment not in self._orders:
            self._orders[segment] = self.mixture.order(segment)
        return self._orders[segment]


class ShardReader:
    """Sequences read from the written shards, a row group at a time; a few row groups are kept."""

    def __init__(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        if not manifest["materialized"]:
            raise UserError(f"{folder}: this mixture is virtual and has no shards; open it with source='store'")
        self.folder = folder
        self.shards = [s for s in manifest["shards"] if s["split"] == "train"]
        self.firsts = np.array([s["first"] for s in self.shards], np.int64)
        self.names = {name: i for i, name in enumerate(manifest["domains"])}
        self._groups: OrderedDict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = OrderedDict()
        self._files: dict[int, tuple[pq.ParquetFile, np.ndarray]] = {}
        self._dtype = np.dtype(manifest["tokenizer"]["dtype"])

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_groups": OrderedDict(), "_files": {}}

    def rows(self, positions: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Tokens [n, length] and domain indices [n] of the positions."""
        out, domains = np.zeros((len(positions), length), self._dtype), np.zeros(len(positions), np.int64)
        shards = np.searchsorted(self.firsts, positions, "right") - 1
        for shard in np.unique(shards).tolist():
            mine = np.flatnonzero(shards == shard)
            local = positions[mine] - self.firsts[shard]
            _, begins = self._file(shard)
            groups = np.searchsorted(begins, local, "right") - 1
            for group in np.unique(groups).tolist():
                chosen = np.flatnonzero(groups == group)
                tokens, found = self._group(shard, group)
                rows = local[chosen] - begins[group]
                out[mine[chosen]], domains[mine[chosen]] = tokens[rows], found[rows]
        return out, domains

    def _file(self, shard: int) -> tuple[pq.ParquetFile, np.ndarray]:
        if shard not in self._files:
            path = self.folder / self.shards[shard]["path"]
            try:
                file = pq.ParquetFile(path, memory_map=True)
            except OSError as error:
                raise UserError(f"{path}: cannot be read: {error}; run `mixer verify {self.folder}`") from None
            sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
            self._files[shard] = (file, np.cumsum([0, *sizes[:-1]]))
        return self._files[shard]

    def _group(self, shard: int, group: int) -> tuple[np.ndarray, np.ndarray]:
        if (shard, group) not in self._groups:
            file, _ = self._file(shard)
            table = file.read_row_group(group, columns=["input_ids", "domain"], use_threads=False).combine_chunks()
            ids = table.column("input_ids").chunk(0)
            tokens = ids.flatten().to_numpy().reshape(table.num_rows, -1)
            coded = table.column("domain").chunk(0).dictionary_encode()
            codes = np.array([self.names[n] for n in coded.dictionary.to_pylist()], np.int64)
            self._groups[(shard, group)] = (tokens, codes[coded.indices.to_numpy()])
            if len(self._groups) > KEPT_GROUPS:
                self._groups.popitem(last=False)
        self._groups.move_to_end((shard, group))
        return self._groups[(shard, group)]
