"""Writing the mixture: training shards in the training order, and each domain's validation sequences.

A shard is Parquet with one row a sequence: `input_ids` (fixed length, uint16 or uint32), `domain`, `position` in the
training order, and `pieces`: for every document in the sequence its id (32 hex digits) and the span of its own tokens.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mixer.mixture import Mixture
from mixer.sequences import Pieces, Stream, hex_ids
from stages.artifact import ParquetShard, Shard, commit
from stages.recipe import Recipe, digest_of
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


def mixture_recipe(
    name: str, mixture: Mixture, materialized: bool, amendments: Sequence[Mapping[str, Any]] = ()
) -> Recipe:
    """The recipe of the written mixture, or of the virtual one, which has no shards. `amendments` are those of the
    spec as plain data: two that come to the same integers keep manifests of their own."""
    segments = [
        {"sequences": s.sequences, "sequence_length": s.plan.sequence_length, "offsets": dict(s.offsets)}
        for s in mixture.segments
    ]
    config: dict[str, Any] = {
        "domains": list(mixture.names),
        "segments": segments,
        "dtype": mixture.dtype,
        "materialized": materialized,
        "shard_bytes": SHARD_BYTES,
    }
    if amendments:
        config["amendments"] = digest_of(list(amendments))
    inputs = {"streams": {n: a.digest for n, a in mixture.streams.items()}, "order": mixture.orders.digest}
    return Recipe("mixture", VERSION, name, config, inputs)


@dataclass(frozen=True)
class Span:
    """The payload of a training shard: positions [start, stop) of the run, all in one segment."""

    segment: int
    start: int
    stop: int


@dataclass(frozen=True)
class WriteTrain:
    """Work: the training sequences of a span."""

    folder: Path
    mixture: Mixture

    def __call__(self, task: Task) -> None:
        span: Span = task.payload
        mix, segment = self.mixture, self.mixture.segments[span.segment]
        length, dtype = segment.plan.sequence_length, np.dtype(mix.dtype)
        domains, places = mix.order(span.segment).stream_index(span.start - segment.first, span.stop - segment.first)
        begins = mix.begins(span.segment, domains, places)
        streams = {int(d): mix.open(mix.domains[d], "train") for d in np.unique(domains)}
        kind, step = schema(dtype, length), sequences_of(GROUP_BYTES, dtype, length)
        with ParquetShard(self.folder, f"{task.name}.parquet", kind, **_options()) as parquet:
            for at in range(0, span.stop - span.start, step):
                rows = slice(at, min(at + step, span.stop - span.start))
                positions = np.arange(span.start + rows.start, span.start + rows.stop)
                parquet.write(sequence_batch(mix.names, streams, domains[rows], begins[rows], positions, kind))
        counts = np.bincount(domains, minlength=len(mix.domains)).tolist()
        counters = {"sequences": dict(zip(mix.names, counts, strict=True)), "first": span.start, "length": length}
        rows_written = span.stop - span.start
        commit(self.folder, task.name, [Shard(task.name, rows_written, parquet.content, (parquet.file,), counters)])


@dataclass(frozen=True)
class WriteValidation:
    """Work: a domain's held-out documents in id order, cut into sequences; a last one that is not full is left out."""

    folder: Path
    mixture: Mixture

    def __call__(self, task: Task) -> None:
        number: int = task.payload
        mix = self.mixture
        length, dtype = mix.segments[-1].plan.sequence_length, np.dtype(mix.dtype)
        stream = mix.open(mix.domains[number], "validation")
        total = stream.tokens // length
        kind, step = schema(dtype, length), sequences_of(GROUP_BYTES, dtype, length)
        with ParquetShard(self.folder, f"{task.name}.parquet", kind, **_options()) as parquet:
            for at in range(0, total, step):
                places = np.arange(at, min(at + step, total))
                domains = np.full(len(places), number)
                parquet.write(sequence_batch(mix.names, {number: stream}, domains, places * length, places, kind))
        counters = {"sequences": {mix.names[number]: total}, "length": length}
        commit(self.folder, task.name, [Shard(task.name, total, parquet.content, (parquet.file,), counters)])


def sequence_batch(
    names: Sequence[str],
    streams: Mapping[int, Stream],
    domains: np.ndarray,
    begins: np.ndarray,
    positions: np.ndarray,
    kind: pa.Schema,
) -> pa.RecordBatch:
    """Sequences as rows of a shard. domains: index into `names`; begins: int64, first token in the domain's stream."""
    kind_of_ids = kind.field("input_ids").type
    n, length = len(domains), kind_of_ids.list_size
    tokens = np.zeros((n, length), kind_of_ids.value_type.to_pandas_dtype())
    found: list[tuple[np.ndarray, Pieces, np.ndarray]] = []
    for number in np.unique(domains).tolist():
        mine = np.flatnonzero(domains == number)
        pieces = streams[number].pieces(begins[mine], length)
        streams[number].gather(pieces, tokens, mine)
        found.append((mine, pieces, streams[number].ids(pieces)))
    columns = [
        pa.FixedSizeListArray.from_arrays(pa.array(tokens.reshape(-1)), type=kind_of_ids),
        pa.array(list(names), pa.string()).take(pa.array(domains.astype(np.int32))),
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


def plan_shards(mixture: Mixture) -> Iterator[tuple[str, Span]]:
    """Names and spans of the training shards."""
    number = 0
    for index, segment in enumerate(mixture.segments):
        step = sequences_of(SHARD_BYTES, np.dtype(mixture.dtype), segment.plan.sequence_length)
        end = segment.first + segment.sequences
        for start in range(segment.first, end, step):
            yield f"train/{number:05d}", Span(index, start, min(start + step, end))
            number += 1
