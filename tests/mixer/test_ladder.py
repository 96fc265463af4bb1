"""The ladder: smaller runs that repeat every domain as the full run does, from prefixes of the same pools."""

import json
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixer.build import Build
from mixer.domains import Domains
from mixer.ladder import Rung, climb
from mixer.manifest import root_digest
from mixer.mixture import open_mixture
from mixer.plan import Supply, plan_run
from mixer.reader import open as open_reader
from mixer.verify import verify
from stages.errors import UserError

Resolve = Callable[..., tuple[Domains, dict[str, Supply]]]
PHASES = [
    {"name": "early", "share": "80%"},
    {"name": "late", "share": "20%", "weights": {"code": "0.9", "law": "0.05", "web": "0.05"}},
]


def weighed(**weights: str) -> dict[str, Any]:
    return {name: {"cells": name, "weight": weight} for name, weight in weights.items()}


def test_a_rung_by_hand(resolve_case: Resolve) -> None:
    """The full run has 100 sequences: 80 of 8, 24, 48 (code, law, web) and 20 of 18, 1, 1. A rung of 25 has 20 and 5:
    2, 6, 12 and 4.5, 0.25, 0.25, so 5, 0, 0. Pools are unique * rung / full, rounded up: 7/26, 6/25 and 12/49."""
    cells = {"code": 1000, "law": 1001, "web": 4900}
    domains, supply = resolve_case(cells, weighed(code="0.1", law="0.3", web="0.6"), phases=PHASES, ladder={"s": 250})
    full = plan_run(domains, supply)
    (rung,) = climb(domains.spec, full, supply)
    assert [dict(p.planned) for p in full.segments[0].plan.phases] == [
        {"code": 8, "law": 24, "web": 48},
        {"code": 18, "law": 1, "web": 1},
    ]
    assert [dict(p.planned) for p in rung.run.segments[0].plan.phases] == [
        {"code": 2, "law": 6, "web": 12},
        {"code": 5, "law": 0, "web": 0},
    ]
    assert rung.pools == {"code": 270, "law": 241, "web": 1200}
    (unknown,) = climb(domains.spec, full, None)
    assert unknown.pools is None
    assert unknown.run == rung.run


def test_a_domain_that_rounding_leaves_out_gets_one_sequence(resolve_case: Resolve) -> None:
    """Quotas of 10: 0.1, 0.9, 9; law has the larger remainder, and web gives one up for code."""
    cells = dict.fromkeys(("code", "law", "web"), 10**6)
    domains, supply = resolve_case(cells, weighed(code="0.01", law="0.09", web="0.9"), ladder={"s": 100, "t": 30})
    small, large = climb(domains.spec, plan_run(domains, supply), supply)
    assert (small.name, dict(small.run.segments[0].counts)) == ("t", {"code": 1, "law": 1, "web": 1})
    assert (large.name, dict(large.run.segments[0].counts)) == ("s", {"code": 1, "law": 1, "web": 8})


def test_a_rung_without_room_for_every_domain_is_refused(resolve_case: Resolve) -> None:
    cells = dict.fromkeys(("code", "law", "web"), 10**6)
    domains, supply = resolve_case(cells, weighed(code="0.01", law="0.09", web="0.9"), ladder={"s": 20})
    with pytest.raises(UserError, match="rung s has 2 sequences, too few for one of each of its 3 domains"):
        climb(domains.spec, plan_run(domains, supply), supply)


def test_a_domain_without_weight_does_not_need_a_sequence(resolve_case: Resolve) -> None:
    domains, supply = resolve_case({"law": 10, "web": 10**6}, weighed(law="0", web="1"), ladder={"s": 10})
    (rung,) = climb(domains.spec, plan_run(domains, supply), supply)
    assert dict(rung.run.segments[0].counts) == {"law": 0, "web": 1}
    assert rung.pools == {"law": 0, "web": 10_000}


def test_an_amended_run_has_no_ladder(resolve_case: Resolve) -> None:
    change = {"at": 5, "phases": [{"name": "n", "share": "1"}], "reason": "r", "parent": "0" * 64}
    domains, supply = resolve_case({"web": 10**6}, weighed(web="1"), ladder={"s": 10}, amendments=[change])
    with pytest.raises(UserError, match="an amended run has no ladder; build the rungs of its parent"):
        climb(domains.spec, plan_run(domains, supply), supply)


@given(
    weights=st.lists(st.integers(1, 100), min_size=2, max_size=9),
    tokens=st.lists(st.integers(1, 9000), min_size=9, max_size=9),
    rungs=st.lists(st.integers(1, 1000), min_size=1, max_size=4),
)
@settings(max_examples=60, deadline=None)
def test_rungs_repeat_as_the_full_run_does_and_their_pools_grow(
    weights: list[int], tokens: list[int], rungs: list[int], resolve_case: Resolve
) -> None:
    domains = weighed(**{f"d{i}": str(w) for i, w in enumerate(weights)})
    cells = dict(zip(domains, tokens, strict=False))
    phases = [{"name": "early", "share": "3"}, {"name": "late", "share": "1", "weights": {"d0": "3", "d1": "1"}}]
    ladder = {f"r{i}": 10 * n for i, n in enumerate(rungs)}
    more = {"phases": phases, "ladder": ladder, "budget": 10_009, "normalize": True, "on_shortfall": "repeat"}
    case, supply = resolve_case(cells, domains, **more)
    full = plan_run(case, supply)
    try:
        climbed = climb(case.spec, full, supply)
    except UserError as error:
        assert "too few for one of each" in str(error)
        assert min(rungs) < 2 * len(weights)
        return
    assert [r.run.budget for r in climbed] == sorted(ladder.values())
    below = dict.fromkeys(cells, 0)
    for rung in climbed:
        check_rung(rung, full, supply)
        assert rung.pools is not None
        assert all(below[d] <= rung.pools[d] <= cells[d] for d in cells)
        below = dict(rung.pools)
    if 1000 in rungs:
        assert climbed[-1].run.segments[0].counts == full.segments[0].counts


