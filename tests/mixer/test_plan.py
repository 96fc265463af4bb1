import re
from fractions import Fraction
from math import ceil
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mixer.plan import Plan, Supply, check_supply, feasible_budget, max_epochs, plan_mixture
from mixer.spec import MixtureSpec
from stages.errors import UserError

LARGE = Supply(10**6, 10**15)


def mixture(weights: dict[str, str], phases: list[dict[str, Any]] = [], **more: Any) -> MixtureSpec:  # noqa: B006
    domains = {name: {"cells": [name], "weight": weight} for name, weight in weights.items()}
    base = {"mixture": "m", "corpus": "c.yaml", "sequence_length": 10, "budget": 1000}
    return MixtureSpec.model_validate(base | {"domains": domains, "phases": phases} | more)


def integers(plan: Plan) -> list[tuple[str, int, dict[str, int]]]:
    return [(p.name, p.sequences, dict(p.planned)) for p in plan.phases]


def test_one_phase_by_hand() -> None:
    """37 sequences: quotas 18.5, 11.1, 7.4; the one sequence left goes to the largest remainder, .5."""
    plan = plan_mixture(mixture({"web": "0.5", "code": "0.3", "math": "0.2"}, budget=379))
    assert integers(plan) == [("main", 37, {"web": 19, "code": 11, "math": 7})]
    assert plan.domains == ("code", "math", "web")
    assert plan.counts.tolist() == [[11, 7, 19]]
    assert plan.to_json()["unused_tokens"] == 9
    assert plan.epochs("math", Supply(1, 28)) == Fraction(70, 28)
    assert plan.asked("web") == Fraction(1, 2)


def test_two_phases_by_hand() -> None:
    """103 sequences. Phases: quotas 82.4 and 20.6, so 82 and 21. First phase: quotas 57.4, 16.4 and 8.2 of 82, and the
    one left goes to the smaller name of the tie. Second phase: a third and two thirds of 21."""
    phases: list[dict[str, Any]] = [
        {"name": "early", "share": "80%"},
        {"name": "late", "share": "20%", "weights": {"math": "1/3", "code": "2/3"}},
    ]
    plan = plan_mixture(mixture({"web": "0.7", "code": "0.2", "math": "0.1"}, phases, budget=1030))
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
    plan = plan_mixture(mixture({"web": "2", "code": "6"}, phases, normalize=True))
    assert integers(plan) == [
        ("early", 75, {"web": 19, "code": 56}),
        ("late", 25, {"web": 6, "code": 19}),
    ]


def test_the_order_of_domains_in_the_spec_changes_nothing() -> None:
    one = plan_mixture(mixture({"a": "1/3", "b": "1/3", "c": "1/3"}))
    other = plan_mixture(mixture({"c": "1/3", "a": "1/3", "b": "1/3"}))
    assert one == other
    assert one.planned("a") == 34


def test_a_weight_too_small_for_one_sequence_is_an_error_and_the_named_budget_mends_it() -> None:
    with pytest.raises(UserError, match=r"domain tiny asks for a share but 100 sequences.*a budget of (\d+)") as raised:
        plan_mixture(mixture({"web": "0.9999", "tiny": "0.0001"}))
    budget = int(re.search(r"a budget of (\d+)", str(raised.value))[1])  # type: ignore[index]
    assert budget == 100_000
    assert plan_mixture(mixture({"web": "0.9999", "tiny": "0.0001"}, budget=budget)).planned("tiny") == 1


def test_a_domain_of_weight_zero_may_have_nothing() -> None:
    assert plan_mixture(mixture({"web": "1", "off": "0"})).planned("off") == 0


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
            plan = plan_mixture(spec)
        except UserError as error:
            budget = int(re.search(r"a budget of (\d+)", str(error))[1])  # type: ignore[index]
            assert budget > spec.budget
            spec = spec.model_copy(update={"budget": budget})
        else:
            break
    assert all(plan.planned(d) for d in plan.domains)


def proposals(error: UserError) -> tuple[str, str, int]:
    found = re.search(r"max_epochs: (\S+), or a share of at most (\S+)%, or a budget of at most (\d+)", str(error))
    assert found is not None, error
    return found[1], found[2], int(found[3])


def test_a_shortfall_says_what_is_needed_and_what_there_is() -> None:
    spec = mixture({"web": "0.75", "code": "0.25"})
    with pytest.raises(UserError) as raised:
        check_supply(spec, plan_mixture(spec), {"web": Supply(9, 187), "code": LARGE})
    text = str(raised.value)
    assert "mixture m: domain web: needs 750 tokens and has 187" in text
    assert "4.01 epochs over its max_epochs of 4" in text
    assert proposals(raised.value) == ("4.02", "74.0000", 990)
    assert "code" not in text


def test_exactly_the_cap_is_allowed_and_one_token_less_is_not() -> None:
    spec = mixture({"web": "0.75", "code": "0.25"}, max_epochs="2.5")
    check_supply(spec, plan_mixture(spec), {"web": Supply(1, 300), "code": Supply(1, 100)})
    with pytest.raises(UserError):
        check_supply(spec, plan_mixture(spec), {"web": Supply(1, 299), "code": Supply(1, 100)})


