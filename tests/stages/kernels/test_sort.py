import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.kernels.sort import argsort_ids, group_starts


def check(hi: np.ndarray, lo: np.ndarray) -> None:
    order = argsort_ids(hi, lo)
    assert order.dtype == np.int64
    assert np.array_equal(order, np.lexsort((lo, hi)))
    starts = group_starts(hi, lo, order)
    ids = [int(h) << 64 | int(v) for h, v in zip(hi[order], lo[order], strict=True)]
    assert starts.tolist() == [k for k in range(len(ids)) if k == 0 or ids[k] != ids[k - 1]] + [len(ids)]


words = st.one_of(st.integers(0, 2), st.integers(0, 2**64 - 1), st.sampled_from([2**63, 2**63 - 1, 2**64 - 1]))


@settings(deadline=None)
@given(st.lists(st.tuples(words, words)))
def test_any_ids(ids: list[tuple[int, int]]) -> None:
    columns = np.array(ids, np.uint64).reshape(-1, 2)
    check(columns[:, 0].copy(), columns[:, 1].copy())


@pytest.mark.parametrize("n", [0, 1, 33, 20_000])
def test_random_ids_with_duplicates(n: int) -> None:
    rng = np.random.default_rng(n)
    hi, lo = rng.integers(0, 2**64, (2, n), dtype=np.uint64)
    hi[: n // 4] = hi[n // 2 : n // 2 + n // 4]
    lo[: n // 8] = lo[n // 2 : n // 2 + n // 8]
    check(hi, lo)


def test_ids_that_are_not_random() -> None:
    n = 20_000
    rng = np.random.default_rng(5)
    small = rng.integers(0, 50, n).astype(np.uint64)
    random = rng.integers(0, 2**64, n, dtype=np.uint64)
    zero = np.zeros(n, np.uint64)
    for hi, lo in (
        (zero, random),
        (small, random),
        (random, zero),
        (zero, zero),
        (small, small),
        (np.sort(random), lo_of(n)),
    ):
        check(hi, lo)


def lo_of(n: int) -> np.ndarray:
    return np.arange(n, 0, -1).astype(np.uint64)


def test_columns_of_different_length() -> None:
    with pytest.raises(ValueError, match="shape"):
        argsort_ids(np.zeros(2, np.uint64), np.zeros(3, np.uint64))
