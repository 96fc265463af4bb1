"""Unicode Normalization Form C over a column of UTF-8, ``data: uint8[:]`` and ``offsets: int64[:]`` of n + 1 positions.

Computed here, from the table ``nfc-18.0.0.npz``, and not by a library: the result then depends on no version of
Python or Arrow, no run of combining marks takes quadratic time, and only the characters around a mark are touched.
Bytes that are not UTF-8 are kept, each standing for a character of its own that nothing combines with.

Definitions and Hangul arithmetic: The Unicode Standard, sections 3.11 and 3.12; quick check: UAX #15, section 9.
"""

from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numba import njit

from stages.kernels.xxh3 import load_u64

UNICODE_VERSION = "18.0.0"
POINTS = 0x110000
SUSPECT = 255
COMPOSE = 2
SLOTS = 1 << 14


class Composition(NamedTuple):
    """The NFC table laid out for look-up by code point; 256 more entries stand for bytes that are not UTF-8.

    ``quick: uint8[POINTS + 256]`` is 0 for a character that starts a new segment, SUSPECT where NFC_Quick_Check is No
    or Maybe, else the combining class; ``classes: uint8[POINTS + 256]`` are the combining classes; ``decomposition:
    int16[POINTS + 256]`` is the row + 1 in ``pieces: uint32[:, 4]``, 0 without a decomposition; ``pairs:
    uint32[SLOTS, 3]`` is a hash table of (first, second, primary composite), linear probing, zeros in a free slot.
    """

    quick: np.ndarray
    classes: np.ndarray
    decomposition: np.ndarray
    pieces: np.ndarray
    pairs: np.ndarray


@cache
def composition() -> Composition:
    """The table of this Unicode version, read once a process (4.5 MB)."""
    with np.load(Path(__file__).with_name(f"nfc-{UNICODE_VERSION}.npz")) as table:
        classes = np.zeros(POINTS + 256, np.uint8)
        classes[table["ccc_points"]] = table["ccc"]
        quick = classes.copy()
        quick[table["suspects"]] = SUSPECT
        decomposition = np.zeros(POINTS + 256, np.int16)
        decomposition[table["decomposable"]] = np.arange(1, len(table["decomposable"]) + 1)
        pairs = np.zeros((SLOTS, 3), np.uint32)
        for pair, composite in zip(table["pairs"].tolist(), table["composites"].tolist(), strict=True):
            first, second = pair >> 32, pair & 0xFFFFFFFF
            slot = (first * 31 + second * 1021) % SLOTS
            while pairs[slot, 0]:
                slot = (slot + 1) % SLOTS
            pairs[slot] = first, second, composite
        return Composition(quick, classes, decomposition, table["pieces"], pairs)


@njit(cache=True, nogil=True)
def decode(word, room):  # type: ignore[no-untyped-def]
    """The first code point, and its length, of a little-endian ``word: uint64``; ``room`` bytes belong to the text.

    ``(POINTS + byte, 1)`` where no UTF-8 sequence starts. Takes no array: a call with one would count references.
    """
    w = np.int64(word & np.uint64(0xFFFFFFFF))
    b = w & 0xFF
    if b < 0x80:
        return b, 1
    if b < 0xE0:
        if b >= 0xC2 and w & 0xC000 == 0x8000 and room > 1:
            return (b & 0x1F) << 6 | (w >> 8) & 0x3F, 2
    elif b < 0xF0:
        point = (b & 0x0F) << 12 | (w >> 2) & 0xFC0 | (w >> 16) & 0x3F
        if w & 0xC0C000 == 0x808000 and point >= 0x800 and room > 2:
            return point, 3
    elif b < 0xF5:
        point = (b & 0x07) << 18 | (w << 4) & 0x3F000 | (w >> 10) & 0xFC0 | (w >> 24) & 0x3F
        if w & 0xC0C0C000 == 0x80808000 and 0x10000 <= point < POINTS and room > 3:
            return point, 4
    return POINTS + b, 1


@njit(cache=True, nogil=True)
def tail_word(data, i, end):  # type: ignore[no-untyped-def]
    """What ``load_u64`` gives, for a place too close to the end of the buffer: at most 4 bytes, then zeros."""
    word = np.uint64(0)
    for k in range(min(4, end - i)):
        word |= np.uint64(data[i + k]) << np.uint64(8 * k)
    return word


@njit(cache=True, nogil=True)
def decode_at(data, i, end):  # type: ignore[no-untyped-def]
    """``decode`` of the text ``data[i:end]``, for the few calls outside a loop over characters."""
    return decode(tail_word(data, i, end), end - i)


@njit(inline="always")
def copy(source, start, end, target, at):  # type: ignore[no-untyped-def]
    for k in range(end - start):
        target[at + k] = source[start + k]
    return at + end - start


@njit(cache=True, nogil=True)
def _decompose(data, i, end, points, decomposition, pieces):  # type: ignore[no-untyped-def]
    """Full canonical decomposition of a segment into ``points``; returns how many code points it has."""
    count = 0
    while i < end:
        point, size = decode_at(data, i, end)
        i += size
        row = decomposition[point]
        if row > 0:
            for k in range(4):
                piece = pieces[row - 1, k]
                if piece > 0:
                    points[count] = piece
                    count += 1
        elif 0xAC00 <= point < 0xAC00 + 11172:
            syllable = point - 0xAC00
            points[count] = 0x1100 + syllable // 588
            points[count + 1] = 0x1161 + syllable % 588 // 28
            count += 2
            if syllable % 28 > 0:
                points[count] = 0x11A7 + syllable % 28
                count += 1
        else:
            points[count] = point
            count += 1
    return count


