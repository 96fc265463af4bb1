"""Virtual mixtures, and the order of a mixture far from its start."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mixer.order
from mixer.build import Build
from mixer.domains import cells_of_corpus, resolve_domains
from mixer.mixture import Mixture, WriteOrder, open_mixture, order_recipe, run_of, segment_name
from mixer.order import CHECKPOINT_INTERVAL
from mixer.plan import Phase, Plan, Segment, Supply, plan_run
from mixer.reader import open as open_reader
from mixer.spec import MixtureSpec
from mixer.streams import Domain
from mixer.verify import verify
from mixer.writing import Writer
from stages.artifact import Artifact
from stages.corpus import CorpusSpec
from stages.errors import UserError
from stages.task import Task


def load(path: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(path.read_bytes())
    return manifest


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_a_virtual_mixture_has_a_manifest_without_shards_that_verifies(virtual: Path) -> None:
    manifest = load(virtual)
    assert manifest["materialized"] is False
    assert manifest["shards"] == []
    assert not list(virtual.parent.rglob("*.parquet"))
    assert sum(d["realized"]["sequences"] for d in manifest["domains"].values()) == 60_000 // 64
    assert all(d["validation"]["sequences"] > 0 for d in manifest["domains"].values())
    checked, wrong = verify(virtual)
    assert wrong == []
    assert "every number, from the rows" in checked


def test_a_virtual_mixture_is_read_from_the_store_and_written_later_unchanged(
    virtual: Path, workshop: Path, write_specs: Callable[..., Path], tmp_path: Path, engine: Any
) -> None:
    root = Path(shutil.copytree(workshop, tmp_path / "out", symlinks=True))
    path = root / virtual.relative_to(workshop)
    before = snapshot(path.parent)
    seen = open_reader(path)[:]
    spec = write_specs(tmp_path / "specs", mixture="virtual", seed=8, budget=60_000, validation="5%")
    written = Build(spec, root, root / "cache", lambda: engine).run()
    assert written is not None
    assert written.parent != path.parent
    assert snapshot(path.parent) == before
    manifest, virtual_manifest = load(written), load(path)
    assert manifest["materialized"] is True
    assert manifest["root"] != virtual_manifest["root"]
    assert manifest["domains"] == virtual_manifest["domains"]
    for source in ("store", "shards"):
        rows = open_reader(written, source)[:]
        assert np.array_equal(rows["input_ids"], seen["input_ids"])
        assert rows["domain"] == seen["domain"]
    assert verify(path)[1] == verify(written)[1] == []
    shutil.rmtree(written.parent)
    assert np.array_equal(open_reader(path)[5:9]["input_ids"], seen["input_ids"][5:9])


def test_verify_finds_a_virtual_mixture_with_other_numbers(virtual: Path, tmp_path: Path) -> None:
    manifest = load(virtual)
    manifest["domains"]["manual"]["realized"]["sequences"] += 1
    (tmp_path / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    assert any("domains.manual.realized.sequences" in line for line in verify(tmp_path)[1])


def test_the_run_of_a_manifest_is_the_run_that_was_planned(amended_twice: Path, parent: Path) -> None:
    for path in (parent, amended_twice):
        manifest = load(path)
        spec = MixtureSpec.model_validate(manifest["specs"]["mixture"]["spec"])
        corpus = CorpusSpec.model_validate(manifest["specs"]["corpus"]["spec"])
        supply = {d: Supply(1, record["available_tokens"]) for d, record in manifest["domains"].items()}
        planned = plan_run(resolve_domains(spec, cells_of_corpus(corpus)), supply)
        read = run_of(manifest)
        assert [(s.first, s.sequences, s.offsets, s.counts) for s in read.segments] == [
            (s.first, s.sequences, s.offsets, s.counts) for s in planned.segments
        ]
        assert [s.plan.phases for s in read.segments] == [s.plan.phases for s in planned.segments]


def test_a_mixture_without_its_artifacts_cannot_be_opened(virtual: Path, workshop: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(workshop, tmp_path / "out", symlinks=True))
    path = root / virtual.relative_to(workshop)
    open_mixture(path.parent)
    for stage in ("order", "stream", "store"):
        record = next(r for r in load(path)["stages"] if r["stage"] == stage)
        (root / record["folder"]).rename(root / "away")
        with pytest.raises(UserError, match=f"{record['folder']}: the artifact is not here; build again in the folder"):
            open_mixture(path)
        (root / "away").rename(root / record["folder"])


def far_plan() -> Plan:
    """One phase of some 400,000 sequences of 12 domains whose counts have no common divisor."""
    counts = {f"d{i:02d}": 1 + 6007 * i for i in range(12)}
    phase = Phase("main", sum(counts.values()), {}, {}, counts)
    return Plan(64, (phase,), 64 * phase.sequences)


def test_a_position_far_away_is_found_from_a_checkpoint(tmp_path: Path, engine: Any, monkeypatch: Any) -> None:
    plan = far_plan()
    segment = Segment(plan, 0, plan.sequences, dict.fromkeys(plan.domains, 0))
    recipe = order_recipe("far", plan.domains, [segment])
    work = WriteOrder(tmp_path / recipe.folder, plan)
    orders = Writer(tmp_path, lambda: engine).make(recipe, [Task(segment_name(0), work, 0, 0)])
    domains = tuple(Domain(d, (d,)) for d in plan.domains)
    nowhere = Artifact(tmp_path, "", {}, (), {})
    mixture = Mixture(domains, (segment,), "<u2", nowhere, {}, orders)
    replayed: list[int] = []
    advance = mixer.order.advance

    def counting(state: Any, at: int, out: np.ndarray) -> int:
        replayed.append(len(out))
        return int(advance(state, at, out))

    everything = plan.order().domains(0, plan.sequences)
    monkeypatch.setattr(mixer.order, "advance", counting)
    for position in (plan.sequences - 1, 300_001, 12):
        domain, place = mixture.order(0).locate(position)
        assert domain == everything[position]
        assert place == np.count_nonzero(everything[:position] == domain)
        assert 0 < sum(replayed) <= CHECKPOINT_INTERVAL + 1
        replayed.clear()
    plan.order().locate(plan.sequences - 1)
    assert sum(replayed) > 300_000


def test_checkpoints_of_another_order_are_refused(parent: Path, workshop: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(workshop, tmp_path / "out", symlinks=True))
    mixture, _ = open_mixture(root / parent.relative_to(workshop))
    path = next(iter(mixture.orders.folder.rglob("*.npy")))
    checkpoints = np.load(path)
    np.save(path, checkpoints ^ np.uint8(1))
    with pytest.raises(UserError, match="checkpoints of the order: they are damaged or not those of this plan"):
        mixture.order(0)


def test_begins_count_from_the_offset_of_the_segment(amended_twice: Path) -> None:
    mixture, manifest = open_mixture(amended_twice)
    assert mixture.sequences == manifest["totals"]["sequences"]
    for number, record in enumerate(manifest["segments"]):
        begins = mixture.begins(number, np.array([0, 1, 1]), np.array([0, 0, 3]))
        offsets = [record["offsets"][name] for name in mixture.names]
        assert begins.tolist() == [offsets[0], offsets[1], offsets[1] + 3 * record["sequence_length"]]
