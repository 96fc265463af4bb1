"""Shingle sets: a document as the set of its runs of n consecutive units, for resemblance and containment.

Broder 1997 ("On the resemblance and containment of documents", section 2) calls a run of w tokens a shingle, the
set of them S(D, w), |S(A) ∩ S(B)| / |S(A) ∪ S(B)| the resemblance of A and B and |S(A) ∩ S(B)| / |S(A)| the
containment of A in B. Units are, by kind:

- `words`, for prose: the words of `stages.kernels.words` with ASCII letters in lower case. Nothing else is folded. A
  digit keeps its value: pages made from one template differ in little but dates, names and numbers, and those are
  what a model is to learn from them.
- `lines`, for code, lists and tables: the lines between newlines that hold at least one letter or number, white space
  at both ends left out and elsewhere replaced by one space. Case stays, since it has a meaning in code; indentation
  does not. Blank lines and lone brackets are no units.

A text of u units has max(0, u - n + 1) shingles, so one shorter than n has none and nothing can be said about it.
Shingles are equal when their 64-bit hashes are: among a billion distinct ones some 0.03 pairs collide by chance, and
a text may be built to collide.
"""

import numpy as np
import numpy.typing as npt
from numba import njit

from stages.kernels.classes import ASCII, JOINER, KIND, LETTER, SPACE, UNSPACED, class_of
from stages.kernels.eight import HIGH_BITS, first_bytes, first_flag, graphic, letters, load, lower, not_ascii
from stages.kernels.text import Bytes, Int, decode, mix
from stages.kernels.words import scan_word

VERSION = 1
"""Version of the units and their hashes: a shingle's hash may not change unless this does."""

WORDS, LINES = range(2)
"""Kinds of units inside kernels."""
KINDS = {"words": WORDS, "lines": LINES}
"""Names of the kinds of units, for specs and recipes."""
DEFAULT_N = {"words": 5, "lines": 2}
"""Units in a shingle that suit the kind. Two lines: in 6,300 Go and Rust files, of 67 pairs that share 0.8 of their
lines 22 share less than 0.7 of their 5-word shingles (fields in another order, steps of one tutorial), of 28 pairs that
share 0.8 of their pairs of lines none does; runs of 3 and 5 lines lose more pairs and gain nothing. Short files that
share little but a licence header are alike in words (140 of these pairs above 0.8) and not in lines.
"""

Hashes = npt.NDArray[np.uint64]

BASE = np.uint64(0x9E6C63D0876A9A4B)
"""Base of the polynomial over unit hashes, 3 modulo 8, so that differences of its first 8 powers have at most 4
factors of 2.
"""

_NEWLINE = 10


@njit(cache=True, nogil=True, forceinline=True)
def _hash_word(data: Bytes, at: Int, stop: Int) -> np.uint64:
    """Hash of the bytes in lower case: all whole blocks of eight, then the rest and the length together."""
    state = np.uint64(0)
    length = np.uint64(stop - at)
    while stop - at >= 8:
        state = mix(state, lower(load(data, at, stop)))
        at += 8
    return mix(state ^ length, lower(load(data, at, stop)) if at < stop else np.uint64(0))


@njit(cache=True, nogil=True, forceinline=True)
def _hash_bytes(data: Bytes, at: Int, stop: Int) -> np.uint64:
    state = np.uint64(0)
    length = np.uint64(stop - at)
    while stop - at >= 8:
        state = mix(state, load(data, at, stop))
        at += 8
    return mix(state ^ length, load(data, at, stop) if at < stop else np.uint64(0))


@njit(cache=True, nogil=True, forceinline=True)
def _find_word(data: Bytes, at: Int, stop: Int) -> Int:
    while at < stop:
        eight = load(data, at, stop)
        place = first_flag(letters(eight) | not_ascii(eight))
        at += place
        if place == 8:
            continue
        if data[at] < 0x80:
            return at
        code, after = decode(data, at, stop)
        kind = class_of(code) & KIND
        if kind in (LETTER, UNSPACED):
            return at
        at = after
    return stop


@njit(cache=True, nogil=True, forceinline=True)
def next_word(data: Bytes, at: Int, stop: Int) -> tuple[np.uint64, Int, Int]:
    """Hash, first byte and byte after of the first word in data[at:stop]; (0, stop, stop) if there is none."""
    start = _find_word(data, at, stop)
    at = start
    state = np.uint64(0)
    block = np.uint64(0)
    while at < stop:
        eight = load(data, at, stop)
        place = first_flag(letters(eight) ^ HIGH_BITS)
        at += place
        if place < 8:
            block = first_bytes(lower(eight), place)
            break
        state = mix(state, lower(eight))
    if at < stop and (data[at] >= 0x80 or ASCII[data[at]] & KIND == JOINER):
        at = scan_word(data, start, stop)[0]
        return _hash_word(data, start, at), start, at
    return mix(state ^ np.uint64(at - start), block), start, at