@njit(cache=True, nogil=True)
def _reorder(points, count, classes):  # type: ignore[no-untyped-def]
    """Sort every run of marks by combining class, stably."""
    first = 0
    while first < count:
        if classes[points[first]] == 0:
            first += 1
            continue
        after = first + 1
        while after < count and classes[points[after]] != 0:
            after += 1
        if after - first <= 32:
            for j in range(first + 1, after):
                point = points[j]
                k = j
                while k > first and classes[points[k - 1]] > classes[point]:
                    points[k] = points[k - 1]
                    k -= 1
                points[k] = point
        else:
            marks = points[first:after].copy()
            points[first:after] = marks[np.argsort(classes[marks], kind="mergesort")]
        first = after


@njit(inline="always")
def _composite(first, second, pairs):  # type: ignore[no-untyped-def]
    if 0x1100 <= first < 0x1113 and 0x1161 <= second < 0x1176:
        return 0xAC00 + ((first - 0x1100) * 21 + second - 0x1161) * 28
    if 0xAC00 <= first < 0xAC00 + 11172 and 0x11A8 <= second < 0x11C3:
        return first + second - 0x11A7 if (first - 0xAC00) % 28 == 0 else 0
    slot = (first * 31 + second * 1021) & (SLOTS - 1)
    while pairs[slot, 0] != 0:
        if pairs[slot, 0] == first and pairs[slot, 1] == second:
            return np.int64(pairs[slot, 2])
        slot = (slot + 1) & (SLOTS - 1)
    return 0


@njit(cache=True, nogil=True)
def _recompose(points, count, classes, pairs):  # type: ignore[no-untyped-def]
    """Compose in place (definition D117); returns the new count. ``blocked`` is -1 right after a starter."""
    starter, blocked, kept = -1, -1, 0
    for k in range(count):
        point = points[k]
        ccc = np.int64(classes[point])
        if starter >= 0 and blocked < ccc:
            composite = _composite(points[starter], point, pairs)
            if composite > 0:
                points[starter] = composite
                continue
        if ccc == 0:
            starter = kept
        blocked = -1 if ccc == 0 else ccc
        points[kept] = point
        kept += 1
    return kept


@njit(cache=True, nogil=True)
def _encode(points, count, out, o):  # type: ignore[no-untyped-def]
    for k in range(count):
        point = points[k]
        if point < 0x80 or point >= POINTS:
            out[o] = point & 0xFF
            o += 1
            continue
        length = 2 if point < 0x800 else 3 if point < 0x10000 else 4
        for byte in range(length - 1, 0, -1):
            out[o + byte] = 0x80 | point & 0x3F
            point >>= 6
        out[o] = (0xF00 >> length) & 0xFF | point
        o += length
    return o


@njit(cache=True, nogil=True)
def _compose_segment(data, start, end, out, o, points, classes, decomposition, pieces, pairs):  # type: ignore[no-untyped-def]
    if 4 * (end - start) > len(points):
        points = np.empty(4 * (end - start), np.int64)
    count = _decompose(data, start, end, points, decomposition, pieces)
    _reorder(points, count, classes)
    return _encode(points, _recompose(points, count, classes, pairs), out, o)


@njit(cache=True, nogil=True)
def compose(data, offsets, needs, quick, classes, decomposition, pieces, pairs):  # type: ignore[no-untyped-def]
    """Bring the documents marked COMPOSE into NFC and copy the others.

    Returns ``(data: uint8[:], offsets: int64[n + 1] from 0, changed: bool[n])``. The tables: ``composition()``.
    A segment starts at a character that never combines with what stands before it; only segments that fail the quick
    check are decomposed and composed again.
    """
    rows = len(offsets) - 1
    # NFC makes no UTF-8 more than three times as long (UAX #15, section 9.3); pages never written take no memory.
    out = np.empty(3 * (offsets[rows] - offsets[0]), np.uint8)
    ends = np.zeros(rows + 1, np.int64)
    changed = np.zeros(rows, np.bool_)
    points = np.empty(1024, np.int64)
    safe = len(data) - 7
    o = 0
    for row in range(rows):
        i, end = offsets[row], offsets[row + 1]
        done = segment = i
        starter = np.int64(0)
        while needs[row] & COMPOSE and i < end:
            word = load_u64(data, i) if i < safe else tail_word(data, i, end)
            point, size = decode(word, end - i)
            if quick[point] == 0:
                segment = i
                starter = point
                i += size
                continue
            # While nothing has to be decomposed or moved, compose in passing: most segments end as they were or as one
            # character, and need no more.
            direct = segment < i and decomposition[starter] == 0
            blocked, last, composed, kept = -1, 0, 0, 0
            mark = quick[point]
            while mark != 0:
                ccc = np.int64(classes[point])
                direct = direct and decomposition[point] == 0 and (ccc == 0 or ccc >= last)
                if direct:
                    composite = _composite(starter, point, pairs) if blocked < ccc else 0
                    if composite > 0:
                        starter = composite
                        composed += 1
                    else:
                        kept += 1
                        starter = point if ccc == 0 else starter
                        blocked = -1 if ccc == 0 else ccc
                last = ccc
                i += size
                if i == end:
                    break
                word = load_u64(data, i) if i < safe else tail_word(data, i, end)
                point, size = decode(word, end - i)
                mark = quick[point]
            if direct and composed == 0:
                continue
            o = copy(data, done, segment, out, o)
            if direct and kept == 0:
                points[0] = starter
                after = _encode(points, 1, out, o)
            else:
                after = _compose_segment(data, segment, i, out, o, points, classes, decomposition, pieces, pairs)
            same = after - o == i - segment
            for k in range(after - o):
                same = same and out[o + k] == data[segment + k]
            changed[row] |= not same
            o = after
            done = i
        o = copy(data, done, end, out, o)
        ends[row + 1] = o
    return out[:o], ends, changed
