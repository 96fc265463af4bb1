"""Blocks of text that a document repeats: menus, footers, and pages that hold their own content twice.

A block is a run of consecutive words (of `stages.kernels.shingles`: ASCII letters in lower case, punctuation and
spacing ignored) that stands in the document once more, earlier and without overlap. Duplicate n-grams of at most 10
words, as counted for the rules of Gopher (Rae et al. 2021, table A1), also find phrases that any long text comes back
to. A run of `BLOCK_WORDS` = 20 words is a copied passage. Lee et al. 2022 ("Deduplicating training data makes language
models better", section 4.1) take 50 tokens, some 35 words, for matches between documents; one document has far fewer
chances of a match. Of essays and novels 20-word blocks cover 0.3% and 0.002% (5-word ones 3.9% and 0.3%), and no such
document has a tenth of its text in them; of manual pages 5% do.
"""

import numpy as np
import numpy.typing as npt
from numba import njit

from stages.kernels.repetition import mark_repeated
from stages.kernels.shingles import BASE, WORDS, Hashes, base_power, most_units, next_word
from stages.kernels.text import Bytes, Int, first_slot, mix, table_bits

BLOCK_WORDS = 20
"""Words from which on a repeated run is a block."""
VERSION = 1
"""Version of the counts: for the same text they may not change unless this does."""

_FREE = np.uint64(0)
_1 = np.uint64(1)


@njit(cache=True, nogil=True)
def _first_place(key: np.uint64, place: Int, keys: Hashes, places: npt.NDArray[np.int64], bits: Int) -> Int:
    """The place with which the non-zero `key` entered the table of 2^bits slots; it enters with `place` if new."""
    slot = first_slot(key, bits)
    while keys[slot] != _FREE:
        if keys[slot] == key:
            return places[slot]
        slot = (slot + 1) & ((1 << bits) - 1)
    keys[slot] = key
    places[slot] = place
    return place


@njit(cache=True, nogil=True)
def _write_words(data: Bytes, start: Int, stop: Int, digests: Hashes, spans: npt.NDArray[np.int64]) -> Int:
    """Write the hash and the span in bytes of each word of data[start:stop]; return the words."""
    words = 0
    at = start
    while True:
        digest, first, at = next_word(data, at, stop)
        if first >= stop:
            return words
        digests[words] = digest
        spans[words, 0] = first
        spans[words, 1] = at
        words += 1


@njit(cache=True, nogil=True)
def _hash_runs(digests: Hashes, words: Int, n: Int, power: np.uint64) -> Int:
    """Replace each word's hash by that of the run of n words it starts, never 0; return the runs."""
    if words < n:
        return 0
    rolling = np.uint64(0)
    for at in range(n):
        rolling = rolling * BASE + digests[at]
    for at in range(words - n + 1):
        leaving = digests[at]
        digests[at] = mix(rolling, np.uint64(n)) | _1
        if at + n < words:
            rolling = rolling * BASE + digests[at + n] - leaving * power
    return words - n + 1


@njit(cache=True, nogil=True)
def _repeated(data, offsets, n):  # type: ignore[no-untyped-def]
    rows = len(offsets) - 1
    most = 1
    for row in range(rows):
        most = max(most, most_units(WORDS, offsets[row + 1] - offsets[row]))
    power = base_power(n)
    runs = np.empty(most, np.uint64)
    spans = np.empty((most, 2), np.int64)
    marks = np.empty(4 << table_bits(most), np.uint8)
    keys = np.empty(1 << table_bits(most), np.uint64)
    places = np.empty(1 << table_bits(most), np.int64)
    found = np.zeros(rows, np.int64)
    for row in range(rows):
        words = _write_words(data, offsets[row], offsets[row + 1], runs, spans)
        last = _hash_runs(runs, words, n, power)
        if last <= n:
            continue
        mark_bits = mark_repeated(runs, last, marks)
        candidates = 0
        for at in range(last):
            candidates += marks[first_slot(runs[at], mark_bits)] > 1
        bits = table_bits(candidates)
        keys[: 1 << bits] = _FREE
        covered = offsets[row]
        for at in range(last if candidates else 0):
            if marks[first_slot(runs[at], mark_bits)] > 1 and _first_place(runs[at], at, keys, places, bits) <= at - n:
                after = spans[at + n - 1, 1]
                found[row] += after - max(covered, spans[at, 0])
                covered = after
    return found


def repeated_blocks(data: Bytes, offsets: npt.NDArray[np.int64], words: int = BLOCK_WORDS) -> npt.NDArray[np.int64]:
    """``int64[rows]``: bytes of every row that lie in a repeated block of at least `words` words.

    ``data: uint8[:]``, ``offsets: int64[rows + 1]``. A run of `words` words is repeated if an equal one ends before
    it starts; the bytes from the first to the last word of such runs count, each once, the first copy not at all. So
    of a text that stands k times in a document nearly (k - 1) / k is repeated, and one word k times over counts from
    its word `words` + 1 on. Runs are equal when their 63-bit hashes are. Time is linear in the text, work space up to
    50 bytes of address space for each byte of the largest row, of which the part that its words need is used.

    Raises ValueError for `words` below 1.
    """
    if words < 1:
        raise ValueError(f"a block has at least one word, not {words}")
    found: npt.NDArray[np.int64] = _repeated(data, offsets, words)
    return found
