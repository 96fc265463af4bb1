from fractions import Fraction
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mixer.weights import STRATEGIES, from_table, proportional, quality_curve, temperature, uniform, unimax
from stages.errors import UserError

CELLS = st.dictionaries(st.text("abcde", min_size=1, max_size=3), st.integers(0, 10**13), min_size=1, max_size=12)
TOKENS = CELLS.filter(lambda cells: any(cells.values()))
FAST = settings(max_examples=60, deadline=None)


def shuffled(cells: dict[str, int]) -> dict[str, int]:
    names = sorted(cells)
    Random(3).shuffle(names)
    return {name: cells[name] for name in names}


def test_proportional_and_uniform_by_hand() -> None:
    cells = {"a": 1, "b": 3, "c": 0}
    assert proportional(cells) == {"a": Fraction(1, 4), "b": Fraction(3, 4), "c": 0}
    assert uniform(cells) == dict.fromkeys("abc", Fraction(1, 3))


def test_temperature_by_hand() -> None:
    cells = {"a": 4, "b": 9, "c": 0}
    assert temperature(cells, t=Fraction(1)) == proportional(cells)
    assert temperature(cells, t=Fraction(0)) == uniform(cells)
    assert temperature(cells, t=Fraction(2)) == {"a": Fraction(16, 97), "b": Fraction(81, 97), "c": 0}
    half = temperature(cells, t=Fraction(1, 2))
    assert abs(half["a"] - Fraction(2, 5)) < Fraction(1, 10**29)
    assert half["c"] == 0


def test_temperature_is_the_same_everywhere() -> None:
    """Digits that every machine and every version of Python has to find again; checked with powers of 100 digits."""
    weights = temperature({"en": 3_008_800_000_000, "sw": 2_750_000_000, "fo": 549_707_867}, t=Fraction(3, 10))
    assert [f"{w.numerator * 10**30 // w.denominator:030d}" for w in weights.values()] == [
        "834626256524433588881119127509",
        "102276028402176634396408498417",
        "063097715073389776722472374072",
    ]


@FAST
@given(cells=TOKENS, t=st.fractions(0, 3, max_denominator=1000))
def test_temperature_keeps_the_order_of_sizes(cells: dict[str, int], t: Fraction) -> None:
    weights = temperature(cells, t=t)
    assert sum(weights.values()) == 1
    assert weights == temperature(shuffled(cells), t=t)
    by_size = sorted(cells, key=lambda cell: cells[cell])
    assert [weights[c] for c in by_size] == sorted(weights.values())


@pytest.mark.parametrize("t", [Fraction(-1, 2), Fraction(11)])
def test_temperature_out_of_range(t: Fraction) -> None:
    with pytest.raises(UserError, match=str(t)):
        temperature({"a": 1}, t=t)


def test_unimax_published_example() -> None:
    """README of the PyPI package unimax-sampling 1.0.0: five languages of FineWeb-2, in characters."""
    cells = {
        "swe": 179955884499,
        "fas": 184595788282,
        "ekk": 42541080893,
        "isl": 10027573389,
        "fao": 549707867,
    }
    budget = 250_000_000_000
    weights = unimax(cells, budget=budget, max_epochs=Fraction(4))
    assert weights["fao"] == Fraction("0.008795325872")
    assert weights["isl"] == Fraction("0.160441174224")
    for language, epochs in (("ekk", 1.627375003300828), ("swe", 0.3847070177860806), ("fas", 0.37503722215431134)):
        assert weights[language] * budget == Fraction(budget - 4 * (10027573389 + 549707867), 3)
        assert float(weights[language]) == pytest.approx(0.2769211666346667, rel=1e-15)
        assert float(weights[language] * budget / cells[language]) == pytest.approx(epochs, rel=1e-15)


@FAST
@given(cells=TOKENS, max_epochs=st.fractions(Fraction(1, 10), 9, max_denominator=10), part=st.fractions(0, 1))
def test_unimax_is_as_even_as_the_cap_allows(cells: dict[str, int], max_epochs: Fraction, part: Fraction) -> None:
    budget = int(max_epochs * sum(cells.values()) * part)
    assume(budget)
    weights = unimax(cells, budget=budget, max_epochs=max_epochs)
    assert sum(weights.values()) == 1
    assert weights == unimax(shuffled(cells), budget=budget, max_epochs=max_epochs)
    level = max(weights.values())
    for cell, count in cells.items():
        assert weights[cell] == min(level, max_epochs * count / budget)


def test_unimax_that_cannot_be_filled() -> None:
    with pytest.raises(UserError, match="41 tokens are more than max_epochs allows; ask for at most 40"):
        unimax({"a": 4, "b": 6}, budget=41, max_epochs=Fraction(4))
    assert unimax({"a": 4, "b": 6}, budget=40, max_epochs=Fraction(4)) == {"a": Fraction(2, 5), "b": Fraction(3, 5)}


QUALITY = {"a": Fraction(0), "b": Fraction(1), "c": Fraction(2), "d": Fraction(3)}


def curve(cells: dict[str, int], budget: int, max_epochs: Fraction | int, **more: Fraction) -> dict[str, Fraction]:
    """Passes over each cell."""
    weights = quality_curve(cells, quality=QUALITY, budget=budget, max_epochs=Fraction(max_epochs), **more)
    assert sum(weights.values()) == 1
    return {cell: weights[cell] * budget / count if count else Fraction(0) for cell, count in cells.items()}