@njit(cache=True, nogil=True, forceinline=True)
def _find_space(data: Bytes, at: Int, stop: Int) -> tuple[Int, bool]:
    """The first white space from `at` on, or `stop`, and whether a letter or number stands before it."""
    solid = False
    while at < stop:
        eight = load(data, at, stop)
        place = first_flag(graphic(eight) ^ HIGH_BITS)
        at += place
        if place == 8:
            solid |= letters(eight) != np.uint64(0)
            continue
        solid |= first_bytes(letters(eight), place) != np.uint64(0)
        if at >= stop:
            break
        code, after = decode(data, at, stop)
        found = np.int64(class_of(code))
        if found & SPACE:
            return at, solid
        solid |= found & KIND == LETTER or found & KIND == UNSPACED
        at = after
    return stop, solid


@njit(cache=True, nogil=True, forceinline=True)
def next_line(data: Bytes, at: Int, stop: Int) -> tuple[np.uint64, Int, Int]:
    """Hash, first byte and byte after (its newline is not part of it) of the first line in data[at:stop] that is a
    unit; (0, stop, stop) if there is none. `at` is the start of the text or the byte after a line.
    """
    start = at
    state = np.uint64(0)
    solid = False
    while at < stop:
        code, after = decode(data, at, stop)
        if code == _NEWLINE:
            if solid:
                return state, start, at
            start = after
            state = np.uint64(0)
        elif not class_of(code) & SPACE:
            after, some = _find_space(data, at, stop)
            solid |= some
            state = mix(state, _hash_bytes(data, at, after))
        at = after
    if solid:
        return state, start, stop
    return np.uint64(0), stop, stop


@njit(cache=True, nogil=True, forceinline=True)
def next_unit(kind: Int, data: Bytes, at: Int, stop: Int) -> tuple[np.uint64, Int, Int]:
    """`next_word` or `next_line`."""
    if kind == WORDS:
        return next_word(data, at, stop)
    return next_line(data, at, stop)


@njit(cache=True, nogil=True)
def base_power(exponent: Int) -> np.uint64:
    """BASE^exponent modulo 2^64."""
    power = np.uint64(1)
    for _ in range(exponent):
        power *= BASE
    return power


@njit(cache=True, nogil=True)
def write_shingles(
    kind: Int, data: Bytes, start: Int, stop: Int, ring: Hashes, power: np.uint64, shingles: Hashes, to: Int
) -> Int:
    """Write the hashes of data[start:stop]'s shingles to shingles[to:], in order and with repetitions; return their
    number.

    `ring` is work space, its length n; `power` is `base_power(n)`. The hash of a shingle is the polynomial of its
    units' hashes h, the sum of h[i] * BASE^(n-1-i) modulo 2^64, mixed: one multiplication for the unit that enters
    and one for the one that leaves, for every n.
    """
    n = len(ring)
    ring[:] = np.uint64(0)
    slot = 0
    units = 0
    rolling = np.uint64(0)
    at = start
    while True:
        digest, first, at = next_unit(kind, data, at, stop)
        if first >= stop:
            break
        rolling = rolling * BASE + digest - ring[slot] * power
        ring[slot] = digest
        slot = slot + 1 if slot + 1 < n else 0
        units += 1
        if units >= n:
            shingles[to + units - n] = mix(rolling, np.uint64(n))
    return max(0, units - n + 1)


@njit(cache=True, nogil=True)
def most_units(kind: Int, size: Int) -> Int:
    """An upper bound of the units in `size` bytes: words in spaced scripts are apart, pieces of unspaced scripts have
    three bytes, and every line but the last has its newline.
    """
    return size // 2 + 1


@njit(cache=True, nogil=True)
def _counts(kind, data, offsets, n):  # type: ignore[no-untyped-def]
    counts = np.empty(len(offsets) - 1, np.int64)
    for row in range(len(counts)):
        at, stop = offsets[row], offsets[row + 1]
        units = 0
        while True:
            _, first, at = next_unit(kind, data, at, stop)
            if first >= stop:
                break
            units += 1
        counts[row] = max(0, units - n + 1)
    return counts


