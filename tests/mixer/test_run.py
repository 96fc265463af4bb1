"""From asked shares to the integers of a run: shortfalls, floors, sums, and the segments of an amended run."""

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mixer.domains import Domains, resolve_domains
from mixer.plan import Plan, Run, Supply, cut, feasible_budget, phases_in, plan_run
from mixer.spec import MixtureSpec
from stages.errors import UserError

Case = tuple[Domains, dict[str, Supply]]
Resolve = Callable[..., Case]
PLENTY = 10**12


def weighed(**weights: str) -> dict[str, Any]:
    return {name: {"cells": name, "weight": weight} for name, weight in weights.items()}


def changed(case: Case, **changes: Any) -> Case:
    """The case with other keys in its spec."""
    spec = MixtureSpec.model_validate(case[0].spec.model_dump(mode="json") | changes)
    return resolve_domains(spec, case[0].table), case[1]


def plan(case: Case) -> Plan:
    (segment,) = plan_run(*case).segments
    return segment.plan


def integers(plan: Plan) -> list[dict[str, int]]:
    return [dict(p.planned) for p in plan.phases]


def check_sums(run: Run) -> None:
    """Every phase is full, the phases fill the budget, and shares sum to 1."""
    first = 0
    for segment in run.segments:
        plan = segment.plan
        assert segment.first == first
        assert plan.sequences == plan.budget // plan.sequence_length
        for phase in plan.phases:
            assert sum(phase.planned.values()) == phase.sequences
            assert sum(phase.asked.values()) == sum(phase.given.values()) == 1
        assert sum(span for _, _, span in phases_in(segment)) == segment.sequences
        assert sum(segment.counts.values()) == segment.sequences
        first += segment.sequences
    assert run.sequences == first
    assert sum(run.tokens_of(d) for d in run.domains) == run.tokens
    assert 0 <= run.budget - run.tokens < run.segments[-1].plan.sequence_length


def test_a_run_by_hand(resolve_case: Resolve) -> None:
    """103 sequences, 82 and 21. Amounts: 2 passes over 100 tokens are 20/103 of 1030. Early: quotas 15.92 (books), 41
    (web), 25.08 (misc). Late: 4.08, 2.1, 14.82."""
    domains = {
        "books": {"cells": "books", "epochs": "2"},
        "misc": {"cells": "misc", "rest": True},
        "web": {"cells": "web", "weight": "0.5"},
    }
    phases = [{"name": "early", "share": "80%"}, {"name": "late", "share": "20%", "weights": {"web": "0.1"}}]
    case = resolve_case({"books": 100, "misc": PLENTY, "web": PLENTY}, domains, phases=phases, budget=1035)
    run = plan_run(*case)
    check_sums(run)
    assert integers(run.segments[0].plan) == [
        {"books": 16, "misc": 25, "web": 41},
        {"books": 4, "misc": 15, "web": 2},
    ]
    assert (run.budget, run.tokens, run.sequences_of("misc"), run.tokens_of("web")) == (1035, 1030, 40, 430)
    assert run.epochs("books", case[1]["books"]) == 2
    assert run.asked("web") == (Fraction(1, 2) * 82 + Fraction(1, 10) * 21) / 103


def test_a_shortfall_says_what_is_needed_what_there_is_and_three_changes(resolve_case: Resolve) -> None:
    """75 sequences of 10 tokens from 187, of which 74 fit. A tie, 74.5 to 25.5, goes to the smaller name; 99 sequences
    give 74.25."""
    case = resolve_case({"code": PLENTY, "web": 187}, weighed(code="0.25", web="0.75"))
    with pytest.raises(UserError) as raised:
        plan_run(*case)
    assert str(raised.value) == (
        "mixture m: domain web: needs 750 tokens and has 187, that is 4.011 epochs over its max_epochs of 4; the "
        "smallest change is max_epochs: 4.011, or a share of at most 74.5000%, or a budget of at most 990; or say "
        "`on_shortfall: redistribute`"
    )
    case = resolve_case({"code": 0, "web": 187}, weighed(code="0.25", web="0.75"))
    with pytest.raises(
        UserError, match=r"domain code: needs 250 tokens and has none; its cells are empty\n.*domain web"
    ):
        plan_run(*case)


