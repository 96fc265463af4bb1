"""Exact intersections of sorted sets, for pairs of documents that may be near duplicates."""

import numpy as np
import numpy.typing as npt
from numba import njit

from stages.kernels.text import Int

Hashes = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]

GALLOP = 16
"""A set this many times as large as the other is searched, not walked."""


@njit(cache=True, nogil=True)
def _walk(a: Hashes, first_a: Int, after_a: Int, b: Hashes, first_b: Int, after_b: Int) -> Int:
    common = 0
    while first_a < after_a and first_b < after_b:
        x, y = a[first_a], b[first_b]
        common += x == y
        first_a += x <= y
        first_b += y <= x
    return common


@njit(cache=True, nogil=True)
def _gallop(small: Hashes, first: Int, after: Int, large: Hashes, low: Int, stop: Int) -> Int:
    """For each of the small set, double the step in the large one, then halve it (Bentley, Yao 1976)."""
    common = 0
    for at in range(first, after):
        wanted = small[at]
        step = 1
        high = low
        while high < stop and large[high] < wanted:
            low = high + 1
            high += step
            step *= 2
        high = min(high, stop)
        while low < high:
            middle = (low + high) // 2
            if large[middle] < wanted:
                low = middle + 1
            else:
                high = middle
        if low == stop:
            break
        common += large[low] == wanted
    return common


@njit(cache=True, nogil=True)
def _overlaps(hashes_a, starts_a, rows_a, hashes_b, starts_b, rows_b):  # type: ignore[no-untyped-def]
    pairs = len(rows_a)
    common = np.empty(pairs, np.int64)
    sizes_a = np.empty(pairs, np.int64)
    sizes_b = np.empty(pairs, np.int64)
    for pair in range(pairs):
        first_a, after_a = starts_a[rows_a[pair]], starts_a[rows_a[pair] + 1]
        first_b, after_b = starts_b[rows_b[pair]], starts_b[rows_b[pair] + 1]
        size_a, size_b = after_a - first_a, after_b - first_b
        if size_a > GALLOP * size_b:
            common[pair] = _gallop(hashes_b, first_b, after_b, hashes_a, first_a, after_a)
        elif size_b > GALLOP * size_a:
            common[pair] = _gallop(hashes_a, first_a, after_a, hashes_b, first_b, after_b)
        else:
            common[pair] = _walk(hashes_a, first_a, after_a, hashes_b, first_b, after_b)
        sizes_a[pair], sizes_b[pair] = size_a, size_b
    return common, sizes_a, sizes_b


def overlaps(
    hashes_a: Hashes, starts_a: Numbers, rows_a: Numbers, hashes_b: Hashes, starts_b: Numbers, rows_b: Numbers
) -> tuple[Numbers, Numbers, Numbers]:
    """``(common, size_a, size_b)``, each ``int64[pairs]``: of pair i, how many hashes set ``rows_a[i]`` of a and set
    ``rows_b[i]`` of b have in common, and how many each has.

    Sets are those of `shingles.shingle_sets`: ``hashes: uint64[total]``, ``starts: int64[sets + 1]``, each ascending
    without repetition; a and b may be the same. A pair takes time linear in both sizes, or in the smaller one times
    the logarithm of the larger when that is more than `GALLOP` times as large. Raises ValueError if the numbers of
    rows differ.
    """
    if len(rows_a) != len(rows_b):
        raise ValueError(f"{len(rows_a)} rows of a, {len(rows_b)} of b")
    common, sizes_a, sizes_b = _overlaps(hashes_a, starts_a, rows_a, hashes_b, starts_b, rows_b)
    return common, sizes_a, sizes_b