def test_quality_curve_linear_by_hand() -> None:
    """Two equal cells, drawn once on average: the linear ramp 2x has means 1/2 and 3/2; one of a half is dropped."""
    cells = {"a": 100, "b": 100}
    assert curve(cells, 200, 4, power=Fraction(1)) == {"a": Fraction(1, 2), "b": Fraction(3, 2)}
    found = curve(cells, 200, Fraction(3, 2))
    assert Fraction(3, 2) - Fraction(1, 10**9) < found["b"] <= Fraction(3, 2)
    assert curve(cells, 200, 4, drop=Fraction(1, 2)) == {"a": 0, "b": 2}
    assert curve({**cells, "c": 100}, 300, 9, drop=Fraction(1, 2), power=Fraction(0)) == {"a": 0, "b": 1, "c": 2}


def test_quality_curve_ties_and_empty_cells() -> None:
    cells = {"x": 30, "y": 70, "z": 100, "none": 0}
    quality = {"x": Fraction(1), "y": Fraction(1), "z": Fraction(2), "none": Fraction(9)}
    weights = quality_curve(cells, quality=quality, budget=200, max_epochs=Fraction(4), power=Fraction(1))
    assert weights == {"x": Fraction(3, 40), "y": Fraction(7, 40), "z": Fraction(3, 4), "none": 0}


def test_quality_curve_of_twenty_buckets() -> None:
    """As in OLMo 3: 20 equal buckets, the lowest 40% dropped, at most 7 passes, 2.5 on average. The exponent is
    0.733370; the digits are the same on every machine."""
    cells = {f"q{i:02d}": 10**9 for i in range(20)}
    quality = {cell: Fraction(i) for i, cell in enumerate(cells)}
    settings_: dict[str, Any] = {"quality": quality, "max_epochs": Fraction(7), "drop": Fraction(2, 5)}
    weights = quality_curve(cells, budget=50 * 10**9, **settings_)
    passes = [round(float(50 * w), 6) for w in weights.values()]
    assert passes[:8] == [0] * 8
    assert passes[8:] == [
        *(0.673519, 1.565956, 2.283013, 2.923845, 3.516514, 4.074587),
        *(4.605994, 5.115895, 5.607894, 6.084639, 6.548146, 7.0),
    ]
    assert sum(weights.values()) == 1
    with pytest.raises(UserError, match="ask for at most 84000000000"):
        quality_curve(cells, budget=84 * 10**9 + 1, **settings_)
    flat = quality_curve(cells, budget=84 * 10**9, **settings_)
    assert set(flat.values()) == {Fraction(0), Fraction(1, 12)}


@FAST
@given(
    tokens=st.lists(st.integers(1, 10**12), min_size=1, max_size=4),
    drop=st.fractions(0, Fraction(9, 10), max_denominator=20),
    max_epochs=st.fractions(Fraction(1, 2), 9, max_denominator=10),
    part=st.fractions(Fraction(1, 10), 1, max_denominator=100),
    power=st.fractions(0, 4, max_denominator=10),
)
def test_quality_curve_rises_to_at_most_the_cap(
    tokens: list[int], drop: Fraction, max_epochs: Fraction, part: Fraction, power: Fraction
) -> None:
    cells = dict(zip("abcd", tokens, strict=False))
    total = sum(tokens)
    budget = int(max_epochs * total * (1 - drop) * part)
    assume(budget)
    passes = curve(cells, budget, max_epochs, drop=drop, power=power)
    values = list(passes.values())
    assert values == sorted(values)
    assert values[-1] <= max_epochs
    below = 0
    for cell, count in cells.items():
        below += count
        assert (passes[cell] == 0) == (below <= drop * total)
    assert passes == curve(shuffled(cells), budget, max_epochs, drop=drop, power=power)
    if power and sum(1 for value in values if value) > 1:
        steepest = curve(cells, budget, 10**13, drop=drop, power=power)
        assert values[-1] == steepest[cell] or values[-1] > max_epochs * (1 - Fraction(1, 10**6))


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"drop": Fraction(1)}, "drop is 1"),
        ({"power": Fraction(-1)}, "power is -1"),
        ({"budget": 0}, "budget of these cells is 0"),
        ({"budget": 1000}, "at most 800, or raise max_epochs"),
    ],
)
def test_quality_curve_bad_settings(more: dict[str, Any], text: str) -> None:
    base: dict[str, Any] = {"quality": QUALITY, "budget": 200, "max_epochs": Fraction(4)}
    with pytest.raises(UserError, match=text):
        quality_curve({"a": 100, "b": 100}, **{**base, **more})


def test_from_table_is_raw_and_complete() -> None:
    values = {"a": Fraction(1, 2), "b": Fraction(1, 3)}
    assert from_table({"b": 1, "a": 1}, values=values, origin="w.csv:p1") == values
    with pytest.raises(UserError, match=r"w.csv:p1: no weight for c;"):
        from_table({"a": 1, "b": 1, "c": 1}, values=values, origin="w.csv:p1")
    with pytest.raises(UserError, match=r"w.csv:p1: weights for b, which"):
        from_table({"a": 1}, values=values, origin="w.csv:p1")


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("proportional", {}),
        ("temperature", {"t": Fraction(1, 2)}),
        ("unimax", {"budget": 5, "max_epochs": Fraction(4)}),
        ("quality_curve", {"budget": 5, "max_epochs": Fraction(4), "quality": QUALITY}),
    ],
)
def test_no_tokens_to_weigh(name: str, more: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="a, b have no tokens"):
        STRATEGIES[name]({"b": 0, "a": 0}, **more)


def test_no_cells() -> None:
    with pytest.raises(UserError, match="no tokens|no cell"):
        uniform({})


def test_the_names_of_a_spec() -> None:
    assert set(STRATEGIES) == {"proportional", "uniform", "temperature", "unimax", "quality_curve", "csv"}