def test_exactly_the_cap_is_allowed_and_one_token_less_is_not(resolve_case: Resolve) -> None:
    domains = weighed(code="0.25", web="0.75")
    plan_run(*resolve_case({"code": 100, "web": 300}, domains, max_epochs="2.5"))
    with pytest.raises(UserError, match="domain web: needs 750 tokens and has 299"):
        plan_run(*resolve_case({"code": 100, "web": 299}, domains, max_epochs="2.5"))


def test_the_cap_of_a_group_holds_for_its_members(resolve_case: Resolve) -> None:
    group = {"weight": "0.5", "max_epochs": "2", "domains": weighed(a="0.5", b="0.5")}
    domains = {"g": group, "web": {"cells": "web", "rest": True}}
    cells = {"a": 125, "b": 124, "web": PLENTY}
    with pytest.raises(
        UserError, match=r"domain b: needs 250 tokens and has 124, .* over its max_epochs of 2"
    ) as raised:
        plan_run(*resolve_case(cells, domains))
    assert "domain a" not in str(raised.value)
    group["domains"]["b"]["max_epochs"] = "3"  # type: ignore[index]
    plan_run(*resolve_case(cells, domains))


@st.composite
def shortfalls(draw: st.DrawFn) -> dict[str, Any]:
    """A mixture of `short` and `rest`, and a number of tokens for `short` that is at least one."""
    phases = []
    for i in range(draw(st.integers(1, 3))):
        weight = draw(st.integers(1, 999))
        weights = {"short": f"{weight}/1000", "rest": f"{1000 - weight}/1000"}
        phases.append({"name": f"p{i}", "share": str(draw(st.integers(1, 9))), "weights": weights})
    length = draw(st.sampled_from([1, 7, 64]))
    return {
        "phases": phases,
        "sequence_length": length,
        "budget": draw(st.integers(20 * length, 3000 * length)),
        "max_epochs": draw(st.sampled_from(["1", "4", "0.3", "7/3"])),
        "tokens": draw(st.one_of(st.integers(1, 20), st.integers(1, 30_000))),
    }


@given(drawn=shortfalls())
@settings(max_examples=25, deadline=None)
def test_each_change_that_a_shortfall_names_makes_the_spec_plan(drawn: dict[str, Any], resolve_case: Resolve) -> None:
    tokens = drawn.pop("tokens")
    cells = {"rest": PLENTY, "short": tokens}
    domains = {name: {"cells": name, "weight": "0.5"} for name in cells}
    case = resolve_case(cells, domains, normalize=True, **drawn)
    try:
        plan_run(*case)
        assume(False)
    except UserError as error:
        assume("leave it none" not in str(error))
        words = str(error)
    need, have = re.search(r"domain short: needs (\d+) tokens and has (\d+),", words).groups()  # type: ignore[union-attr]
    assert int(have) == tokens
    assert int(need) > Fraction(drawn["max_epochs"]) * tokens
    names = {n: case[0].spec.domains[n].model_dump(mode="json") for n in cells}
    epochs = re.search(r"max_epochs: ([0-9.]+)[,;]", words)[1]  # type: ignore[index]
    check_short_fits(changed(case, domains=names | {"short": names["short"] | {"max_epochs": epochs}}))
    least = str(Fraction(epochs) - Fraction(1, 1000))
    assert (Fraction(drawn["max_epochs"]) * tokens < drawn["sequence_length"]) == ("a budget of" not in words)
    with pytest.raises(UserError, match="domain short: needs"):
        plan_run(*changed(case, domains=names | {"short": names["short"] | {"max_epochs": least}}))

    if budget := re.search(r"a budget of at most (\d+)", words):
        check_short_fits(changed(case, budget=int(budget[1])))
        with pytest.raises(UserError, match="domain short: needs"):
            plan_run(*changed(case, budget=int(budget[1]) + drawn["sequence_length"]))
        assert int(budget[1]) < drawn["budget"]

    if len(drawn["phases"]) == 1 and (share := re.search(r"a share of at most ([0-9.e-]+)%", words)):
        part = Fraction(share[1]) / 100
        weights = {"short": str(part), "rest": str(1 - part)}
        check_short_fits(changed(case, phases=[drawn["phases"][0] | {"weights": weights}]))


def check_short_fits(case: Case) -> None:
    """It plans, or does not for the sake of the other domain, which so small a budget can leave without a sequence."""
    try:
        plan_run(*case)
    except UserError as error:
        assert "domain rest asks for a share" in str(error)


