"""Writing the mixture: training shards in the training order, and each domain's validation sequences.

A shard is Parquet with one row a sequence: `input_ids` (fixed length, uint16 or uint32), `domain`, `position` in the
training order, and `pieces`: for every document in the sequence its id (32 hex digits) and the span of its own tokens.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from mixer.order import Order
from mixer.sequences import Pieces, Stream, hex_ids, open_stream
from mixer.streams import Domain
from stages.artifact import Artifact, ParquetShard, Shard, commit
from stages.recipe import Recipe
from stages.task import Task

VERSION = 1
SHARD_BYTES = 64 << 20
GROUP_BYTES = 8 << 20
PIECE = pa.struct(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("start", pa.int64(), nullable=False),
        pa.field("end", pa.int64(), nullable=False),
    ]
)


def schema(dtype: np.dtype, length: int) -> pa.Schema:
    """The columns of a training or validation shard."""
    return pa.schema(
        [
            pa.field("input_ids", pa.list_(pa.from_numpy_dtype(dtype), length), nullable=False),
            pa.field("domain", pa.string(), nullable=False),
            pa.field("position", pa.int64(), nullable=False),
            pa.field("pieces", pa.list_(pa.field("item", PIECE, nullable=False)), nullable=False),
        ]
    )


def sequences_of(size: int, dtype: np.dtype, length: int) -> int:
    """How many sequences make up about `size` bytes; at least one."""
    return max(1, size // (dtype.itemsize * length))


@dataclass(frozen=True)
class Mixture:
    """What a worker needs to write any sequence: the plan's order, the store, and every domain's stream.

    `counts` is int64 [phases, domains] with domains in the order of `domains`.
    """

    domains: tuple[Domain, ...]
    counts: np.ndarray
    sequence_length: int
    dtype: str
    store: Artifact
    streams: Mapping[str, Artifact]

    def order(self) -> Order:
        return Order(tuple(d.name for d in self.domains), self.counts)

    def open(self, domain: Domain, name: str) -> Stream:
        """The stream `train` or `validation` of a domain."""
        return open_stream(self.streams[domain.name], name, domain.parts(self.store))


def mixture_recipe(name: str, mixture: Mixture, order_version: int) -> Recipe:
    """The recipe of the written mixture."""
    config = {
        "domains": [d.name for d in mixture.domains],
        "counts": mixture.counts.tolist(),
        "sequence_length": mixture.sequence_length,
        "dtype": mixture.dtype,
        "order": order_version,
        "shard_bytes": SHARD_BYTES,
    }
    return Recipe("mixture", VERSION, name, config, {"streams": {n: a.digest for n, a in mixture.streams.items()}})


@dataclass(frozen=True)
class WriteTrain:
    """Work: the training sequences of a range of positions."""

    folder: Path
    mixture: Mixture

    def __call__(self, task: Task) -> None:
        start, stop = task.payload
        mix = self.mixture
        dtype = np.dtype(mix.dtype)
        domains, places = mix.order().stream_index(start, stop)
        streams = {int(d): mix.open(mix.domains[d], "train") for d in np.unique(domains)}
        step = sequences_of(GROUP_BYTES, dtype, mix.sequence_length)
        path = f"{task.name}.parquet"
        kind = schema(dtype, mix.sequence_length)
        with ParquetShard(self.folder, path, kind, **_options()) as parquet:
            for begin in range(0, stop - start, step):
                rows = slice(begin, min(begin + step, stop - start))
                positions = np.arange(start + rows.start, start + rows.stop)
                parquet.write(sequence_batch(mix, streams, domains[rows], places[rows], positions, kind))
        counts = np.bincount(domains, minlength=len(mix.domains)).tolist()
        counters = {
            "sequences": {d.name: n for d, n in zip(mix.domains, counts, strict=True)},
            "first": start,
        }
        commit(
            self.folder,
            task.name,
            [Shard(task.name, stop - start, parquet.content, (parquet.file,), counters)],
        )


@dataclass(frozen=True)
class WriteValidation:
    """Work: a domain's held-out documents in id order, cut into sequences; a last one that is not full is left out."""

    folder: Path
    mixture: Mixture

    def __call__(self, task: Task) -> None:
        number: int = task.payload
        mix = self.mixture
        dtype = np.dtype(mix.dtype)
        stream = mix.open(mix.domains[number], "validation")
        total = stream.tokens // mix.sequence_length
        step = sequences_of(GROUP_BYTES, dtype, mix.sequence_length)
        kind = schema(dtype, mix.sequence_length)
        with ParquetShard(self.folder, f"{task.name}.parquet", kind, **_options()) as parquet:
            for begin in range(0, max(total, 1), step):
                places = np.arange(begin, min(begin + step, total))
                domains = np.full(len(places), number)
                parquet.write(sequence_batch(mix, {number: stream}, domains, places, places, kind))
        tail = stream.tokens - total * mix.sequence_length
        counters = {"sequences": {mix.domains[number].name: total}, "tail_tokens": tail}
        commit(self.folder, task.name, [Shard(task.name, total, parquet.content, (parquet.file,), counters)])


