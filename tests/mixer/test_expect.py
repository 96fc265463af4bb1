import copy
import json
from pathlib import Path
from typing import Any

import pytest

from mixer.expect import check_expectations, measured
from mixer.spec import MixtureSpec
from stages.errors import UserError


@pytest.fixture(scope="module")
def manifest(tiny_build: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(tiny_build.read_bytes())
    return loaded


def with_expectations(manifest: dict[str, Any], *entries: dict[str, str]) -> MixtureSpec:
    spec = copy.deepcopy(manifest["specs"]["mixture"]["spec"])
    return MixtureSpec.model_validate(spec | {"expect": list(entries)})


def subjects(manifest: dict[str, Any]) -> dict[tuple[str, str, str], float]:
    """Every fact, from the manifest's numbers by another way."""
    facts: dict[tuple[str, str, str], float] = {}
    for name, source in manifest["sources"].items():
        end = source["funnel"][-1]["kept"]
        facts["source", name, "documents"] = end["documents"]
        facts["source", name, "tokens"] = end["tokens"]
        facts["source", name, "kept"] = end["documents"] / source["funnel"][0]["kept"]["documents"]
    for name, domain in manifest["domains"].items():
        real = domain["realized"]
        facts["domain", name, "share"] = real["sequences"] / manifest["totals"]["sequences"]
        facts["domain", name, "sequences"] = real["sequences"]
        facts["domain", name, "tokens"] = real["sequences"] * manifest["totals"]["sequence_length"]
        facts["domain", name, "epochs"] = real["tokens"] / real["unique_tokens"]
    return facts


def test_every_fact_is_the_number_of_the_manifest(manifest: dict[str, Any]) -> None:
    found = subjects(manifest)
    assert len(found) == 17
    for (kind, name, fact), value in found.items():
        spec = with_expectations(manifest, {kind: name, fact: ">= 0"})
        assert float(measured(spec.expect[0], manifest)) == pytest.approx(value, rel=1e-12)
        assert value > 0


def test_bounds_at_the_number_and_beside_it(manifest: dict[str, Any]) -> None:
    for (kind, name, fact), value in subjects(manifest).items():
        low, high = f"{value * 0.999:.9f}", f"{value * 1.001:.9f}"
        holds = [f">= {low}", f"<= {high}", f"> {low}", f"< {high}", f"{value:.9f} +- {value / 100:.9f}"]
        check_expectations(
            with_expectations(manifest, *({kind: name, fact: bound} for bound in holds)).expect, manifest
        )
        for bound in (f"<= {low}", f">= {high}", f"{value * 1.1:.9f} +- {value / 100:.9f}"):
            with pytest.raises(UserError, match=f"expectation failed: {kind} {name}: {fact}"):
                check_expectations(with_expectations(manifest, {kind: name, fact: bound}).expect, manifest)


def test_all_that_fail_are_named_with_what_was_found(manifest: dict[str, Any]) -> None:
    spec = with_expectations(
        manifest,
        {"name": "half of it code", "domain": "docstrings", "share": "50% +- 1%"},
        {"domain": "manual", "share": ">= 10%"},
        {"source": "reference", "documents": "> 1K"},
    )
    with pytest.raises(UserError) as raised:
        check_expectations(spec.expect, manifest)
    documents = manifest["sources"]["reference"]["funnel"][-1]["kept"]["documents"]
    share = manifest["domains"]["docstrings"]["realized"]["sequences"] / manifest["totals"]["sequences"]
    assert str(raised.value).splitlines() == [
        f"expectation failed: half of it code: it is {share * 100:.4g}%",
        f"expectation failed: source reference: documents > 1K: it is {documents}",
    ]
