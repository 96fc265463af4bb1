import re
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mixer.apportion import apportion
from mixer.shortfall import (
    Demand,
    Overdraft,
    Shares,
    overdrawn,
    planned,
    raise_to_floors,
    redistribute,
    smallest_changes,
    with_share,
)
from stages.errors import UserError

FAST = settings(max_examples=60, deadline=None)
Weights = dict[str, str]


def demand(sequences: int, phases: list[tuple[str, Weights]], caps: dict[str, int], **more: Any) -> Demand:
    """Sequences of 10 tokens; `caps` are in sequences: one epoch of as many tokens."""
    return Demand(
        sequence_length=10,
        sequences=sequences,
        phases=tuple(
            (f"p{i}", Fraction(s), {d: Fraction(w) for d, w in ws.items()}) for i, (s, ws) in enumerate(phases)
        ),
        supply={d: 10 * cap for d, cap in caps.items()},
        max_epochs=dict.fromkeys(caps, Fraction(1)),
        min_share={d: Fraction(floor) for d, floor in more.pop("floors", {}).items()},
        **more,
    )


def fractions(shares: Shares) -> list[dict[str, str]]:
    return [{d: str(s) for d, s in phase.items() if s} for phase in shares]


def test_one_phase_by_hand() -> None:
    """Of 100 sequences, a is asked for 50 and has 20; the 30 go to b and c as 3 to 2: b has 48 then."""
    asked = demand(100, [("1", {"a": "0.5", "b": "0.3", "c": "0.2"})], {"a": 20, "b": 90, "c": 90})
    assert fractions(redistribute(asked)) == [{"a": "1/5", "b": "12/25", "c": "8/25"}]


def test_a_domain_that_receives_too_much_is_capped_in_the_next_round() -> None:
    asked = demand(100, [("1", {"a": "0.5", "b": "0.3", "c": "0.2"})], {"a": 20, "b": 40, "c": 90})
    assert fractions(redistribute(asked)) == [{"a": "1/5", "b": "2/5", "c": "2/5"}]


def test_two_phases_by_hand() -> None:
    """60 and 40 sequences. a is asked for 30 + 10 and has 20, so half of each; what it gives up, 15 and 5, goes to b
    and c as 1 to 1 in the first phase, and all to c in the second."""
    phases = [
        ("0.6", {"a": "0.5", "b": "0.25", "c": "0.25"}),
        ("0.4", {"a": "0.25", "b": "0", "c": "0.75"}),
    ]
    asked = demand(100, phases, {"a": 20, "b": 100, "c": 100})
    assert fractions(redistribute(asked)) == [{"a": "1/4", "b": "3/8", "c": "3/8"}, {"a": "1/8", "c": "7/8"}]
    assert planned(asked, redistribute(asked)) == {"a": 20, "b": 23, "c": 57}


def test_shares_that_fit_come_back_as_they_are() -> None:
    asked = demand(100, [("3", {"a": "2", "b": "6"}), ("1", {"a": "1", "b": "0"})], {"a": 44, "b": 90})
    assert asked.sizes == (75, 25)
    assert redistribute(asked) == [{"a": Fraction(1, 4), "b": Fraction(3, 4)}, {"a": Fraction(1), "b": Fraction(0)}]
    assert overdrawn(asked) == []


def test_a_domain_without_tokens_gives_all_away() -> None:
    asked = demand(100, [("1", {"a": "0.5", "b": "0.5"})], {"a": 0, "b": 100})
    assert fractions(redistribute(asked)) == [{"b": "1"}]
    assert overdrawn(asked) == [Overdraft("a", 500, 0, None, Fraction(1))]
    changes = smallest_changes(asked, "a")
    assert (changes.max_epochs, changes.budget) == (None, 0)


def test_rounding_does_not_pass_a_cap() -> None:
    """Three phases of 3 sequences; the quotas of a are 1.8, rounded up to 2. That is 6, over a cap of 5."""
    weights = {"a": "0.6", "b": "0.4"}
    asked = demand(9, [("1", weights)] * 3, {"a": 5, "b": 9})
    assert planned(asked) == {"a": 6, "b": 3}
    shares = redistribute(asked)
    assert planned(asked, shares)["a"] <= 5
    assert shares[0] == shares[1] == shares[2]


