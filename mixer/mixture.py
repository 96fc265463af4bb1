"""A mixture as its readers and writers see it: the run's segments, the store, and every domain's stream."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from mixer.manifest import read_manifest
from mixer.order import CHECKPOINT_INTERVAL, ORDER_VERSION, Order
from mixer.plan import Phase, Plan, Run, Segment
from mixer.sequences import Stream, open_stream
from mixer.streams import Domain
from stages.artifact import Artifact, Shard, commit, new_file, open_artifact
from stages.errors import UserError
from stages.recipe import Recipe
from stages.store import StorePart, open_part
from stages.task import Task

VERSION = 1


@dataclass(frozen=True)
class Mixture:
    """Everything that any sequence of a run follows from. Domains are in the order of their names; `orders` holds the
    checkpoints of the segments' orders."""

    domains: tuple[Domain, ...]
    segments: tuple[Segment, ...]
    dtype: str
    store: Artifact
    streams: Mapping[str, Artifact]
    orders: Artifact

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(d.name for d in self.domains)

    @property
    def sequences(self) -> int:
        return sum(s.sequences for s in self.segments)

    def order(self, segment: int) -> Order:
        """The order of a segment, with its checkpoints; positions count from the segment's first."""
        shard = next(s for s in self.orders.shards if s.name == segment_name(segment))
        digest = np.frombuffer(bytes.fromhex(shard.counters["checkpoints"]), np.uint8)
        arrays = {"checkpoints": np.load(self.orders.path(shard, ".npy")), "digest": digest}
        return Order.from_arrays(self.names, self.segments[segment].plan.counts, arrays)

    def begins(self, segment: int, domains: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Where sequences start in their domains' streams, in tokens: int64. domains: index; places: number of the
        sequence among those of its domain in the segment."""
        part = self.segments[segment]
        offsets = np.array([part.offsets[name] for name in self.names], np.int64)
        return offsets[domains] + places.astype(np.int64) * part.plan.sequence_length

    def open(self, domain: Domain, name: str) -> Stream:
        """The stream `train` or `validation` of a domain."""
        return open_stream(self.streams[domain.name], name, self._parts(domain))

    def unique_tokens(self, name: str) -> int:
        """Tokens of one pass over a domain."""
        return int(next(s for s in self.streams[name].shards if s.name == "train").counters["unique_tokens"])

    def _parts(self, domain: Domain) -> Sequence[StorePart]:
        return [self.part(shard) for shard in domain.shards(self.store)]

    @cached_property
    def _opened(self) -> dict[str, StorePart]:
        return {}

    def part(self, shard: Shard) -> StorePart:
        """A part of the store, mapped once."""
        if shard.name not in self._opened:
            self._opened[shard.name] = open_part(self.store, shard)
        return self._opened[shard.name]

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_opened", "names")}


def segment_name(number: int) -> str:
    """The shard of a segment's order."""
    return f"segment-{number:03d}"


def order_recipe(mixture: str, names: Sequence[str], segments: Sequence[Segment]) -> Recipe:
    """The recipe of the `order` stage: checkpoints of every segment's order."""
    counts = [s.plan.counts.tolist() for s in segments]
    config = {"order": ORDER_VERSION, "interval": CHECKPOINT_INTERVAL, "domains": list(names), "counts": counts}
    return Recipe("order", VERSION, mixture, config)


@dataclass(frozen=True)
class WriteOrder:
    """Work: the checkpoints of one segment's order, from which any position is found in milliseconds."""

    folder: Path
    plan: Plan

    def __call__(self, task: Task) -> None:
        order = self.plan.order()
        arrays = order.to_arrays()
        with new_file(self.folder, f"{task.name}.npy") as (file, made):
            np.save(file, arrays["checkpoints"])
        counters = {"order": order.digest, "checkpoints": arrays["digest"].tobytes().hex()}
        rows = len(arrays["checkpoints"])
        commit(self.folder, task.name, [Shard(task.name, rows, made[0].sha256, (made[0],), counters)])


def segments_of(manifest: Mapping[str, Any]) -> tuple[Segment, ...]:
    """The segments of a manifest's run, with the phases that they reach."""
    segments = []
    for number, record in enumerate(manifest["segments"]):
        phases = tuple(
            Phase(
                p["name"],
                p["planned"],
                {d: Fraction(n["asked"]) for d, n in p["domains"].items()},
                {d: Fraction(n["given"]) for d, n in p["domains"].items()},
                {d: n["sequences"] for d, n in p["domains"].items()},
            )
            for p in manifest["phases"]
            if p["segment"] == number
        )
        plan = Plan(record["sequence_length"], phases, record["sequences"] * record["sequence_length"])
        segments.append(Segment(plan, record["first"], record["sequences"], record["offsets"]))
    return tuple(segments)


def run_of(manifest: Mapping[str, Any]) -> Run:
    """The run of a manifest."""
    return Run(segments_of(manifest))


def open_mixture(path: Path) -> tuple[Mixture, dict[str, Any]]:
    """The mixture behind a manifest in its build folder, and the manifest.

    Raises UserError when the artifacts of the store, the streams or the order are not there.
    """
    path = path / "manifest.json" if path.is_dir() else path
    manifest = read_manifest(path)
    root = path.resolve().parent.parent.parent
    found: dict[str, dict[str, Artifact]] = {}
    for record in manifest["stages"]:
        if record["stage"] in ("store", "stream", "order"):
            found.setdefault(record["stage"], {})[record["name"]] = open_artifact(
                root, record["folder"], record["digest"]
            )
    if not {"store", "stream", "order"} <= found.keys():
        raise UserError(f"{path}: names no store, streams or order; build the mixture again")
    domains = tuple(Domain(name, tuple(d["cells"])) for name, d in sorted(manifest["domains"].items()))
    mixture = Mixture(
        domains,
        segments_of(manifest),
        manifest["tokenizer"]["dtype"],
        next(iter(found["store"].values())),
        found["stream"],
        next(iter(found["order"].values())),
    )
    return mixture, manifest
