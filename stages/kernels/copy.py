"""Copying many spans of tokens from one array to another."""

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def copy_spans(
    source: np.ndarray, starts: np.ndarray, lengths: np.ndarray, target: np.ndarray, places: np.ndarray
) -> None:
    """Copy `source[starts[i] : starts[i] + lengths[i]]` to `target[places[i] :]` for every i.

    source, target: one-dimensional, uint16 or uint32; starts, lengths, places: int64. Spans must lie within both.
    """
    for i in range(len(starts)):
        s, t = starts[i], places[i]
        for k in range(lengths[i]):
            target[t + k] = source[s + k]
