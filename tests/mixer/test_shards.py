import json
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import mixer.shards
from mixer.build import Build, load_mixture
from mixer.mixture import run_of
from mixer.plan import plan_run
from mixer.streams import VALIDATION_KEY
from stages.artifact import parse_artifact
from stages.kernels.xxh3 import key, keyed_hash
from stages.store import open_part

Rows = list[dict[str, Any]]


def read_shards(folder: Path, manifest: dict[str, Any], split: str) -> Rows:
    paths = [folder / s["path"] for s in manifest["shards"] if s["split"] == split]
    return [row for path in paths for row in pq.read_table(path).to_pylist()]


@pytest.fixture(scope="module")
def manifest(tiny_build: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(tiny_build.read_bytes())
    return loaded


@pytest.fixture(scope="module")
def train(tiny_build: Path, manifest: dict[str, Any]) -> Rows:
    return read_shards(tiny_build.parent, manifest, "train")


@pytest.fixture(scope="module")
def validation(tiny_build: Path, manifest: dict[str, Any]) -> Rows:
    return read_shards(tiny_build.parent, manifest, "validation")


@pytest.fixture(scope="module")
def store(tiny_build: Path, manifest: dict[str, Any]) -> dict[str, dict[str, list[int]]]:
    """Cell -> id -> tokens, as plain data."""
    record = next(s for s in manifest["stages"] if s["stage"] == "store")
    folder = tiny_build.parents[2] / record["folder"]
    artifact = parse_artifact(folder, json.loads((folder / "artifact.json").read_bytes()))
    cells: dict[str, dict[str, list[int]]] = {}
    for shard in artifact.shards:
        part = open_part(artifact, shard)
        for row in part.index.to_pylist():
            tokens = part.tokens[row["offset"] : row["offset"] + row["length"]].tolist()
            cells.setdefault(shard.counters["cell"], {})[row["id"].hex()] = tokens
    return cells


def hashes(ids: list[str], secret: int) -> list[int]:
    hi, lo = (np.array([int(i[k : k + 16], 16) for i in ids], np.uint64) for k in (0, 16))
    return [int(h) for h in keyed_hash(hi, lo, secret)]


def held(ids: list[str], share: Fraction) -> set[str]:
    return {i for i, h in zip(ids, hashes(ids, VALIDATION_KEY), strict=True) if h < share * 2**64}


def stream(docs: dict[str, list[int]], name: str, seed: int, share: Fraction, tokens: int) -> list[tuple[str, int]]:
    """At least so many tokens of a domain's stream in plain Python: (id, place in the document) of each."""
    ids = sorted(docs.keys() - held(sorted(docs), share))
    found: list[tuple[str, int]] = []
    epoch = 0
    while len(found) < tokens:
        by_hash = sorted(zip(hashes(ids, key("epoch", seed, name, epoch)), ids, strict=True))
        found += [(i, k) for _, i in by_hash for k in range(len(docs[i]))]
        epoch += 1
    return found


def check_rows(rows: Rows, docs: dict[str, list[int]], expected: list[tuple[str, int]], length: int) -> None:
    for number, row in enumerate(rows):
        span = expected[number * length : (number + 1) * length]
        assert row["input_ids"] == [docs[i][k] for i, k in span]
        assert [(p["id"], k) for p in row["pieces"] for k in range(p["start"], p["end"])] == span
        assert all(p["start"] < p["end"] for p in row["pieces"])


def test_training_sequences_are_those_of_the_definition(
    train: Rows, store: dict[str, dict[str, list[int]]], manifest: dict[str, Any]
) -> None:
    length = manifest["totals"]["sequence_length"]
    share = Fraction(manifest["totals"]["validation"])
    assert [row["position"] for row in train] == list(range(manifest["totals"]["sequences"]))
    for name, domain in manifest["domains"].items():
        docs = {i: t for cell in domain["cells"] for i, t in store[cell].items()}
        rows = [row for row in train if row["domain"] == name]
        assert len(rows) == domain["realized"]["sequences"] > 0
        check_rows(rows, docs, stream(docs, name, 7, share, len(rows) * length), length)


def test_the_build_has_what_the_tests_need(manifest: dict[str, Any], train: Rows) -> None:
    """More than one epoch, documents over several sequences, several documents in one."""
    assert Fraction(manifest["domains"]["docstrings"]["realized"]["epochs"]) > 1
    assert any(len(row["pieces"]) == 1 for row in train)
    assert any(len(row["pieces"]) > 3 for row in train)
    assert len(manifest["phases"]) == 2


def test_validation_sequences_are_the_held_out_documents_in_id_order(
    train: Rows, validation: Rows, store: dict[str, dict[str, list[int]]], manifest: dict[str, Any]
) -> None:
    length = manifest["totals"]["sequence_length"]
    share = Fraction(manifest["totals"]["validation"])
    for name, domain in manifest["domains"].items():
        docs = {i: t for cell in domain["cells"] for i, t in store[cell].items()}
        out = sorted(held(sorted(docs), share))
        tokens = [(i, k) for i in out for k in range(len(docs[i]))]
        rows = [row for row in validation if row["domain"] == name]
        assert len(rows) == len(tokens) // length == domain["validation"]["sequences"] > 0
        assert domain["validation"]["tail_tokens"] == len(tokens) % length
        assert [row["position"] for row in rows] == list(range(len(rows)))
        check_rows(rows, docs, tokens, length)
        assert not {p["id"] for row in train for p in row["pieces"]} & set(out)


def test_every_training_document_is_in_its_epoch_once_before_any_comes_again(
    train: Rows, store: dict[str, dict[str, list[int]]]
) -> None:
    rows = [row for row in train if row["domain"] == "docstrings"]
    seen: dict[tuple[str, int], int] = {}
    for row in rows:
        for piece in row["pieces"]:
            for k in range(piece["start"], piece["end"]):
                seen[piece["id"], k] = seen.get((piece["id"], k), 0) + 1
    assert max(seen.values()) - min(seen.values()) <= 1
    tokens = {i: len(t) for i, t in store["docstrings"].items()}
    assert len(seen) == sum(tokens[i] for i in {i for i, _ in seen})


def test_at_every_prefix_of_a_phase_every_domain_is_within_one_sequence_of_its_target(
    train: Rows, manifest: dict[str, Any]
) -> None:
    for phase in manifest["phases"]:
        rows = train[phase["first"] : phase["first"] + phase["sequences"]]
        for name, domain in phase["domains"].items():
            got = 0
            for t, row in enumerate(rows, 1):
                got += row["domain"] == name
                assert abs(got - Fraction(domain["sequences"] * t, phase["sequences"])) < 1
            assert got == domain["sequences"]


def test_the_integers_are_those_of_the_plan(tiny_specs: Path, manifest: dict[str, Any]) -> None:
    run = plan_run(load_mixture(tiny_specs)[0], None)
    (planned,), (read,) = run.segments, run_of(manifest).segments
    assert (read.plan.phases, read.plan.sequence_length) == (planned.plan.phases, planned.plan.sequence_length)
    assert (read.first, read.sequences, read.offsets) == (planned.first, planned.sequences, planned.offsets)
    assert run.budget - run.tokens == manifest["totals"]["unused_tokens"]
    assert [(p["name"], p["sequences"]) for p in manifest["phases"]] == [("early", 1801), ("late", 600)]
    assert {n: d["sequences"] for n, d in manifest["phases"][1]["domains"].items()} == {
        "docstrings": 450,
        "manual": 150,
    }
    assert run.sequences == 2401


def test_datasets_reads_the_shards_offline(
    tiny_build: Path, manifest: dict[str, Any], train: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    files = {
        s: [str(tiny_build.parent / f["path"]) for f in manifest["shards"] if f["split"] == s]
        for s in ("train", "validation")
    }
    loaded = datasets.load_dataset("parquet", data_files=files, cache_dir=str(tmp_path))
    domains = manifest["domains"].values()
    assert loaded["train"].num_rows == manifest["totals"]["sequences"]
    assert loaded["validation"].num_rows == sum(d["validation"]["sequences"] for d in domains)
    assert loaded["train"][5] == train[5]
    assert loaded["train"].features["input_ids"].length == 64
    streamed = datasets.load_dataset("parquet", data_files=files, streaming=True)
    assert next(iter(streamed["train"])) == train[0]


def test_smaller_shards_and_row_groups_hold_the_same_rows(
    tiny_build: Path,
    tiny_specs: Path,
    build_mixture: Callable[..., Path],
    train: Rows,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = shutil.copytree(tiny_build.parents[2], tmp_path / "build", symlinks=True)
    monkeypatch.setattr(mixer.shards, "SHARD_BYTES", 64 * 2 * 500)
    monkeypatch.setattr(mixer.shards, "GROUP_BYTES", 64 * 2 * 33)
    made: list[str] = []
    path = build_mixture(tiny_specs, root, made=made)
    manifest = json.loads(path.read_bytes())
    assert made == ["mixture"]
    shards = [s for s in manifest["shards"] if s["split"] == "train"]
    assert [(s["first"], s["sequences"]) for s in shards] == [
        (0, 500),
        (500, 500),
        (1000, 500),
        (1500, 500),
        (2000, 401),
    ]
    assert read_shards(path.parent, manifest, "train") == train
    for shard in shards:
        rows = train[shard["first"] : shard["first"] + shard["sequences"]]
        assert shard["domains"] == {n: sum(r["domain"] == n for r in rows) for n in ("docstrings", "manual")}


def test_a_domain_with_several_epochs_in_one_sequence(
    tiny_build: Path,
    write_specs: Callable[..., Path],
    build_mixture: Callable[..., Path],
    store: dict[str, dict[str, list[int]]],
    tmp_path: Path,
) -> None:
    """One sequence longer than all documents of its domain together."""
    root = shutil.copytree(tiny_build.parents[2], tmp_path / "build", symlinks=True)
    tokens = sum(len(t) for t in store["reference"].values())
    length = 2 * tokens + tokens // 3
    domains = {"manual": None, "docstrings": None, "tiny": {"cells": ["reference"], "weight": "1"}}
    spec = write_specs(
        tmp_path, domains=domains, sequence_length=length, budget=2 * length, validation="0", max_epochs="5"
    )
    path = build_mixture(spec, root)
    manifest = json.loads(path.read_bytes())
    rows = read_shards(path.parent, manifest, "train")
    expected = stream(store["reference"], "tiny", 7, Fraction(0), 2 * length)
    assert len(rows) == 2
    assert len({p["id"] for p in rows[0]["pieces"]}) < len(rows[0]["pieces"])
    check_rows(rows, store["reference"], expected, length)
    assert read_shards(path.parent, manifest, "validation") == []
    assert manifest["domains"]["tiny"]["validation"] == {
        "documents": 0,
        "tokens": 0,
        "sequences": 0,
        "tail_tokens": 0,
    }


def test_a_plan_that_the_store_cannot_feed_is_refused(
    tiny_build: Path, write_specs: Callable[..., Path], build_mixture: Callable[..., Path], tmp_path: Path
) -> None:
    from stages.errors import UserError

    root = shutil.copytree(tiny_build.parents[2], tmp_path / "build", symlinks=True)
    with pytest.raises(UserError, match="domain docstrings: needs .* over its max_epochs of 0.25"):
        build_mixture(write_specs(tmp_path, domains={"docstrings": {"max_epochs": "0.25"}}), root)


def test_a_build_knows_its_supply_before_the_mixture_is_there(tiny_build: Path, tiny_specs: Path) -> None:
    def no_engine() -> Any:
        raise AssertionError("nothing is to be run")

    root = tiny_build.parents[2]
    supply = Build(tiny_specs, root, root / "cache", no_engine).supply()
    manifest = json.loads(tiny_build.read_bytes())
    assert supply is not None
    for name, domain in manifest["domains"].items():
        assert supply[name].tokens == domain["realized"]["unique_tokens"]
        assert supply[name].validation_tokens == domain["validation"]["tokens"]
