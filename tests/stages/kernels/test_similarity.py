"""Exact overlaps of pairs, and ratios against thresholds."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages import similarity
from stages.kernels.similarity import GALLOP, overlaps

number = st.one_of(st.integers(0, 40), st.sampled_from([2**63, 2**64 - 1, 2**64 - 2]))
few = st.sets(number, max_size=12)
many = st.builds(lambda a, b: a | set(range(b)), few, st.sampled_from([0, 30, 400]))


def packed(sets: list[set[int]]) -> tuple[np.ndarray, np.ndarray]:
    starts = np.zeros(len(sets) + 1, np.int64)
    np.cumsum([len(s) for s in sets], out=starts[1:])
    return np.array([h for s in sets for h in sorted(s)], np.uint64), starts


@given(st.lists(st.tuples(st.one_of(few, many), st.one_of(few, many)), min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_overlaps_are_those_of_sets(pairs: list[tuple[set[int], set[int]]]) -> None:
    a, b = [p[0] for p in pairs], [p[1] for p in pairs]
    rows = np.arange(len(pairs))[::-1].copy()
    common, size_a, size_b = overlaps(*packed(a), rows, *packed(b), rows)
    assert common.tolist() == [len(x & y) for x, y in pairs][::-1]
    assert size_a.tolist() == [len(x) for x in a][::-1]
    assert size_b.tolist() == [len(y) for y in b][::-1]


@pytest.mark.parametrize("size", [GALLOP - 1, GALLOP, GALLOP + 1, 5000])
def test_galloping_and_walking_agree(size: int) -> None:
    rng = np.random.default_rng(size)
    large = set(rng.integers(0, 2**64, 10 * size, dtype=np.uint64).tolist())
    small = set(sorted(large)[::97]) | set(rng.integers(0, 2**64, 10, dtype=np.uint64).tolist())
    sets = packed([small, large])
    common, _, _ = overlaps(*sets, np.array([0, 1, 1]), *sets, np.array([1, 0, 1]))
    assert common.tolist() == [len(small & large)] * 2 + [len(large)]


def test_rows_must_pair() -> None:
    sets = packed([{1}])
    with pytest.raises(ValueError, match="2 rows"):
        overlaps(*sets, np.array([0, 0]), *sets, np.array([0]))


def test_ratios() -> None:
    common, a, b = np.array([4, 5, 0, 0, 7]), np.array([5, 5, 0, 3, 10]), np.array([4, 5, 0, 0, 7])
    assert [list(x) for x in similarity.resemblance(common, a, b)] == [[4, 5, 0, 0, 7], [5, 5, 0, 3, 10]]
    assert [list(x) for x in similarity.containment(common, a, b)] == [[4, 5, 0, 0, 7], [4, 5, 0, 0, 7]]
    reached = similarity.reaches(*similarity.resemblance(common, a, b), Fraction("0.8"))
    assert reached.tolist() == [True, True, False, False, False]


@given(st.integers(0, 2**42 - 1), st.integers(1, 2**42 - 1), st.decimals("0.000001", 1, places=6))
def test_a_threshold_is_compared_exactly(numerator: int, denominator: int, threshold: object) -> None:
    exact = Fraction(str(threshold))
    found = similarity.reaches(np.array([numerator]), np.array([denominator]), exact)
    assert bool(found[0]) == (Fraction(numerator, denominator) >= exact)


@pytest.mark.parametrize("threshold", [Fraction(0), Fraction(11, 10), Fraction(1, 10**7)])
def test_thresholds_out_of_range(threshold: Fraction) -> None:
    with pytest.raises(ValueError, match="threshold"):
        similarity.reaches(np.array([1]), np.array([1]), threshold)