@pytest.mark.parametrize("phases", [[], [{"name": "a", "share": "40%"}, {"name": "b", "share": "60%"}]])
def test_redistribute_by_hand(phases: list[dict[str, Any]], resolve_case: Resolve) -> None:
    """web may have 4 * 100 tokens, 40 of 100 sequences; code and law share the other 60 as 1 to 2."""
    domains = weighed(code="0.1", law="0.2", web="0.7")
    cells = {"code": PLENTY, "law": PLENTY, "web": 100}
    run = plan_run(*resolve_case(cells, domains, phases=phases, on_shortfall="redistribute"))
    check_sums(run)
    assert {d: run.sequences_of(d) for d in run.domains} == {"code": 20, "law": 40, "web": 40}
    assert {d: run.asked(d) for d in run.domains} == {d: Fraction(v["weight"]) for d, v in domains.items()}
    for phase in run.segments[0].plan.phases:
        assert phase.given == {"code": Fraction(1, 5), "law": Fraction(2, 5), "web": Fraction(2, 5)}
        assert phase.asked["web"] == Fraction(7, 10)


def test_repeat_plans_what_is_asked(resolve_case: Resolve) -> None:
    case = resolve_case({"code": 10, "web": 10}, weighed(code="0.25", web="0.75"), on_shortfall="repeat")
    run = plan_run(*case)
    assert run.epochs("web", case[1]["web"]) == 75
    assert run.segments[0].plan.phases[0].given == run.segments[0].plan.phases[0].asked


@pytest.mark.parametrize("on_shortfall", ["error", "redistribute", "repeat"])
def test_a_floor_lifts_a_share_and_is_recorded_beside_what_was_asked(on_shortfall: str, resolve_case: Resolve) -> None:
    """law is lifted from 1% to 10%; code and web share 90% as 1 to 2."""
    domains = weighed(code="0.33", law="0.01", web="0.66")
    domains["law"]["min_share"] = "10%"
    cells = {"code": PLENTY, "law": 25, "web": PLENTY}
    (phase,) = plan(resolve_case(cells, domains, on_shortfall=on_shortfall)).phases
    assert phase.planned == {"code": 30, "law": 10, "web": 60}
    assert phase.asked["law"] == Fraction(1, 100)
    assert phase.given == {"code": Fraction(3, 10), "law": Fraction(1, 10), "web": Fraction(3, 5)}


def test_a_floor_over_the_cap_is_refused(resolve_case: Resolve) -> None:
    domains = weighed(law="0.1", web="0.9")
    domains["law"]["min_share"] = "10%"
    with pytest.raises(UserError, match=r"domain law: min_share is 0.1, that is 100 tokens, but with 24 tokens"):
        plan_run(*resolve_case({"law": 24, "web": PLENTY}, domains))


@given(
    weights=st.lists(st.integers(0, 1000), min_size=2, max_size=8).filter(any),
    tokens=st.lists(st.integers(0, 2000), min_size=8, max_size=8),
    shares=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    cap=st.sampled_from(["1", "4", "0.7", "10/3"]),
    floor=st.booleans(),
)
@settings(max_examples=30, deadline=None)
def test_redistribution_keeps_the_caps_and_fills_the_run(
    weights: list[int], tokens: list[int], shares: list[int], cap: str, floor: bool, resolve_case: Resolve
) -> None:
    domains = weighed(**{f"d{i}": str(w) for i, w in enumerate(weights)})
    if floor and weights[0]:
        domains["d0"]["min_share"] = "5%"
    phases = [{"name": f"p{i}", "share": str(s)} for i, s in enumerate(shares)]
    cells = dict(zip(domains, tokens, strict=False))
    more = {"phases": phases, "normalize": True, "max_epochs": cap, "budget": 3000}
    case = resolve_case(cells, domains, on_shortfall="redistribute", **more)
    try:
        run = plan_run(*case)
    except UserError as error:
        lack = sum(Fraction(cap) * n for d, n in cells.items() if domains[d]["weight"] != "0") < 3000
        assert lack or re.search(r"min_share|all its domains are at their max_epochs|leave it none", str(error))
        return
    check_sums(run)
    for d in run.domains:
        assert run.tokens_of(d) <= Fraction(cap) * cells[d]
        assert run.asked(d) == Fraction(int(domains[d]["weight"]), sum(weights))
        if domains[d]["weight"] == "0":
            assert run.tokens_of(d) == 0
    try:
        plain = plan_run(*changed(case, on_shortfall="error"))
    except UserError as error:
        assert "needs" in str(error)
        assert any(p.given != p.asked for p in run.segments[0].plan.phases)
    else:
        assert plain == run


