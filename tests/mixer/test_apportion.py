from decimal import Decimal
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixer.apportion import apportion, split_phases

WEIGHTS = st.dictionaries(
    st.text(max_size=4),
    st.fractions(min_value=0, max_value=10**9, max_denominator=10**12),
    min_size=1,
    max_size=12,
).filter(lambda weights: any(weights.values()))


@settings(max_examples=50, deadline=None)
@given(total=st.integers(0, 10**13), weights=WEIGHTS)
def test_every_count_is_its_quota_rounded_down_or_up_and_they_sum_to_the_total(
    total: int, weights: dict[str, Fraction]
) -> None:
    counts = apportion(total, weights)
    whole = sum(weights.values())
    assert sum(counts.values()) == total
    assert list(counts) == list(weights)
    for name, count in counts.items():
        assert abs(count - total * weights[name] / whole) < 1


@settings(max_examples=50, deadline=None)
@given(total=st.integers(0, 10**13), weights=WEIGHTS, seed=st.integers(0, 9))
def test_key_order_and_scale_do_not_matter(total: int, weights: dict[str, Fraction], seed: int) -> None:
    names = list(weights)
    Random(seed).shuffle(names)
    assert apportion(total, {n: weights[n] * Fraction(7, 3) for n in names}) == apportion(total, weights)


@settings(max_examples=50, deadline=None)
@given(total=st.integers(0, 10**13), weights=WEIGHTS)
def test_a_larger_remainder_is_never_passed_over(total: int, weights: dict[str, Fraction]) -> None:
    counts = apportion(total, weights)
    whole = sum(weights.values())
    quotas = {name: total * weight / whole for name, weight in weights.items()}
    remainders = {name: quota - quota.__floor__() for name, quota in quotas.items()}
    up = [(remainders[n], n) for n in weights if counts[n] > quotas[n].__floor__()]
    down = [(remainders[n], n) for n in weights if counts[n] == quotas[n].__floor__()]
    for remainder, name in up:
        assert all(remainder > r or (remainder == r and name < n) for r, n in down)


def test_equal_remainders_go_to_the_smaller_name() -> None:
    third = Fraction(1, 3)
    assert apportion(10, {"c": third, "a": third, "b": third}) == {"c": 3, "a": 4, "b": 3}


def test_floats_would_lose_this_one() -> None:
    big = 10**13
    counts = apportion(big, {"a": Fraction(1, big), "b": 1 - Fraction(1, big)})
    assert counts == {"a": 1, "b": big - 1}
    assert apportion(big, {"a": Fraction(1, 2 * big + 1), "b": Fraction(2 * big, 2 * big + 1)})["a"] == 0


def test_a_weight_of_zero_gets_nothing() -> None:
    assert apportion(5, {"a": Fraction(0), "b": Fraction(1, 3), "c": Fraction(1, 3)}) == {
        "a": 0,
        "b": 3,
        "c": 2,
    }


def test_phases_tie_to_the_earlier_one() -> None:
    half = Fraction(1, 2)
    assert split_phases(7, [half, half]) == [4, 3]
    assert split_phases(10, [Fraction(70, 100), Fraction(16, 100), Fraction(14, 100)]) == [7, 2, 1]
    assert split_phases(4, [Fraction(1)] * 12) == [1] * 4 + [0] * 8


@pytest.mark.parametrize(
    ("total", "weights", "error", "text"),
    [
        (5, {"web": Fraction(0)}, ValueError, "sum to zero"),
        (5, {}, ValueError, "sum to zero"),
        (5, {"web": Fraction(-1), "code": Fraction(2)}, ValueError, "web"),
        (-5, {"web": Fraction(1)}, ValueError, "-5"),
        (5, {"web": 0.5}, TypeError, "web"),
        (5, {"web": Decimal("0.5")}, TypeError, "web"),
    ],
)
def test_bad_input(total: int, weights: dict[str, Fraction], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        apportion(total, weights)