def test_a_phase_without_sequences_keeps_its_shares() -> None:
    asked = demand(10, [("1", {"a": "0.5", "b": "0.5"}), ("0.01", {"a": "1", "b": "0"})], {"a": 2, "b": 8})
    assert asked.sizes == (10, 0)
    assert fractions(redistribute(asked)) == [{"a": "1/5", "b": "4/5"}, {"a": "1"}]


@pytest.mark.parametrize(
    ("caps", "text"),
    [
        ({"a": 20, "b": 30, "c": 99}, "phase p0: all its domains are at their max_epochs and 100 tokens lack"),
        ({"a": 20, "b": 0, "c": 99}, "phase p0: all its domains are at their max_epochs and 400 tokens lack"),
        ({"a": 0, "b": 0, "c": 99}, "600 tokens lack; no smaller budget helps; no max_epochs helps"),
    ],
)
def test_a_phase_that_cannot_be_filled(caps: dict[str, int], text: str) -> None:
    phases = [("0.6", {"a": "0.5", "b": "0.5", "c": "0"}), ("0.4", {"a": "0", "b": "0", "c": "1"})]
    with pytest.raises(UserError, match=text):
        redistribute(demand(100, phases, caps))


def test_the_smallest_relief_of_an_unfillable_phase() -> None:
    """Phase p0 is 60% of the run, and a and b have 50 sequences. A run of 84 gives it 50.4, rounded down; 1.2 epochs of
    both are 60."""
    phases = [("0.6", {"a": "0.5", "b": "0.5", "c": "0"}), ("0.4", {"a": "0", "b": "0", "c": "1"})]
    caps = {"a": 20, "b": 30, "c": 99}
    with pytest.raises(
        UserError, match=r"budget to at most 840 tokens, or raise the max_epochs that are lower to 1\.200"
    ):
        redistribute(demand(100, phases, caps))
    redistribute(demand(84, phases, caps))
    with pytest.raises(UserError):
        redistribute(demand(85, phases, caps))


def test_floors_by_hand() -> None:
    """b is raised from 10% to 20%, c from 10% to 30%; a alone is free and has the rest."""
    phase = {"a": "0.8", "b": "0.1", "c": "0.1"}
    asked = demand(100, [("1", phase)], dict.fromkeys("abc", 100), floors={"b": "0.2", "c": "0.3"})
    assert fractions(raise_to_floors(asked)) == [{"a": "1/2", "b": "1/5", "c": "3/10"}]
    assert redistribute(asked) == raise_to_floors(asked)


def test_a_floor_that_pushes_another_below_its_own() -> None:
    phase = {"a": "0.1", "b": "0.21", "c": "0.69"}
    asked = demand(100, [("1", phase)], dict.fromkeys("abc", 100), floors={"a": "0.4", "b": "0.2"})
    assert fractions(raise_to_floors(asked)) == [{"a": "2/5", "b": "1/5", "c": "2/5"}]


def test_floors_that_fill_the_run() -> None:
    asked = demand(100, [("1", {"a": "0.1", "b": "0.9"})], {"a": 100, "b": 100}, floors={"a": "0.4", "b": "0.6"})
    assert fractions(raise_to_floors(asked)) == [{"a": "2/5", "b": "3/5"}]


def test_a_floor_over_two_phases_and_a_cap() -> None:
    """b: 0 of 50 and 10 of 50, raised to 20: 40% of the second phase. a then has 50 + 30 of 60: 3/4 of each; c has the
    rest of the first phase, b and c, as 4 to 0, that of the second."""
    phases = [("1", {"a": "0.9", "b": "0", "c": "0.1"}), ("1", {"a": "0.8", "b": "0.2", "c": "0"})]
    asked = demand(100, phases, {"a": 60, "b": 90, "c": 90}, floors={"b": "0.2"})
    assert fractions(raise_to_floors(asked)) == [{"a": "9/10", "c": "1/10"}, {"a": "3/5", "b": "2/5"}]
    assert fractions(redistribute(asked)) == [{"a": "18/25", "c": "7/25"}, {"a": "12/25", "b": "13/25"}]


