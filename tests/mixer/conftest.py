"""Token stores made by hand."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml

from mixer.amend import amend
from mixer.build import Build
from mixer.cells import CellTable
from mixer.domains import Domains, resolve_domains
from mixer.plan import Supply
from mixer.spec import MixtureSpec
from stages.artifact import Artifact, File, Shard
from stages.documents import words_to_ids
from stages.store import INDEX
from stages.task import Task

Documents = Mapping[int, Sequence[int]]


@pytest.fixture
def make_store(tmp_path: Path) -> Callable[..., Artifact]:
    """`make_store({cell: {id: tokens}}, parts=1, width="<u2")`: a store in which every cell is cut into so many parts
    of equal ranges of documents."""
    made = 0

    def make(cells: Mapping[str, Documents], parts: int = 1, width: str = "<u2") -> Artifact:
        nonlocal made
        made += 1
        folder = tmp_path / f"store-{made}"
        shards = []
        for cell, documents in sorted(cells.items()):
            ids = sorted(documents)
            for number in range(parts):
                mine = ids[len(ids) * number // parts : len(ids) * (number + 1) // parts]
                shards.append(_part(folder, f"{cell}/{number:05d}", cell, {i: documents[i] for i in mine}, width))
        return Artifact(folder, "d" * 64, {"config": {"dtype": width}}, tuple(shards), {})

    return make


def _part(folder: Path, name: str, cell: str, documents: Documents, width: str) -> Shard:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    lengths = np.array([len(tokens) for tokens in documents.values()], np.int64)
    words = [(i >> 64, i & (1 << 64) - 1) for i in documents]
    hi, lo = (np.array([w[k] for w in words], np.uint64) for k in (0, 1))
    source = pa.array(["source"] * len(lengths)).dictionary_encode()
    index = pa.RecordBatch.from_arrays(
        [
            words_to_ids(hi, lo),
            pa.DictionaryArray.from_arrays(source.indices, pa.array(["source"])),
            pa.array(np.cumsum(lengths) - lengths),
            pa.array(lengths),
            pa.array(lengths * 4),
        ],
        schema=INDEX,
    )
    tokens = np.array([t for tokens in documents.values() for t in tokens], width)
    tokens.tofile(folder / f"{name}.bin")
    with pa.ipc.new_file(folder / f"{name}.arrow", INDEX) as writer:
        writer.write_batch(index)
    files = tuple(File(f"{name}{s}", (folder / f"{name}{s}").stat().st_size, "") for s in (".bin", ".arrow"))
    return Shard(name, len(lengths), "", files, {"cell": cell, "tokens": int(lengths.sum())})


Case = tuple[Domains, dict[str, Supply]]


@pytest.fixture(scope="session")
def resolve_case() -> Callable[..., Case]:
    """`resolve_case({cell: tokens}, {domain: {...}}, columns=None, **spec)`: the resolved domains of a mixture of 100
    sequences of 10 tokens that is planned from a table, and what there is of each."""

    def resolve(
        cells: Mapping[str, int],
        domains: Mapping[str, Any],
        columns: Mapping[str, Mapping[str, str]] | None = None,
        **spec: Any,
    ) -> Case:
        base = {"mixture": "m", "cells": "cells.csv", "sequence_length": 10, "budget": 1000}
        table = CellTable(tuple(sorted(cells)), dict(cells), {k: dict(v) for k, v in (columns or {}).items()})
        resolved = resolve_domains(MixtureSpec.model_validate(base | {"domains": domains} | spec), table)
        return resolved, {n.name: Supply(1, sum(cells[c] for c in n.cells)) for n in resolved.leaves}

    return resolve


def _random_spec(seed: int, size: int) -> tuple[dict[str, int], dict[str, Any], list[dict[str, Any]]]:
    rng = Random(seed)

    def weight() -> str:
        return f"{rng.randint(1, 10)}e-{rng.randint(0, 9)}"

    cells = {f"s{i}": rng.randint(1, 10**12) for i in range(size)} | {"e0": 5, "e1": 7}
    domains: dict[str, Any] = {}
    for i in range(size):
        group = rng.randint(0, 20)
        member = {"cells": f"s{i}", "weight": weight()}
        if group < 5:
            domains.setdefault(f"g{group}", {"weight": weight(), "domains": {}})["domains"][f"d{i}"] = member
        else:
            domains[f"d{i}"] = member
    domains["cells"] = {"cells": "e?", "each": True, "weight": weight(), "weights": "uniform"}
    phases: list[dict[str, Any]] = [{"name": f"p{i}", "share": weight()} for i in range(rng.randint(0, 4))]
    for phase in phases[1:]:
        phase["weights"] = {n: weight() for n in domains if rng.random() < 0.7} or {"cells": "1"}
    return cells, domains, phases


@pytest.fixture(scope="session")
def random_spec() -> Callable[[int, int], tuple[dict[str, int], dict[str, Any], list[dict[str, Any]]]]:
    """`random_spec(seed, size)`: cells, so many domains (single, in groups, and one of `each`), and phases, with
    weights from 1e-9 to 1 that need `normalize`."""
    return _random_spec


class Inline:
    """An engine that runs tasks at once in this process."""

    def run(self, stage: str, log: str, tasks: Sequence[Task]) -> None:
        for task in tasks:
            task.work(task)


@pytest.fixture(scope="session")
def engine() -> Inline:
    return Inline()


@pytest.fixture(scope="session")
def workshop(tiny_build: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the build folder of `tiny_build`, where more is made of the same store. Copy it to damage something."""
    root = tmp_path_factory.mktemp("workshop") / "out"
    return Path(shutil.copytree(tiny_build.parents[2], root, symlinks=True))


