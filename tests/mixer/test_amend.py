"""Amending: the past stays byte for byte, domains go on where they stopped, and the log tells what was done."""

import json
import shutil
from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from mixer.amend import amend, distance
from mixer.build import Build
from mixer.cells import CellTable
from mixer.domains import Domains, resolve_domains
from mixer.manifest import root_digest
from mixer.mixture import open_mixture
from mixer.plan import Supply, plan_run
from mixer.reader import open as open_reader
from mixer.spec import MixtureSpec
from mixer.verify import verify
from stages.errors import UserError
from stages.recipe import digest_of

Amend = Callable[..., Path]
EVEN = {"docstrings": "0.5", "manual": "0.5"}


def load(path: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(path.read_bytes())
    return manifest


def sequences(path: Path, source: str, stop: int) -> tuple[list[bytes], list[str]]:
    """Bytes and domains of the first sequences of a run."""
    data = open_reader(path, source)  # type: ignore[arg-type]
    firsts = [s["first"] for s in data.manifest["segments"]]
    parts = [data[i:j] for i, j in pairwise([*(i for i in firsts if i < stop), stop])]
    return [r.tobytes() for p in parts for r in p["input_ids"]], [d for p in parts for d in p["domain"]]


def shard_rows(path: Path) -> list[dict[str, Any]]:
    """Everything that the training shards of a manifest hold, in order."""
    shards = [s for s in load(path)["shards"] if s["split"] == "train"]
    return [row for s in shards for row in pq.read_table(path.parent / s["path"]).to_pylist()]


@pytest.mark.parametrize("source", ["store", "shards"])
def test_what_came_before_stays_byte_for_byte(source: str, parent: Path, amended: Path, amended_twice: Path) -> None:
    assert sequences(amended, source, 1000) == sequences(parent, source, 1000)
    assert sequences(amended_twice, source, 1500) == sequences(amended, source, 1500)


def test_rows_of_the_shards_stay_and_so_do_their_pieces(parent: Path, amended: Path, amended_twice: Path) -> None:
    old, new, newest = shard_rows(parent), shard_rows(amended), shard_rows(amended_twice)
    assert new[:1000] == old[:1000]
    assert newest[:1500] == new[:1500]
    assert new[1000:1100] != old[1000:1100]
    assert [r["position"] for r in newest] == list(range(len(newest)))


def test_the_new_length_and_budget_hold_from_the_position_on(amended: Path, amended_twice: Path) -> None:
    """153,700 - 64,000 tokens are 897 sequences of 100; then 40,000 tokens are 625 sequences of 64."""
    manifest = load(amended)
    assert [(s["first"], s["sequences"], s["sequence_length"]) for s in manifest["segments"]] == [
        (0, 1000, 64),
        (1000, 897, 100),
    ]
    assert (manifest["totals"]["budget"], manifest["totals"]["unused_tokens"]) == (153_700, 0)
    manifest = load(amended_twice)
    assert [(s["first"], s["sequences"], s["sequence_length"]) for s in manifest["segments"]] == [
        (0, 1000, 64),
        (1000, 500, 100),
        (1500, 625, 64),
    ]
    assert manifest["totals"]["tokens"] == 64_000 + 50_000 + 40_000
    assert {len(r["input_ids"]) for r in shard_rows(amended_twice)[1500:]} == {64}
    assert [(p["segment"], p["name"], p["sequences"], p["planned"]) for p in manifest["phases"]] == [
        (0, "early", 1000, 1801),
        (0, "late", 0, 600),
        (1, "new", 500, 897),
        (2, "new", 625, 625),
    ]


def test_the_shares_are_those_of_the_new_phases(amended: Path) -> None:
    counts = [r["domain"] for r in shard_rows(amended)[1000:]]
    assert counts.count("docstrings") == round(897 * 0.6)


@pytest.mark.parametrize("domain", ["docstrings", "manual"])
def test_a_domain_goes_on_in_its_stream_without_gap_or_overlap(domain: str, amended_twice: Path) -> None:
    mixture, manifest = open_mixture(amended_twice)
    stream = mixture.open(next(d for d in mixture.domains if d.name == domain), "train")
    tokens = []
    for part, row in stream.docs.tolist():
        begin = stream.parts[part].offset[row]
        tokens.append(stream.parts[part].tokens[begin : begin + stream.parts[part].length[row]])
    data = open_reader(amended_twice)
    drawn = np.concatenate([r["input_ids"] for r in data if r["domain"] == domain])
    assert len(drawn) == manifest["domains"][domain]["realized"]["tokens"]
    assert np.array_equal(drawn, np.concatenate(tokens)[: len(drawn)])


def test_the_log_tells_parent_position_reason_and_distance(parent: Path, amended: Path, amended_twice: Path) -> None:
    """The parent plans 1401 sequences of 64 from 1000 on; the amendment 538 of docstrings and 359 of manual."""
    old, new = load(parent), load(amended)
    assert old["log"] == []
    (entry,) = new["log"]
    assert {k: entry[k] for k in ("parent", "at", "reason")} == {
        "parent": old["root"],
        "at": 1000,
        "reason": "more docstrings",
    }
    before = sequences(parent, "shards", 2401)[1][1000:].count("docstrings")
    assert Fraction(entry["distance"]) == abs(Fraction(538, 897) - Fraction(before, 1401))
    first, second = load(amended_twice)["log"]
    assert first == entry
    assert (second["parent"], second["at"], second["reason"]) == (new["root"], 1500, "back again")


def weighed(**weights: str) -> dict[str, Any]:
    return {name: {"cells": name, "weight": weight} for name, weight in weights.items()}


def change(at: int, weights: Mapping[str, str], **more: Any) -> dict[str, Any]:
    phases = [{"name": "new", "share": "1", "weights": dict(weights)}]
    return {"at": at, "phases": phases, "reason": "a test", "parent": "0" * 64, **more}


@pytest.mark.parametrize(
    ("at", "weights", "expected"),
    [(50, {"a": "0.2", "b": "0.8"}, "1/2"), (50, {"a": "0.7", "b": "0.3"}, "0"), (90, {"a": "1"}, "3/10")],
)
def test_a_distance_by_hand(
    at: int, weights: dict[str, str], expected: str, resolve_case: Callable[..., tuple[Domains, dict[str, Supply]]]
) -> None:
    """Half of |0.7 - 0.2| + |0.3 - 0.8|, and so on: the part of the tokens that changes its domain."""
    domains, supply = resolve_case(dict.fromkeys("ab", 10**9), weighed(a="0.7", b="0.3"))
    spec = MixtureSpec.model_validate(domains.spec.model_dump(mode="json") | {"amendments": [change(at, weights)]})
    new = plan_run(resolve_domains(spec, CellTable(("a", "b"), dict.fromkeys("ab", 10**9), {})), supply)
    assert distance(plan_run(domains, supply), new) == Fraction(expected)


def test_an_amendment_inside_an_earlier_segment(parent: Path, amended: Path, amend_by: Amend) -> None:
    """What the first amendment planned is gone; its budget and its place in the log are not."""
    path = amend_by(amended, 400, {"docstrings": "0.2", "manual": "0.8"}, "earlier")
    manifest = load(path)
    assert [(s["first"], s["sequences"], s["sequence_length"]) for s in manifest["segments"]] == [
        (0, 400, 64),
        (400, (153_700 - 400 * 64) // 64, 64),
    ]
    assert sequences(path, "store", 400) == sequences(parent, "store", 400)
    assert [entry["at"] for entry in manifest["log"]] == [1000, 400]
    assert verify(path)[1] == []


def test_amending_at_the_seam_replaces_what_follows(amended: Path, amend_by: Amend) -> None:
    path = amend_by(amended, 1000, EVEN, "instead")
    manifest = load(path)
    assert [(s["first"], s["sequence_length"]) for s in manifest["segments"]] == [(0, 64), (1000, 64)]
    assert verify(path)[1] == []


@pytest.mark.parametrize("at", [0, 2401, 2402, 10**9])
def test_positions_outside_the_run_are_refused(at: int, parent: Path, amend_by: Amend) -> None:
    with pytest.raises(UserError, match=r"cannot amend at sequence|greater than or equal to 1"):
        amend_by(parent, at, EVEN)


def test_the_last_position_can_be_amended(parent: Path, amend_by: Amend) -> None:
    path = amend_by(parent, 2400, {"docstrings": "0", "manual": "1"}, "the last one")
    assert load(path)["segments"][1]["sequences"] == 1
    assert verify(path)[1] == []


def test_caps_hold_over_the_whole_run(parent: Path, amend_by: Amend) -> None:
    """39,702 unique tokens of docstrings, four passes at most."""
    with pytest.raises(UserError, match=r"domain docstrings: needs \d+ tokens and has 39702, that is .* over its"):
        amend_by(parent, 100, {"docstrings": "1", "manual": "0"}, budget=158_000)


def test_verify_passes_and_recounts_everything(amended: Path, amended_twice: Path) -> None:
    for path in (amended, amended_twice):
        checked, wrong = verify(path)
        assert wrong == []
        assert "every number, from the rows" in checked


@pytest.mark.parametrize(
    ("key", "value"), [("reason", "another"), ("distance", "0"), ("parent", "f" * 64), ("at", 999), ("all", [])]
)
def test_verify_finds_a_log_that_was_changed(key: str, value: Any, amended_twice: Path, tmp_path: Path) -> None:
    manifest = load(amended_twice)
    if key == "all":
        manifest["log"] = []
    else:
        manifest["log"][0][key] = value
    folder = Path(shutil.copytree(amended_twice.parent, tmp_path / "copy"))
    for resealed in (False, True):
        if resealed:
            manifest["root"] = root_digest(manifest)
        (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        wrong = verify(folder)[1]
        assert any(line.startswith("manifest: log") for line in wrong)
        assert resealed != any("its numbers hash to" in line for line in wrong)


def test_verify_finds_an_amendment_that_was_changed(amended: Path, tmp_path: Path) -> None:
    """The spec in the manifest, its digest and the root changed together: the recipe tells."""
    manifest = load(amended)
    spec = manifest["specs"]["mixture"]
    spec["spec"]["amendments"][0]["reason"] = manifest["log"][0]["reason"] = "another"
    spec["digest"] = digest_of(spec["spec"])
    manifest["root"] = root_digest(manifest)
    folder = Path(shutil.copytree(amended.parent, tmp_path / "copy"))
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    assert any("stages" in line and "digest" in line for line in verify(folder)[1])


def test_two_amendments_of_one_manifest_do_not_disturb_each_other(parent: Path, amend_by: Amend) -> None:
    before = parent.read_bytes()
    one = amend_by(parent, 1200, EVEN, "one")
    kept = one.read_bytes()
    other = amend_by(parent, 1200, EVEN, "other")
    third = amend_by(parent, 1300, EVEN, "third")
    assert len({one, other, third, parent}) == 4
    assert (one.read_bytes(), parent.read_bytes()) == (kept, before)
    assert load(one)["shards"] == load(other)["shards"]
    for path in (one, other, third, parent):
        assert verify(path)[1] == []
    assert amend_by(parent, 1200, EVEN, "one") == one
    assert one.read_bytes() == kept


def test_an_amendment_over_another_keeps_apart_from_a_direct_one(parent: Path, amended: Path, amend_by: Amend) -> None:
    """Both lead to the same integers, by other ways."""
    direct, around = amend_by(parent, 700, EVEN, "same"), amend_by(amended, 700, EVEN, "same")
    assert load(direct)["segments"] == load(around)["segments"]
    assert direct != around
    assert len(load(direct)["log"]) == 1
    assert len(load(around)["log"]) == 2
    assert verify(direct)[1] == verify(around)[1] == []


def test_the_spec_in_an_amended_manifest_builds_it_again(
    amended_twice: Path, tiny_specs: Path, workshop: Path, tmp_path: Path, engine: Any
) -> None:
    content = load(amended_twice)["specs"]["mixture"]["spec"]
    shutil.copy(tiny_specs.parent / "corpus.yaml", tmp_path / "corpus.yaml")
    (tmp_path / "again.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    shutil.copytree(workshop, tmp_path / "out", symlinks=True)
    shutil.rmtree(tmp_path / "out" / "mixture")
    path = Build(tmp_path / "again.yaml", tmp_path / "out", tmp_path / "cache", lambda: engine).run()
    assert path is not None
    assert load(path) == load(amended_twice)
    assert path.parent.name == amended_twice.parent.name


def test_rungs_and_samples_are_not_amended(rungs: dict[str, Path], amend_by: Amend) -> None:
    with pytest.raises(UserError, match="is a rung or a sample; amend the full run"):
        amend_by(rungs["small"], 10, EVEN)


def test_a_virtual_run_is_amended_virtually(virtual: Path, amend_by: Amend) -> None:
    path = amend_by(virtual, 300, EVEN, "virtual", sequence_length=32)
    assert load(path)["materialized"] is False
    assert load(path)["shards"] == []
    assert verify(path)[1] == []
    assert sequences(path, "store", 300) == sequences(virtual, "store", 300)
    assert open_reader(path)[300]["input_ids"].shape == (32,)


def test_validation_follows_the_new_length(parent: Path, amended: Path) -> None:
    def held(path: Path) -> dict[str, pa.Table]:
        shards = [s for s in load(path)["shards"] if s["split"] == "validation"]
        return {s["path"]: pq.read_table(path.parent / s["path"]) for s in shards}

    old, new = held(parent), held(amended)
    assert old.keys() == new.keys()
    for name, table in new.items():
        assert table.schema.field("input_ids").type.list_size == 100
        tokens, before = (t.column("input_ids").combine_chunks().flatten().to_pylist() for t in (table, old[name]))
        both = min(len(tokens), len(before))
        assert both > 0
        assert tokens[:both] == before[:both]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("phases: [{name: n, share: 1, weights: {nothing: 1}}]", "which is no domain at the top"),
        ("phases: [{name: n, share: 0.5}]", "the shares of the phases sum to 0.5, not 1"),
        ("phases: [{name: n, share: 1}]\nbudget: 63", "63 tokens are less than one sequence of 64"),
        ("phases: []", "phases.yaml:1: phases"),
        ("phases: [{name: n, share: 1}]\nseed: 3", "phases.yaml:2: seed: unknown key"),
    ],
)
def test_phases_that_cannot_be_are_refused_with_their_place(
    content: str, words: str, parent: Path, tmp_path: Path, engine: Any
) -> None:
    (tmp_path / "phases.yaml").write_text(content, encoding="utf-8")
    before = sorted(p.name for p in parent.parent.parent.iterdir())
    with pytest.raises(UserError) as raised:
        amend(parent, 10, tmp_path / "phases.yaml", "a test", lambda: engine)
    assert words in str(raised.value)
    assert sorted(p.name for p in parent.parent.parent.iterdir()) == before


def test_weights_of_an_amendment_from_a_file(parent: Path, tmp_path: Path, engine: Any) -> None:
    (tmp_path / "w.csv").write_text("cell,weight\ndocstrings,0.25\nmanual,0.75\n", encoding="utf-8")
    (tmp_path / "p.yaml").write_text("phases: [{name: n, share: 1, weights: {csv: w.csv}}]", encoding="utf-8")
    path = amend(parent, 2000, tmp_path / "p.yaml", "from a file", lambda: engine)
    (tmp_path / "w.csv").unlink()
    assert load(path)["phases"][-1]["domains"]["docstrings"]["asked"] == "1/4"
    assert verify(path)[1] == []