@njit(cache=True, nogil=True)
def sort_unique(hashes: Hashes, start: Int, stop: Int) -> Int:
    """Sort hashes[start:stop] in place, distinct ones first; return how many are distinct."""
    hashes[start:stop].sort()
    kept = start
    for at in range(start, stop):
        if at == start or hashes[at] != hashes[kept - 1]:
            hashes[kept] = hashes[at]
            kept += 1
    return kept - start


@njit(cache=True, nogil=True)
def _write_set(shingles, count, ends, hashes, to):  # type: ignore[no-untyped-def]
    """Write the distinct ones of shingles[:count] to hashes[to:] in ascending order; return how many they are.

    A scatter by the upper bits into buckets of about four, each kept sorted without repetition: linear time, since
    hashes are as good as random and repetitions do not pile up.
    """
    bits = np.uint64(1)
    while (count >> (np.int64(bits) + 2)) > 0:
        bits += np.uint64(1)
    shift = np.uint64(64) - bits
    buckets = 1 << np.int64(bits)
    ends[: buckets + 1] = 0
    for at in range(count):
        ends[np.int64(shingles[at] >> shift) + 1] += 1
    for bucket in range(buckets):
        ends[bucket + 1] += ends[bucket]
    firsts = ends[: buckets + 1]
    fills = ends[buckets + 1 : 2 * buckets + 1]
    fills[:] = firsts[:buckets]
    for at in range(count):
        shingle = shingles[at]
        bucket = np.int64(shingle >> shift)
        first = to + firsts[bucket]
        slot = to + fills[bucket]
        while slot > first and hashes[slot - 1] > shingle:
            slot -= 1
        if slot > first and hashes[slot - 1] == shingle:
            continue
        for moved in range(to + fills[bucket], slot, -1):
            hashes[moved] = hashes[moved - 1]
        hashes[slot] = shingle
        fills[bucket] += 1
    kept = to
    for bucket in range(buckets):
        for at in range(to + firsts[bucket], to + fills[bucket]):
            hashes[kept] = hashes[at]
            kept += 1
    return kept - to


@njit(cache=True, nogil=True)
def _sets(kind, data, offsets, rows, n):  # type: ignore[no-untyped-def]
    ring = np.empty(n, np.uint64)
    power = base_power(n)
    bound = 0
    largest = 0
    for row in rows:
        units = most_units(kind, offsets[row + 1] - offsets[row])
        bound += units
        largest = max(largest, units)
    shingles = np.empty(largest, np.uint64)
    ends = np.empty(largest + 8, np.int64)
    hashes = np.empty(bound, np.uint64)
    starts = np.zeros(len(rows) + 1, np.int64)
    for place in range(len(rows)):
        first, after = offsets[rows[place]], offsets[rows[place] + 1]
        count = write_shingles(kind, data, first, after, ring, power, shingles, 0)
        starts[place + 1] = starts[place] + _write_set(shingles, count, ends, hashes, starts[place])
    return hashes[: starts[-1]].copy(), starts


def kind_of(kind: str, n: int) -> int:
    """The kernels' number of a kind; raises ValueError for an unknown kind and for n below 1."""
    if kind not in KINDS:
        raise ValueError(f"kind of shingle {kind!r}: know {', '.join(KINDS)}")
    if n < 1:
        raise ValueError(f"a shingle has at least one unit, not {n}")
    return KINDS[kind]


def shingle_counts(data: Bytes, offsets: npt.NDArray[np.int64], kind: str, n: int) -> npt.NDArray[np.int64]:
    """``int64[rows]``: shingles of n units in every row, repeated ones counted each time.

    ``data: uint8[:]``, ``offsets: int64[rows + 1]``; n = 1 counts the units. Raises ValueError as `kind_of` does.
    """
    counts: npt.NDArray[np.int64] = _counts(kind_of(kind, n), data, offsets, n)
    return counts


def shingle_sets(
    data: Bytes,
    offsets: npt.NDArray[np.int64],
    kind: str,
    n: int,
    rows: npt.NDArray[np.int64] | None = None,
) -> tuple[Hashes, npt.NDArray[np.int64]]:
    """The shingle sets of chosen rows, in the order of ``rows: int64[m]`` (all rows if None).

    Returns ``(hashes: uint64[total], starts: int64[m + 1])``: set i is ``hashes[starts[i]:starts[i + 1]]``, ascending
    and without repetition. Sets are exact however large the text; at most 4 bytes of address space for each byte of
    text, of which those that hold a shingle are used. Raises ValueError as `kind_of` does.
    """
    number = kind_of(kind, n)
    if rows is None:
        rows = np.arange(len(offsets) - 1)
    hashes, starts = _sets(number, data, offsets, rows, n)
    return hashes, starts