@pytest.fixture(scope="session")
def parent(workshop: Path, tiny_build: Path) -> Path:
    """The manifest of `tiny_build` in the workshop: 2401 sequences of 64 tokens."""
    return workshop / tiny_build.relative_to(tiny_build.parents[2])


@pytest.fixture(scope="session")
def amend_by(tmp_path_factory: pytest.TempPathFactory, engine: Inline) -> Callable[..., Path]:
    """`amend_by(manifest, at, {domain: weight}, reason=..., **more)` amends with one phase of these weights."""

    def by(manifest: Path, at: int, weights: Mapping[str, str], reason: str = "a test", **more: Any) -> Path:
        file = tmp_path_factory.mktemp("phases") / "phases.yaml"
        phases = [{"name": "new", "share": "100%", "weights": dict(weights)}]
        file.write_text(yaml.safe_dump({"phases": phases, **more}), encoding="utf-8")
        return amend(manifest, at, file, reason, lambda: engine)

    return by


@pytest.fixture(scope="session")
def amended(parent: Path, amend_by: Callable[..., Path]) -> Path:
    """The parent amended at 1000, in its first phase: more docstrings, and sequences of 100 tokens."""
    return amend_by(parent, 1000, {"docstrings": "0.6", "manual": "0.4"}, "more docstrings", sequence_length=100)


@pytest.fixture(scope="session")
def amended_twice(amended: Path, amend_by: Callable[..., Path]) -> Path:
    """`amended` amended at 1500, in what it added: 40,000 tokens in sequences of 64, nearly all of them manual."""
    weights = {"docstrings": "0.1", "manual": "0.9"}
    return amend_by(amended, 1500, weights, "back again", sequence_length=64, budget=40_000)


@pytest.fixture(scope="session")
def virtual(
    workshop: Path, tmp_path_factory: pytest.TempPathFactory, write_specs: Callable[..., Path], engine: Inline
) -> Path:
    """The manifest of a virtual mixture: 937 sequences of the same store with another seed, no shards."""
    spec = write_specs(tmp_path_factory.mktemp("virtual"), mixture="virtual", seed=8, budget=60_000, validation="5%")
    path = Build(spec, workshop, workshop / "cache", lambda: engine).run(materialize=False)
    assert path is not None
    return path


@pytest.fixture(scope="session")
def ladder_specs(tmp_path_factory: pytest.TempPathFactory, write_specs: Callable[..., Path]) -> Path:
    """A spec of two phases with the rungs `small`, `middle` and `large`."""
    phases = [
        {"name": "early", "share": "75%"},
        {"name": "late", "share": "25%", "weights": {"manual": "0.25", "docstrings": "0.75"}},
    ]
    ladder = {"small": 6400, "middle": 25_600, "large": 90_000}
    return write_specs(tmp_path_factory.mktemp("ladder"), phases=phases, budget=153_700, validation="5%", ladder=ladder)


@pytest.fixture(scope="session")
def rungs(workshop: Path, ladder_specs: Path, engine: Inline) -> dict[str, Path]:
    """The manifests of the rungs of `ladder_specs`, by name."""
    job = Build(ladder_specs, workshop, workshop / "cache", lambda: engine)
    made = {name: job.run(rung=name) for name in ("small", "middle", "large")}
    return {name: path for name, path in made.items() if path is not None}