@given(seed=st.integers(0, 2**32), size=st.integers(1, 300), sequences=st.integers(1, 4000))
@settings(max_examples=15, deadline=None)
def test_every_domain_keeps_within_one_sequence_of_its_target_and_none_is_dropped(
    seed: int, size: int, sequences: int, resolve_case: Resolve, random_spec: Callable[..., Any]
) -> None:
    cells, domains, phases = random_spec(seed, size)
    case = resolve_case(cells, domains, phases=phases, normalize=True, budget=10 * sequences)
    domains_of, _ = case
    for _ in range(300):
        try:
            run = plan_run(domains_of, None)
            break
        except UserError as error:
            words = re.search(
                r"domain (\S+) asks for a share but \d+ sequences .* a budget of (\d+) tokens", str(error)
            )
            assert words is not None, error
            budget = int(words[2])
            assert budget > domains_of.spec.budget
            domains_of = changed((domains_of, {}), budget=budget)[0]
    check_sums(run)
    (segment,) = run.segments
    for domain in run.domains:
        if any(p.asked[domain] and p.sequences for p in segment.plan.phases):
            assert segment.plan.planned(domain) > 0
    if run.sequences <= 4000:
        check_prefixes(segment.plan)


@given(seed=st.integers(0, 2**32), size=st.integers(1, 300), sequences=st.integers(300, 4000))
@settings(max_examples=15, deadline=None)
def test_every_prefix_of_the_order_is_within_one_sequence_of_the_plan(
    seed: int, size: int, sequences: int, resolve_case: Resolve
) -> None:
    """Weights from 1e-3 to 1, which fit: every domain has at least one of these sequences."""
    rng = np.random.default_rng(seed)
    domains = weighed(**{f"d{i}": str(w) for i, w in enumerate(rng.integers(1, 1000, size).tolist())})
    phases = [{"name": f"p{i}", "share": str(1 + i)} for i in range(int(rng.integers(1, 4)))]
    phases[-1]["weights"] = {"d0": "5", f"d{size // 2}": "1"}  # type: ignore[assignment]
    case = resolve_case(dict.fromkeys(domains, PLENTY), domains, phases=phases, normalize=True, budget=10 * sequences)
    try:
        found = plan(case)
    except UserError as error:
        assert "leave it none" in str(error)
        return
    check_prefixes(found)


def check_prefixes(plan: Plan) -> None:
    """At every position t of a phase of L sequences, a domain has had planned * t / L of them, give or take one."""
    order, first = plan.order(), 0
    for phase, planned in zip(plan.phases, plan.counts, strict=True):
        domains = order.domains(first, first + phase.sequences)
        had = np.cumsum(domains[:, None] == np.arange(len(plan.domains)), axis=0)
        t = np.arange(1, phase.sequences + 1)[:, None]
        assert (np.abs(had * phase.sequences - planned * t) < max(phase.sequences, 1)).all()
        assert phase.sequences == 0 or had[-1].tolist() == planned.tolist()
        first += phase.sequences


def rows(run: Run) -> list[tuple[str, int, int]]:
    """Domain, first token in the domain's stream, and length of every sequence of a run."""
    found = []
    for segment in run.segments:
        order, length = segment.plan.order(), segment.plan.sequence_length
        domains, places = order.stream_index(0, segment.sequences)
        for d, place in zip(domains.tolist(), places.tolist(), strict=True):
            name = run.domains[d]
            found.append((name, segment.offsets[name] + place * length, length))
    return found


def amendment(at: int, weights: Mapping[str, str], **more: Any) -> dict[str, Any]:
    phases = [{"name": "new", "share": "1", "weights": dict(weights)}]
    return {"at": at, "phases": phases, "reason": "a test", "parent": "0" * 64, **more}