@pytest.mark.parametrize(
    ("floors", "text"),
    [
        ({"a": "0.6", "b": "0.5"}, r"min_share of a, b sum to 1\.1"),
        (
            {"c": "0.2"},
            r"domain c: min_share is 0\.2, that is 200 tokens, .* 150 tokens .* can have 0\.150000; .* to 1\.334",
        ),
        ({"d": "0.1"}, r"domain d: min_share is 0\.1, but no phase asks for it"),
        ({"b": "0.6"}, r"phase p0: raising b to min_share asks for 100 tokens more"),
    ],
)
def test_floors_that_cannot_be(floors: dict[str, str], text: str) -> None:
    weights = {"a": "0.5", "b": "0.4", "c": "0.1", "d": "0"}
    phases = [("1", weights), ("1", {"a": "1", "b": "0", "c": "0", "d": "0"})]
    with pytest.raises(UserError, match=text):
        redistribute(demand(100, phases, {"a": 100, "b": 100, "c": 15, "d": 100}, floors=floors))


def test_smallest_changes_by_hand() -> None:
    """a is asked for 50 of 100 sequences and has 300 tokens: 1.667 epochs, 30%, or 600 tokens, and 610 with a's
    quota of 30.5 rounded down."""
    asked = demand(100, [("1", {"b": "0.5", "a": "0.5"})], {"a": 30, "b": 99})
    assert overdrawn(asked) == [Overdraft("a", 500, 300, Fraction(5, 3), Fraction(1))]
    changes = smallest_changes(asked, "a")
    assert changes.max_epochs == Fraction("1.667")
    assert changes.share == Fraction("0.304999")
    assert changes.budget == 600
    with pytest.raises(ValueError, match="domain b is not overdrawn"):
        smallest_changes(asked, "b")


def test_the_only_domain_of_a_phase_has_no_smaller_share() -> None:
    phases = [("1", {"a": "1", "b": "0"}), ("1", {"a": "0.5", "b": "0.5"})]
    asked = demand(100, phases, {"a": 60, "b": 99})
    assert smallest_changes(asked, "a").share is None
    with pytest.raises(ValueError, match="domain a cannot have a share of 1/2"):
        with_share(asked, "a", Fraction(1, 2))


@st.composite
def demands(draw: st.DrawFn, domains: int = 6, phases: int = 3) -> Demand:
    names = [chr(97 + i) for i in range(draw(st.integers(1, domains)))]
    weights = st.lists(st.integers(0, 20), min_size=len(names), max_size=len(names)).filter(any)
    return Demand(
        sequence_length=draw(st.integers(1, 50)),
        sequences=draw(st.integers(1, 3000)),
        phases=tuple(
            (f"p{i}", Fraction(draw(st.integers(1, 5))), dict(zip(names, map(Fraction, draw(weights)), strict=True)))
            for i in range(draw(st.integers(1, phases)))
        ),
        supply={d: draw(st.integers(0, 60_000)) for d in names},
        max_epochs={d: Fraction(draw(st.integers(0, 80)), 10) for d in names},
        min_share={},
    )


def reordered(asked: Demand) -> Demand:
    names = list(asked.domains)
    Random(5).shuffle(names)
    phases = tuple((name, share, {d: weights[d] for d in names}) for name, share, weights in asked.phases)
    return replace(asked, phases=phases)


def redistributed(asked: Demand) -> Shares:
    try:
        return redistribute(asked)
    except UserError:
        assume(False)
        raise


@FAST
@given(asked=demands())
def test_redistribution(asked: Demand) -> None:
    shares = redistributed(asked)
    assert all(sum(phase.values()) == 1 for phase in shares)
    assert all(share >= 0 for phase in shares for share in phase.values())
    counts = [apportion(size, phase) for size, phase in zip(asked.sizes, shares, strict=True)]
    for domain in asked.domains:
        tokens = sum(count[domain] for count in counts) * asked.sequence_length
        assert tokens <= asked.max_epochs[domain] * asked.supply[domain]
    lowered = {d for before, now in zip(asked.shares, shares, strict=True) for d in now if now[d] < before[d]}
    for before, now in zip(asked.shares, shares, strict=True):
        ratios = {now[d] / before[d] for d in now if before[d] and d not in lowered}
        best = max(ratios, default=Fraction(1))
        assert best >= 1
        assert all(now[d] == 0 for d in now if not before[d])
        for d in now:
            if before[d] and now[d] < before[d] * best:
                assert planned(asked, shares)[d] > asked.cap[d] - 2 * len(shares) - 1
    assert fractions(redistribute(reordered(asked))) == fractions(
        [{d: phase[d] for d in reordered(asked).domains} for phase in shares]
    )
    assert redistribute(asked.with_shares(shares)) == shares
    if not overdrawn(asked):
        assert shares == asked.shares


