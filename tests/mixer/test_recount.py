import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from mixer.recount import recount_cells, recount_funnel, recount_shard, recount_supply
from stages.artifact import Artifact, parse_artifact


def without_numbers(value: Any) -> Any:
    """Counters with every number 0: a count of rows must not need them."""
    if isinstance(value, dict):
        return {k: without_numbers(v) for k, v in value.items()}
    return 0 if isinstance(value, int) else value


@pytest.fixture(scope="module")
def manifest(tiny_build: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(tiny_build.read_bytes())
    return loaded


@pytest.fixture(scope="module")
def artifacts(tiny_build: Path, manifest: dict[str, Any]) -> dict[tuple[str, str], Artifact]:
    """Every artifact by stage and name, its counters' numbers taken away."""
    found = {}
    for record in manifest["stages"]:
        folder = tiny_build.parents[2] / record["folder"]
        made = parse_artifact(folder, json.loads((folder / "artifact.json").read_bytes()))
        shards = tuple(replace(s, counters=without_numbers(s.counters)) for s in made.shards)
        found[record["stage"], record["name"]] = replace(made, shards=shards, counters={})
    return found


def test_funnels(manifest: dict[str, Any], artifacts: dict[tuple[str, str], Artifact]) -> None:
    over_all = {stage: artifacts[stage, "tiny"] for stage in ("exact_duplicates", "near_duplicates")}
    for name, source in manifest["sources"].items():
        own = {stage: artifacts[stage, name] for stage in ("ingest", "filters", "tokenize")}
        assert recount_funnel(name, own | over_all) == source["funnel"]
    dropped = {
        c for s in manifest["sources"].values() for f in s["funnel"] for c, n in f["dropped"].items() if n["documents"]
    }
    assert {"exact_duplicates", "invalid_json", "missing_text", "length.too_few_words"} <= dropped


def test_cells(manifest: dict[str, Any], artifacts: dict[tuple[str, str], Artifact]) -> None:
    assert recount_cells(artifacts["store", "tiny"]) == manifest["cells"]


def test_supply(manifest: dict[str, Any], artifacts: dict[tuple[str, str], Artifact]) -> None:
    store = artifacts["store", "tiny"]
    for domain in manifest["domains"].values():
        found = recount_supply(store, domain["cells"], Fraction(manifest["totals"]["validation"]))
        assert found == {
            "documents": domain["realized"]["documents"],
            "tokens": domain["realized"]["unique_tokens"],
            "validation_documents": domain["validation"]["documents"],
            "validation_tokens": domain["validation"]["tokens"],
        }
        assert all(found.values())


def test_shards(tiny_build: Path, manifest: dict[str, Any]) -> None:
    for shard in manifest["shards"]:
        rows, domains, first = recount_shard(tiny_build.parent / shard["path"])
        assert (rows, domains) == (shard["sequences"], shard["domains"])
        assert first == 0