def test_segments_by_hand(resolve_case: Resolve) -> None:
    """100 sequences of 10, amended at 50 (35 web and 15 code by then) to sequences of 20: 25 of them are left."""
    cells = {"code": PLENTY, "web": PLENTY}
    case = resolve_case(cells, weighed(code="0.3", web="0.7"))
    case = changed(case, amendments=[amendment(50, {"code": "0.8", "web": "0.2"}, sequence_length=20)])
    run = plan_run(*case)
    check_sums(run)
    first, second = run.segments
    assert (first.first, first.sequences, dict(first.counts)) == (0, 50, {"code": 15, "web": 35})
    assert (second.first, second.sequences, dict(second.offsets)) == (50, 25, {"code": 150, "web": 350})
    assert dict(second.counts) == {"code": 20, "web": 5}
    assert (run.tokens_of("code"), run.tokens_of("web"), run.sequences_of("code")) == (550, 450, 35)
    assert run.asked("code") == Fraction(3, 10) * Fraction(1, 2) + Fraction(8, 10) * Fraction(1, 2)


@given(
    weights=st.lists(st.integers(1, 20), min_size=2, max_size=6),
    changes=st.lists(
        st.tuples(
            st.integers(1, 400),
            st.lists(st.integers(0, 20), min_size=6, max_size=6).filter(lambda w: all(w[:2])),
            st.one_of(st.none(), st.sampled_from([3, 10, 16])),
            st.one_of(st.none(), st.integers(1000, 4000)),
        ),
        min_size=1,
        max_size=3,
    ),
)
@settings(max_examples=25, deadline=None)
def test_amendments_leave_the_past_and_go_on_where_it_stopped(
    weights: list[int], changes: list[Any], resolve_case: Resolve
) -> None:
    domains = weighed(**{f"d{i}": str(w) for i, w in enumerate(weights)})
    phases = [{"name": "early", "share": "2"}, {"name": "late", "share": "1", "weights": {"d0": "1", "d1": "3"}}]
    cells = dict.fromkeys(domains, PLENTY)
    case = resolve_case(cells, domains, phases=phases, normalize=True, budget=3005)
    made: list[dict[str, Any]] = []
    run = plan_run(*case)
    for at, new, length, budget in changes:
        before = rows(run)
        change = amendment(at, {d: str(w) for d, w in zip(domains, new, strict=False)})
        change |= {"sequence_length": length, "budget": budget}
        case = changed(case, amendments=[*made, change])
        if at >= run.sequences:
            with pytest.raises(UserError, match=f"cannot amend at sequence {at}: the run has the sequences 0 to"):
                plan_run(*case)
            continue
        made.append(change)
        kept = cut(run, at)
        new_run = plan_run(*case)
        check_sums(new_run)
        assert rows(new_run)[:at] == before[:at]
        assert new_run.budget == (kept.tokens + budget if budget else run.budget)
        assert {n for _, _, n in rows(new_run)[at:]} == {length or before[at - 1][2]}
        run = new_run
    reached = dict.fromkeys(domains, 0)
    for domain, begin, length in rows(run):
        assert begin == reached[domain]
        reached[domain] = begin + length
    assert reached == {d: run.tokens_of(d) for d in run.domains}


def test_positions_outside_the_run_cannot_be_amended(resolve_case: Resolve) -> None:
    case = resolve_case({"code": PLENTY, "web": PLENTY}, weighed(code="0.3", web="0.7"))
    for at in (100, 101):
        with pytest.raises(UserError, match=f"cannot amend at sequence {at}: the run has the sequences 0 to 99"):
            plan_run(*changed(case, amendments=[amendment(at, {"web": "1"})]))
    run = plan_run(*changed(case, amendments=[amendment(99, {"web": "1"})]))
    assert (run.sequences, dict(run.segments[1].counts)) == (100, {"code": 0, "web": 1})


def test_caps_hold_over_the_whole_of_an_amended_run(resolve_case: Resolve) -> None:
    """Of 3 * 70 tokens of code, 150 are drawn before 50; 60 are left, 6 of the 50 sequences to come."""
    case = resolve_case({"code": 70, "web": PLENTY}, weighed(code="0.2", web="0.8"), max_epochs="3")
    for weights, fits in (({"code": "0.22", "web": "0.78"}, True), ({"code": "0.24", "web": "0.76"}, False)):
        amended = changed(case, amendments=[amendment(50, weights)])
        assert cut(plan_run(*case), 50).tokens_of("code") == 100
        if fits:
            assert plan_run(*amended).tokens_of("code") == 210
        else:
            with pytest.raises(UserError, match="domain code: needs 220 tokens and has 70, that is 3.143 epochs over"):
                plan_run(*amended)
            moved = plan_run(*changed(amended, on_shortfall="redistribute"))
            assert moved.tokens_of("code") == 210
            assert moved.segments[1].plan.phases[0].asked["code"] == Fraction(24, 100)
            assert moved.segments[1].plan.phases[0].given["code"] == Fraction(22, 100)
            assert plan_run(*changed(amended, on_shortfall="repeat")).tokens_of("code") == 220


