import re
from collections.abc import Mapping
from fractions import Fraction
from math import ceil
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mixer.cells import CellTable
from mixer.domains import Domains, resolve_domains
from mixer.plan import Plan, Supply, feasible_budget, plan_run
from mixer.spec import MixtureSpec
from stages.errors import UserError

LARGE = Supply(10**6, 10**15)


def mixture(weights: dict[str, str], phases: list[dict[str, Any]] = [], **more: Any) -> MixtureSpec:  # noqa: B006
    domains = {name: {"cells": [name], "weight": weight} for name, weight in weights.items()}
    base = {"mixture": "m", "corpus": "c.yaml", "sequence_length": 10, "budget": 1000}
    return MixtureSpec.model_validate(base | {"domains": domains, "phases": phases} | more)


def resolved(spec: MixtureSpec) -> Domains:
    """The domains of `mixture`, each of one cell of its name."""
    cells = tuple(sorted(spec.domains))
    return resolve_domains(spec, CellTable(cells, dict.fromkeys(cells, 0), {}))


def plan_of(spec: MixtureSpec, supply: Mapping[str, Supply] | None = None, budget: int | None = None) -> Plan:
    run = plan_run(resolved(spec), supply, budget)
    assert len(run.segments) == 1
    return run.segments[0].plan


def integers(plan: Plan) -> list[tuple[str, int, dict[str, int]]]:
    return [(p.name, p.sequences, dict(p.planned)) for p in plan.phases]


def test_one_phase_by_hand() -> None:
    """37 sequences: quotas 18.5, 11.1, 7.4; the one sequence left goes to the largest remainder, .5."""
    run = plan_run(resolved(mixture({"web": "0.5", "code": "0.3", "math": "0.2"}, budget=379)), None)
    plan = run.segments[0].plan
    assert integers(plan) == [("main", 37, {"web": 19, "code": 11, "math": 7})]
    assert plan.domains == ("code", "math", "web")
    assert plan.counts.tolist() == [[11, 7, 19]]
    assert run.budget - run.tokens == 9
    assert (run.sequences_of("math"), run.tokens_of("math")) == (7, 70)
    assert run.epochs("math", Supply(1, 28)) == Fraction(70, 28)
    assert run.asked("web") == plan.asked("web") == Fraction(1, 2)
    assert plan.phases[0].given == plan.phases[0].asked


def test_two_phases_by_hand() -> None:
    """103 sequences. Phases: quotas 82.4 and 20.6, so 82 and 21. First phase: quotas 57.4, 16.4 and 8.2 of 82, and the
    one left goes to the smaller name of the tie. Second phase: a third and two thirds of 21."""
    phases: list[dict[str, Any]] = [
        {"name": "early", "share": "80%"},
        {"name": "late", "share": "20%", "weights": {"math": "1/3", "code": "2/3"}},
    ]
    plan = plan_of(mixture({"web": "0.7", "code": "0.2", "math": "0.1"}, phases, budget=1030))
    assert integers(plan) == [
        ("early", 82, {"web": 57, "code": 17, "math": 8}),
        ("late", 21, {"web": 0, "code": 14, "math": 7}),
    ]
    assert (plan.sequences, plan.planned("code"), plan.planned("web")) == (103, 31, 57)
    assert plan.asked("code") == (Fraction(2, 10) * 82 + Fraction(2, 3) * 21) / 103
    order = plan.order()
    assert len(order) == 103
    assert order.prefix_counts(82).tolist() == [17, 8, 57]
    assert order.prefix_counts(103).tolist() == [31, 15, 57]


def test_normalize_scales_weights_and_shares() -> None:
    phases = [{"name": "early", "share": "3"}, {"name": "late", "share": "1"}]
    plan = plan_of(mixture({"web": "2", "code": "6"}, phases, normalize=True))
    assert integers(plan) == [
        ("early", 75, {"web": 19, "code": 56}),
        ("late", 25, {"web": 6, "code": 19}),
    ]


def test_the_order_of_domains_in_the_spec_changes_nothing() -> None:
    one = plan_of(mixture({"a": "1/3", "b": "1/3", "c": "1/3"}))
    other = plan_of(mixture({"c": "1/3", "a": "1/3", "b": "1/3"}))
    assert one == other
    assert one.planned("a") == 34