def sequence_batch(
    mix: Mixture,
    streams: Mapping[int, Stream],
    domains: np.ndarray,
    places: np.ndarray,
    positions: np.ndarray,
    kind: pa.Schema,
) -> pa.RecordBatch:
    """Sequences as rows of a shard. domains: index into `mix.domains`; places: int64 number in the domain's stream."""
    n, length = len(domains), mix.sequence_length
    tokens = np.zeros((n, length), np.dtype(mix.dtype))
    found: list[tuple[np.ndarray, Pieces, np.ndarray]] = []
    for number in np.unique(domains).tolist():
        mine = np.flatnonzero(domains == number)
        pieces = streams[number].pieces(places[mine], length)
        rows = np.zeros((len(mine), length), tokens.dtype)
        streams[number].gather(pieces, rows.reshape(-1))
        tokens[mine] = rows
        found.append((mine, pieces, streams[number].ids(pieces)))
    names = pa.array([d.name for d in mix.domains], pa.string())
    columns = [
        pa.FixedSizeListArray.from_arrays(pa.array(tokens.reshape(-1)), type=kind.field("input_ids").type),
        names.take(pa.array(domains.astype(np.int32))),
        pa.array(positions.astype(np.int64)),
        _pieces(n, found),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=kind)


def _pieces(n: int, found: Sequence[tuple[np.ndarray, Pieces, np.ndarray]]) -> pa.Array:
    """The pieces of all domains, put into the order of the rows they belong to."""
    counts = np.zeros(n, np.int64)
    for mine, pieces, _ in found:
        counts[mine] = pieces.counts
    ends = np.cumsum(counts)
    total = int(ends[-1]) if n else 0
    ids, start, end = np.zeros((total, 16), np.uint8), np.zeros(total, np.int64), np.zeros(total, np.int64)
    for mine, pieces, own in found:
        within = np.arange(len(pieces.start)) - np.repeat(np.cumsum(pieces.counts) - pieces.counts, pieces.counts)
        place = np.repeat(ends[mine] - counts[mine], pieces.counts) + within
        ids[place], start[place], end[place] = own, pieces.start, pieces.end
    rows = pa.StructArray.from_arrays([hex_ids(ids), pa.array(start), pa.array(end)], fields=list(PIECE))
    offsets = np.zeros(n + 1, np.int32)
    offsets[1:] = ends
    return pa.ListArray.from_arrays(pa.array(offsets), rows, type=pa.list_(pa.field("item", PIECE, nullable=False)))


def _options() -> dict[str, object]:
    """Token ids neither compress nor repeat enough to pay for trying; the other columns do."""
    return {
        "use_dictionary": ["domain"],
        "compression": {
            "input_ids.list.element": "none",
            "domain": "zstd",
            "position": "zstd",
            "pieces.list.element.id": "none",
            "pieces.list.element.start": "zstd",
            "pieces.list.element.end": "zstd",
        },
        "compression_level": None,
        "write_statistics": ["position"],
    }


def plan_shards(mixture: Mixture) -> Iterator[tuple[str, tuple[int, int]]]:
    """Names and ranges of positions of the training shards."""
    total = int(mixture.counts.sum())
    step = sequences_of(SHARD_BYTES, np.dtype(mixture.dtype), mixture.sequence_length)
    for number, start in enumerate(range(0, total, step)):
        yield f"train/{number:05d}", (start, min(start + step, total))