def test_an_amendment_drops_no_domain_that_it_asks_for(resolve_case: Resolve) -> None:
    """law joins at 50 with a share of which 50 sequences leave nothing; a domain that has been seen may go on as 0."""
    case = resolve_case(dict.fromkeys(("code", "law", "web"), PLENTY), weighed(code="0.5", law="0", web="0.5"))
    joins = amendment(50, {"code": "0.5", "law": "0.001", "web": "0.499"})
    with pytest.raises(UserError, match=r"domain law asks for a share but 50 sequences of 10 tokens leave it none"):
        plan_run(*changed(case, amendments=[joins]))
    fades = amendment(50, {"code": "0.001", "law": "0.5", "web": "0.499"})
    assert plan_run(*changed(case, amendments=[fades])).sequences_of("code") == 25


def test_amounts_are_those_of_the_whole_run_after_an_amendment(resolve_case: Resolve) -> None:
    """books: 2 passes over 100 tokens, 20 of 100 sequences; 10 are drawn by 50, and the other 10 follow."""
    domains = {
        "books": {"cells": "books", "epochs": "2"},
        "law": weighed(law="0.3")["law"],
        "web": {"cells": "web", "rest": True},
    }
    case = resolve_case({"books": 100, "law": PLENTY, "web": PLENTY}, domains)
    run = plan_run(*changed(case, amendments=[amendment(50, {"law": "0.8"})]))
    assert [dict(s.counts) for s in run.segments] == [
        {"books": 10, "law": 15, "web": 25},
        {"books": 10, "law": 40, "web": 0},
    ]


ASKS: list[dict[str, Any]] = [
    {"a": {"cells": "a", "tokens": 200_000}, "b": {"cells": "b", "rest": True}},
    {"a": {"cells": "a", "epochs": "2"}, "b": {"cells": "b", "rest": True}},
    {"a": {"cells": "a", "weight": "0.2"}, "b": {"cells": "b", "rest": True}},
]


@pytest.mark.parametrize("domains", ASKS)
def test_a_sample_has_the_shares_of_the_run_whatever_its_domains_ask_for(
    domains: dict[str, Any], resolve_case: Resolve
) -> None:
    """Of a million tokens the sample of b allows 4 * 1000; a has a fifth, or two passes over 500."""
    case = resolve_case({"a": 500, "b": 1000}, domains, budget=10**6)
    budget = feasible_budget(*case)
    assert budget == 5000
    run = plan_run(*case, budget)
    check_sums(run)
    assert {d: run.tokens_of(d) for d in run.domains} == {"a": 1000, "b": 4000}


@pytest.mark.parametrize("strategy", ["unimax", "uniform", "proportional", {"quality_curve": {"column": "q"}}])
def test_a_sample_of_a_strategy_keeps_to_the_caps(strategy: Any, resolve_case: Resolve) -> None:
    domains = {"a": {"cells": "a"}, "b": {"cells": "b"}}
    columns = {"q": {"a": "1", "b": "2"}}
    case = resolve_case({"a": 500, "b": 1000}, domains, columns, weights=strategy, budget=10**6)
    budget = feasible_budget(*case)
    run = plan_run(*case, budget)
    check_sums(run)
    assert budget == (4000 if strategy == "uniform" else 6000)


def test_a_sample_that_holds_nothing_of_a_domain_says_so(resolve_case: Resolve) -> None:
    for domains in (ASKS[2], {"a": {"cells": "a", "weight": "1e-4"}, "b": {"cells": "b", "rest": True}}):
        with pytest.raises(UserError, match="domain a: the sample holds nothing of it; take more of each source"):
            feasible_budget(*resolve_case({"a": 0, "b": 1000}, domains, budget=10**6))
    with pytest.raises(UserError, match="the sample is too small for one sequence of 10 tokens; domain a has 1 tokens"):
        feasible_budget(*resolve_case({"a": 1, "b": 2}, ASKS[2], budget=10**6))
    with pytest.raises(UserError, match="the weights of phase main sum to 0.9, not 1"):
        feasible_budget(*resolve_case({"a": 10, "b": 20}, weighed(a="0.2", b="0.7"), budget=10**6))