def check_rung(rung: Rung, full: Any, supply: dict[str, Supply]) -> None:
    """Phases keep their parts of the run, no domain is empty, and drawing the rung's sequences from its pool repeats
    it as often as the full run does its domain, to within one sequence."""
    plan, whole = rung.run.segments[0].plan, full.segments[0].plan
    assert rung.pools is not None
    for part, phase in zip(plan.phases, whole.phases, strict=True):
        assert sum(part.planned.values()) == part.sequences
        assert abs(part.sequences * whole.sequences - phase.sequences * plan.sequences) < whole.sequences
        assert all(phase.planned[d] or not n for d, n in part.planned.items())
    for d in rung.run.domains:
        assert (rung.run.sequences_of(d) > 0) == (full.sequences_of(d) > 0)
        if full.sequences_of(d):
            epochs = full.epochs(d, supply[d])
            assert abs(rung.run.tokens_of(d) - epochs * rung.pools[d]) <= max(epochs, 1) * plan.sequence_length


def load(path: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(path.read_bytes())
    return manifest


def first_epoch(path: Path, domain: str) -> tuple[list[tuple[int, int]], list[int]]:
    """The documents of the first epoch of a domain's stream, as places in the store, and their tokens."""
    mixture, _ = open_mixture(path)
    stream = mixture.open(next(d for d in mixture.domains if d.name == domain), "train")
    ends = stream.ends.astype(int).tolist()
    count = ends.index(mixture.unique_tokens(domain)) + 1
    lengths = [b - a for a, b in zip([0, *ends], ends, strict=False)]
    return stream.docs[:count].tolist(), lengths[:count]


@pytest.mark.parametrize("domain", ["docstrings", "manual"])
def test_the_documents_of_a_rung_are_a_prefix_of_those_of_the_next(
    domain: str, rungs: dict[str, Path], parent: Path
) -> None:
    pools = [first_epoch(path, domain)[0] for path in (*rungs.values(), parent)]
    for smaller, larger in pairwise(pools):
        assert 0 < len(smaller) < len(larger)
        assert larger[: len(smaller)] == smaller


@pytest.mark.parametrize("name", ["small", "middle", "large"])
def test_a_built_rung_repeats_as_the_full_run_does(name: str, rungs: dict[str, Path], parent: Path) -> None:
    """Its pool is of exactly so many tokens, and its epochs are the full run's but for one sequence."""
    full, rung = load(parent), load(rungs[name])
    assert rung["rung"] == name
    for domain, record in rung["domains"].items():
        _, lengths = first_epoch(rungs[name], domain)
        unique, drawn = record["realized"]["unique_tokens"], record["realized"]["tokens"]
        assert unique == sum(lengths) == record["pool"]
        epochs: Fraction = Fraction(full["domains"][domain]["realized"]["epochs"])
        assert Fraction(record["realized"]["epochs"]) == Fraction(drawn, unique)
        assert abs(drawn - epochs * unique) <= 64 * max(Fraction(1), epochs)
        assert record["planned"]["sequences"] == record["realized"]["sequences"] > 0


def test_a_rung_is_verified_and_read_and_stands_beside_the_full_run(
    rungs: dict[str, Path], workshop: Path, parent: Path
) -> None:
    for name, path in rungs.items():
        checked, wrong = verify(path)
        assert wrong == []
        assert "every number, from the rows" in checked
        assert (workshop / "latest" / f"tiny-{name}").resolve() == path.parent
        store, shards = open_reader(path, "store")[:], open_reader(path, "shards")[:]
        assert (store["input_ids"] == shards["input_ids"]).all()
        assert store["domain"] == shards["domain"]
    assert (workshop / "latest" / "tiny").resolve() == parent.parent


def test_verify_finds_a_rung_with_another_pool_or_name(rungs: dict[str, Path], tmp_path: Path) -> None:
    for change in ("pool", "rung"):
        manifest = load(rungs["small"])
        if change == "pool":
            manifest["domains"]["manual"]["pool"] += 1
        else:
            manifest["rung"] = "middle"
        manifest["root"] = root_digest(manifest)
        folder = tmp_path / change
        folder.mkdir()
        (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        wrong = verify(folder / "manifest.json")[1]
        assert any("domains.manual.pool says" in line for line in wrong)


def test_a_rung_that_is_not_in_the_spec(ladder_specs: Path, workshop: Path, engine: Any) -> None:
    job = Build(ladder_specs, workshop, workshop / "cache", lambda: engine)
    with pytest.raises(UserError, match="there is no rung 'tiny'; the rungs are large, middle, small"):
        job.run(rung="tiny")