@FAST
@given(asked=demands(domains=4))
def test_a_phase_is_refused_only_when_its_domains_are_spent(asked: Demand) -> None:
    one = replace(asked, phases=asked.phases[:1])
    used = [d for d in one.domains if one.shares[0][d]]
    room = sum(one.cap[d] for d in used)
    if room >= one.sequences:
        redistribute(one)
    else:
        lack = (one.sequences - room) * one.sequence_length
        with pytest.raises(UserError, match=f"phase p0: .* {lack} tokens lack"):
            redistribute(one)


@FAST
@given(asked=demands())
def test_each_smallest_change_does_and_a_little_less_does_not(asked: Demand) -> None:
    over = overdrawn(asked)
    assume(over)
    domain = over[0].domain
    changes = smallest_changes(asked, domain)

    def fits(**changed: Any) -> bool:
        return domain not in [o.domain for o in overdrawn(replace(asked, **changed))]

    length = asked.sequence_length
    assert changes.budget % length == 0
    assert fits(sequences=changes.budget // length)
    assert not fits(sequences=changes.budget // length + 1)
    if changes.max_epochs is not None:
        assert fits(max_epochs={**asked.max_epochs, domain: changes.max_epochs})
        assert not fits(max_epochs={**asked.max_epochs, domain: changes.max_epochs - Fraction(1, 1000)})
    if changes.share is not None:
        need = sum((p[domain] * n for p, n in zip(asked.shares, asked.sizes, strict=True)), Fraction(0))
        now = need / asked.sequences
        assert fits(phases=with_share(asked, domain, changes.share).phases)
        assert not fits(phases=with_share(asked, domain, min(now, changes.share + Fraction(1, 10**6))).phases)


@FAST
@given(asked=demands(), parts=st.lists(st.integers(0, 10), min_size=6, max_size=6))
def test_floors_hold(asked: Demand, parts: list[int]) -> None:
    total = max(1, sum(parts))
    floors = {d: Fraction(part, 2 * total) for d, part in zip(asked.domains, parts, strict=False)}
    with_floors = replace(asked, min_share=floors)
    shares = redistributed(with_floors)
    counts = planned(with_floors, shares)
    for domain, least in floors.items():
        assert counts[domain] > least * asked.sequences - 2 * len(shares) - 1
        assert counts[domain] <= with_floors.cap[domain]
    raised = raise_to_floors(with_floors)
    assert all(sum(phase.values()) == 1 for phase in raised)
    for domain, least in floors.items():
        need = sum(p[domain] * n for p, n in zip(raised, asked.sizes, strict=True))
        assert need >= least * asked.sequences


@FAST
@given(asked=demands(domains=3, phases=2))
def test_the_relief_that_a_refusal_names_is_true_and_smallest(asked: Demand) -> None:
    try:
        redistribute(asked)
        assume(False)
    except UserError as error:
        text = str(error)

    def works(**changed: Any) -> bool:
        try:
            redistribute(replace(asked, **changed))
        except UserError:
            return False
        return True

    if budget := re.search(r"at most (\d+) tokens", text):
        sequences = int(budget[1]) // asked.sequence_length
        assert works(sequences=sequences)
        assert not works(sequences=sequences + 1)
    if epochs := re.search(r"lower to (\S+)$", text):
        least = Fraction(epochs[1])
        assert works(max_epochs={d: max(e, least) for d, e in asked.max_epochs.items()})
        less = least - Fraction(1, 1000)
        assert not works(max_epochs={d: max(e, less) for d, e in asked.max_epochs.items()})


def test_two_hundred_cells_in_three_phases() -> None:
    """Caps that bind in several rounds: the numbers stay small enough to be quick."""
    random = Random(1)
    names = [f"c{i:03d}" for i in range(200)]
    phases = [(share, {d: str(random.randrange(10**8, 10**9)) for d in names}) for share in ("0.7", "0.2", "0.1")]
    asked = demand(10**7, phases, {d: int(10**5 * random.uniform(0.2, 0.9)) for d in names})
    shares = redistribute(asked)
    assert all(sum(phase.values()) == 1 for phase in shares)
    counts = planned(asked, shares)
    full = [d for d in names if counts[d] > asked.cap[d] - 10]
    assert len(full) > 100
    assert max(share.denominator for phase in shares for share in phase.values()) < 10**90
    assert all(counts[d] <= asked.cap[d] for d in names)