def test_a_weight_too_small_for_one_sequence_is_an_error_and_the_named_budget_mends_it() -> None:
    with pytest.raises(UserError, match=r"domain tiny asks for a share but 100 sequences.*a budget of (\d+)") as raised:
        plan_of(mixture({"web": "0.9999", "tiny": "0.0001"}))
    budget = int(re.search(r"a budget of (\d+)", str(raised.value))[1])  # type: ignore[index]
    assert budget == 100_000
    assert plan_of(mixture({"web": "0.9999", "tiny": "0.0001"}, budget=budget)).planned("tiny") == 1


def test_a_domain_of_weight_zero_may_have_nothing() -> None:
    assert plan_of(mixture({"web": "1", "off": "0"})).planned("off") == 0


SHARES = st.lists(st.integers(1, 10_000), min_size=2, max_size=5)


@given(weights=SHARES, shares=st.lists(st.integers(1, 100), min_size=1, max_size=4), only=st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_budget_named_for_a_domain_without_a_sequence_is_enough(
    weights: list[int], shares: list[int], only: bool
) -> None:
    names = {f"d{i}": str(w) for i, w in enumerate(weights)} | {"rare": "1"}
    phases: list[dict[str, Any]] = [{"name": f"p{i}", "share": str(s)} for i, s in enumerate(shares)]
    for phase in phases[1:] if only else ():
        phase["weights"] = {"d0": "1"}
    spec = mixture(names, phases, normalize=True, budget=50)
    for _ in range(12):
        try:
            plan = plan_of(spec)
        except UserError as error:
            budget = int(re.search(r"a budget of (\d+)", str(error))[1])  # type: ignore[index]
            assert budget > spec.budget
            spec = spec.model_copy(update={"budget": budget})
        else:
            break
    assert all(plan.planned(d) for d in plan.domains)


def test_a_shortfall_says_what_is_needed_and_what_there_is() -> None:
    spec = mixture({"web": "0.75", "code": "0.25"})
    with pytest.raises(UserError) as raised:
        plan_of(spec, {"web": Supply(9, 187), "code": LARGE})
    text = str(raised.value)
    assert "mixture m: domain web: needs 750 tokens and has 187" in text
    assert "4.011 epochs over its max_epochs of 4" in text
    assert "max_epochs: 4.011, or a share of at most 74.5000%, or a budget of at most 990" in text
    assert "code" not in text


def test_exactly_the_cap_is_allowed_and_one_token_less_is_not() -> None:
    spec = mixture({"web": "0.75", "code": "0.25"}, max_epochs="2.5")
    plan_of(spec, {"web": Supply(1, 300), "code": Supply(1, 100)})
    with pytest.raises(UserError):
        plan_of(spec, {"web": Supply(1, 299), "code": Supply(1, 100)})


def test_every_domain_that_falls_short_is_named_and_an_empty_one_has_its_own_words() -> None:
    spec = mixture({"web": "0.75", "code": "0.25"})
    with pytest.raises(UserError) as raised:
        plan_of(spec, {"web": Supply(1, 1), "code": Supply(0, 0)})
    assert "domain web: needs 750" in str(raised.value)
    assert "domain code: needs 250 tokens and has none; its cells are empty" in str(raised.value)


def test_a_domain_has_the_cap_of_the_mixture_or_its_own() -> None:
    spec = mixture({"web": "0.75", "code": "0.25"}, max_epochs="2")
    own = spec.domains["code"].model_copy(update={"max_epochs": Fraction(0)})
    spec = spec.model_copy(update={"domains": {**spec.domains, "code": own}})
    assert {leaf.name: leaf.max_epochs for leaf in resolved(spec).leaves} == {"web": 2, "code": 0}
    with pytest.raises(UserError, match="domain code: needs 250") as raised:
        plan_of(spec, {"web": Supply(1, 375), "code": LARGE})
    assert "domain web" not in str(raised.value)


@st.composite
def shortfalls(draw: st.DrawFn) -> tuple[MixtureSpec, Supply]:
    """A mixture of `short` and `rest`, with `short` in need of more than its cap allows."""
    phases: list[dict[str, Any]] = []
    for i in range(draw(st.integers(1, 3))):
        weight = draw(st.integers(1, 999))
        weights = {"short": f"{weight}/1000", "rest": f"{1000 - weight}/1000"}
        phases.append({"name": f"p{i}", "share": str(draw(st.integers(1, 9))), "weights": weights})
    length = draw(st.sampled_from([1, 7, 64]))
    budget = draw(st.integers(20 * length, 1000 * length))
    cap = draw(st.sampled_from(["1", "4", "0.3", "7/3"]))
    spec = mixture({"short": "0.5", "rest": "0.5"}, phases, normalize=True, sequence_length=length, budget=budget)
    spec = spec.model_copy(update={"max_epochs": Fraction(cap)})
    try:
        need = plan_of(spec).planned("short") * length
    except UserError:
        assume(False)
    most = ceil(need / Fraction(cap)) - 1
    assume(most >= 1)
    return spec, Supply(1, draw(st.integers(1, most)))


@given(case=shortfalls())
@settings(max_examples=20, deadline=None)
def test_each_proposed_change_makes_the_mixture_feasible(case: tuple[MixtureSpec, Supply]) -> None:
    """Share and budget are named where one sequence fits; a plan may leave `short` none, which is another refusal."""
    spec, short = case
    supply = {"short": short, "rest": LARGE}
    with pytest.raises(UserError) as raised:
        plan_of(spec, supply)
    text = str(raised.value)

    def short_of(changed: MixtureSpec, budget: int | None = None) -> bool:
        try:
            plan_of(changed, supply, budget)
        except UserError as error:
            assert re.search("over its max_epochs|leave it none", str(error))
            return "over its max_epochs" in str(error)
        return False

    named = re.search(r"max_epochs: (\d+\.\d{3})(?:, or a share of at most (\d+\.\d{4})%)?", text)
    assert named is not None, text
    epochs = Fraction(named[1])
    assert not short_of(spec.model_copy(update={"max_epochs": epochs}))
    assert short_of(spec.model_copy(update={"max_epochs": epochs - Fraction(1, 1000)}))
    assert (named[2] is not None) == (spec.max_epochs * short.tokens >= spec.sequence_length)

    if named[2] is not None:
        part = Fraction(named[2]) / 100 / plan_of(spec).asked("short")
        assert part < 1
        phases = []
        for phase in spec.phases:
            weight = (phase.weights or {})["short"] * part
            phases.append(phase.model_copy(update={"weights": {"short": weight, "rest": 1 - weight}}))
        assert not short_of(spec.model_copy(update={"phases": tuple(phases)}))

    if budget := re.search(r"a budget of at most (\d+)", text):
        assert int(budget[1]) < spec.budget
        assert not short_of(spec, int(budget[1]))
        assert short_of(spec, int(budget[1]) + spec.sequence_length)


@given(
    weights=SHARES,
    shares=st.lists(st.integers(1, 100), min_size=1, max_size=4),
    tokens=st.lists(st.integers(1, 9000), min_size=5, max_size=5),
    cap=st.sampled_from(["1", "0.5", "4", "10/3"]),
)
@settings(max_examples=40, deadline=None)
def test_the_budget_of_a_sample_is_feasible_and_cannot_be_raised(
    weights: list[int], shares: list[int], tokens: list[int], cap: str
) -> None:
    phases = [{"name": f"p{i}", "share": str(s)} for i, s in enumerate(shares)]
    names = {f"d{i}": str(w) for i, w in enumerate(weights)}
    spec = mixture(names, phases, normalize=True, budget=500_000, max_epochs=cap)
    supply = {name: Supply(1, have) for name, have in zip(names, tokens, strict=False)}
    try:
        budget = feasible_budget(resolved(spec), supply)
    except UserError as error:
        assert "too small for one sequence" in str(error)
        return
    assert 0 < budget <= spec.budget
    plan_of(spec, supply, budget)
    if budget < spec.budget:
        with pytest.raises(UserError):
            plan_of(spec, supply, budget + spec.sequence_length)


def test_a_sample_with_plenty_keeps_the_budget_and_one_with_nothing_says_so() -> None:
    spec = mixture({"web": "0.75", "code": "0.25"}, budget=1005)
    domains = resolved(spec)
    assert plan_of(spec, None, feasible_budget(domains, {"web": LARGE, "code": LARGE})).sequences == 100
    with pytest.raises(UserError, match="domain code: the sample holds nothing of it; take more of each source"):
        feasible_budget(domains, {"web": LARGE, "code": Supply(0, 0)})
    with pytest.raises(UserError, match="too small for one sequence of 10 tokens; domain code has 2 tokens"):
        feasible_budget(domains, {"web": Supply(1, 2), "code": Supply(1, 2)})