def test_every_domain_that_falls_short_is_named_and_an_empty_one_has_its_own_words() -> None:
    spec = mixture({"web": "0.75", "code": "0.25"})
    with pytest.raises(UserError) as raised:
        check_supply(spec, plan_mixture(spec), {"web": Supply(1, 1), "code": Supply(0, 0)})
    assert "domain web: needs 750" in str(raised.value)
    assert "domain code: needs 250 tokens and has none; see `mixer inspect`" in str(raised.value)


def test_a_domain_has_the_cap_of_the_mixture_or_its_own() -> None:
    spec = mixture({"web": "0.75", "code": "0.25"}, max_epochs="2")
    own = spec.domains["code"].model_copy(update={"max_epochs": Fraction(0)})
    spec = spec.model_copy(update={"domains": {**spec.domains, "code": own}})
    assert (max_epochs(spec, "web"), max_epochs(spec, "code")) == (2, 0)


@st.composite
def shortfalls(draw: st.DrawFn) -> tuple[MixtureSpec, Supply]:
    """A mixture of `short` and `rest`, with `short` in need of more than its cap allows."""
    phases: list[dict[str, Any]] = []
    for i in range(draw(st.integers(1, 3))):
        weight = draw(st.integers(1, 999))
        weights = {"short": f"{weight}/1000", "rest": f"{1000 - weight}/1000"}
        phases.append({"name": f"p{i}", "share": str(draw(st.integers(1, 9))), "weights": weights})
    length = draw(st.sampled_from([1, 7, 64]))
    budget = draw(st.integers(20 * length, 3000 * length))
    cap = draw(st.sampled_from(["1", "4", "0.3", "7/3"]))
    spec = mixture({"short": "0.5", "rest": "0.5"}, phases, normalize=True, sequence_length=length, budget=budget)
    spec = spec.model_copy(update={"max_epochs": Fraction(cap)})
    try:
        need = plan_mixture(spec).planned("short") * length
    except UserError:
        assume(False)
    most = ceil(need / Fraction(cap)) - 1
    assume(most >= 1)
    return spec, Supply(1, draw(st.integers(1, most)))


@given(case=shortfalls())
@settings(max_examples=80, deadline=None)
def test_each_proposed_change_makes_the_mixture_feasible(case: tuple[MixtureSpec, Supply]) -> None:
    spec, short = case
    supply = {"short": short, "rest": LARGE}
    with pytest.raises(UserError) as raised:
        check_supply(spec, plan_mixture(spec), supply)
    epochs, share, budget = proposals(raised.value)

    looser = spec.model_copy(update={"max_epochs": Fraction(epochs)})
    check_supply(looser, plan_mixture(looser), supply)

    weight = Fraction(share) / 100
    weights = {"short": weight, "rest": 1 - weight}
    lighter = spec.model_copy(update={"phases": tuple(p.model_copy(update={"weights": weights}) for p in spec.phases)})
    check_supply(lighter, plan_mixture(lighter, lighter.budget), supply)

    check_supply(spec, plan_mixture(spec, budget), supply)
    assert budget < spec.budget
    with pytest.raises(UserError):
        check_supply(spec, plan_mixture(spec, budget + spec.sequence_length), supply)


@given(
    weights=SHARES,
    shares=st.lists(st.integers(1, 100), min_size=1, max_size=4),
    tokens=st.lists(st.integers(1, 9000), min_size=5, max_size=5),
    cap=st.sampled_from(["1", "0.5", "4", "10/3"]),
)
@settings(max_examples=60, deadline=None)
def test_the_budget_of_a_sample_is_feasible_and_cannot_be_raised(
    weights: list[int], shares: list[int], tokens: list[int], cap: str
) -> None:
    phases = [{"name": f"p{i}", "share": str(s)} for i, s in enumerate(shares)]
    names = {f"d{i}": str(w) for i, w in enumerate(weights)}
    spec = mixture(names, phases, normalize=True, budget=500_000, max_epochs=cap)
    supply = {name: Supply(1, have) for name, have in zip(names, tokens, strict=False)}
    try:
        budget = feasible_budget(spec, supply)
    except UserError as error:
        assert re.search(r"too small for one sequence|leave it none", str(error))
        return
    assert 0 < budget <= spec.budget
    check_supply(spec, plan_mixture(spec, budget), supply)
    if budget < spec.budget - spec.sequence_length:
        with pytest.raises(UserError):
            check_supply(spec, plan_mixture(spec, budget + spec.sequence_length), supply)


def test_a_sample_with_plenty_keeps_the_budget_and_one_with_nothing_says_so() -> None:
    spec = mixture({"web": "0.75", "code": "0.25"}, budget=1005)
    assert plan_mixture(spec, feasible_budget(spec, {"web": LARGE, "code": LARGE})).sequences == 100
    with pytest.raises(UserError, match="domain code: the sample holds nothing of it; take more of each source"):
        feasible_budget(spec, {"web": LARGE, "code": Supply(0, 0)})
    with pytest.raises(UserError, match="too small for one sequence of 10 tokens; domain code has 2 tokens"):
        feasible_budget(spec, {"web": Supply(1, 2), "code": Supply(1, 2)})
