"""Buffers that the document kernels share, sized once by the largest document of a batch."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stages.kernels.text import table_bits

FIRST, AFTER, FIRST_CHARACTER, CHARACTERS_AFTER, BREAKS, SOLID = range(6)
"""Columns of `Scratch.lines`: byte span, character span, newlines that follow, whether a non-space stands in
it.
"""


class Scratch(NamedTuple):
    """Work space of one thread; contents are garbage between documents.

    A document of b bytes has at most b / 2 words and b / 2 + 2 lines. Pages that no document touches cost no
    memory.
    """

    digests: npt.NDArray[np.uint64]
    """Digest of each word."""
    reach: npt.NDArray[np.int64]
    """Characters in the words before the n-th, one entry more than words."""
    grams: npt.NDArray[np.uint64]
    """Hash of the n-gram that starts at each word."""
    powers: npt.NDArray[np.uint64]
    """`text.digest_power` of each word's length."""
    places: npt.NDArray[np.int64]
    """Slot of each n-gram, then whether it is repeated."""
    lines: npt.NDArray[np.int64]
    """Lines between runs of newlines, shape (n, 6): see `FIRST`."""
    slots: npt.NDArray[np.uint64]
    """Open-addressing table, zeroed by whoever uses it."""
    marks: npt.NDArray[np.uint8]
    """Table of counters that saturate, zeroed by whoever uses it."""
    line: npt.NDArray[np.uint8]
    """One line, rewritten."""


def make_scratch(largest: int) -> Scratch:
    """Buffers for documents of up to `largest` bytes."""
    words = largest // 2 + 2
    return Scratch(
        digests=np.empty(words, np.uint64),
        reach=np.empty(words + 1, np.int64),
        grams=np.empty(words, np.uint64),
        powers=np.empty(words, np.uint64),
        places=np.empty(words, np.int64),
        lines=np.empty((words, 6), np.int64),
        slots=np.empty(2 << table_bits(words), np.uint64),
        marks=np.empty(4 << table_bits(words), np.uint8),
        line=np.empty(largest + 1, np.uint8),
    )
