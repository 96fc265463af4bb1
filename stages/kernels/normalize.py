"""Kernels of text normalization over a column of UTF-8: find the documents that need it, and clean them.

The rules are those of ``stages.normalize``; NFC has its own module. A column is ``data: uint8[:]`` and
``offsets: int64[:]`` of n + 1 positions. Bytes that are not UTF-8 are kept as they are.
"""

from functools import cache

import numpy as np
from numba import njit

from stages.kernels.nfc import COMPOSE, SUSPECT, composition, copy, decode, decode_at, tail_word
from stages.kernels.xxh3 import load_u64, store_u64

CLEAN, TRIM = 1, 4
BREAK, CONTROL = 253, 254
CONTROLS, NEWLINES, SPACES, NEWLINE_RUNS, STRIP = 1, 2, 4, 8, 16
ONES, TABS, FEEDS, BLANKS, CARRY, HIGHS = (
    np.uint64(0x0101010101010101 * byte) for byte in (0x01, 0x09, 0x0A, 0x60, 0x7F, 0x80)
)


@njit(inline="always")
def _is_white(point):  # type: ignore[no-untyped-def]
    """The property White_Space of Unicode, unchanged since version 6.3."""
    if point < 0x80:
        return point == 0x20 or 9 <= point <= 13
    return (
        point == 0x85 or point == 0xA0 or point == 0x1680 or 0x2000 <= point <= 0x200A or point == 0x2028
        or point == 0x2029 or point == 0x202F or point == 0x205F or point == 0x3000
    )  # fmt: skip


@njit(inline="always")
def _is_break(point):  # type: ignore[no-untyped-def]
    """A line break other than LF."""
    return 11 <= point <= 13 or point == 0x85 or point == 0x2028 or point == 0x2029


@njit(inline="always")
def _is_control(point):  # type: ignore[no-untyped-def]
    """A C0 or C1 control or DEL that is neither a tab nor a line break."""
    return (point < 0x20 and not 9 <= point <= 13) or (0x7F <= point < 0xA0 and point != 0x85)


@njit(cache=True, nogil=True)
def _white_before(data, start, end):  # type: ignore[no-untyped-def]
    """Length in bytes of the white space that ends at ``end``, 0 if none does."""
    for length in range(1, min(3, end - start) + 1):
        point, size = decode_at(data, end - length, end)
        if size == length and _is_white(point):
            return length
    return 0


@njit(cache=True, nogil=True)
def _strip_end(data, start, end):  # type: ignore[no-untyped-def]
    white = _white_before(data, start, end)
    while white > 0:
        end -= white
        white = _white_before(data, start, end)
    return end


@njit(cache=True, nogil=True)
def _has_long_run(data, start, end, a, b, longest):  # type: ignore[no-untyped-def]
    """Whether more than ``longest`` bytes in a row are ``a`` or ``b``: each such run covers one of the probes."""
    for probe in range(start + longest - 1, end, longest):
        if data[probe] != a and data[probe] != b:
            continue
        first, after = probe, probe + 1
        while first > start and probe - first <= longest and (data[first - 1] == a or data[first - 1] == b):
            first -= 1
        while after < end and after - first <= longest and (data[after] == a or data[after] == b):
            after += 1
        if after - first > longest:
            return True
    return False


@cache
def kinds() -> np.ndarray:
    """``uint8[POINTS + 256]``: ``quick`` of ``nfc.composition()`` with BREAK and CONTROL in the places of those."""
    kinds = composition().quick.copy()
    for point in (*range(0xA0), 0x2028, 0x2029):
        if _is_break(point):
            kinds[point] = BREAK
        elif _is_control(point):
            kinds[point] = CONTROL
    return kinds


@njit(cache=True, nogil=True)
def _scan_edges(data, start, end, controls, strip):  # type: ignore[no-untyped-def]
    i = start
    while i < end:
        point, size = decode_at(data, i, end)
        if point == 0xFEFF and controls:
            return CLEAN
        if not _is_white(point):
            break
        i += size
    return TRIM if strip and (i > start or _white_before(data, start, end) > 0) else 0


@njit(cache=True, nogil=True)
def _scan_characters(data, start, end, kinds, newlines, controls):  # type: ignore[no-untyped-def]
    """CLEAN for a control or line break to treat, COMPOSE where the quick check of NFC does not say Yes."""
    needs = 0
    last = 0
    safe = len(data) - 7
    i = start
    while i < end:
        if i + 8 <= end:
            word = load_u64(data, i)
            # Eight bytes of tab, LF or 0x20 to 0x7E; other bytes can carry into their neighbours, but not into a Yes.
            plain = (word + BLANKS) | ~(((word ^ TABS) + CARRY) & ((word ^ FEEDS) + CARRY))
            if plain & ~(word | (word + ONES)) & HIGHS == HIGHS:
                last = 0
                i += 8
                continue
        stop = min(i + 8, end)
        while i < stop:
            word = load_u64(data, i) if i < safe else tail_word(data, i, end)
            point, size = decode(word, end - i)
            i += size
            kind = kinds[point]
            if kind != 0:
                if kind == CONTROL:
                    if controls:
                        needs |= CLEAN
                        continue
                    kind = 0
                elif kind == BREAK:
                    if newlines:
                        needs |= CLEAN
                    kind = 0
                elif kind == SUSPECT or kind < last:
                    needs |= COMPOSE
            last = kind
    return needs


@njit(cache=True, nogil=True)
def scan(data, offsets, kinds, nfc, newlines, controls, max_space_run, max_newline_run, strip):  # type: ignore[no-untyped-def]
    """``uint8[n]``: what each document needs, as bits.

    CLEAN where a rule other than NFC and strip will change it, TRIM where strip will and no other of these, COMPOSE
    where NFC may. ``kinds`` is ``kinds()``.
    """
    needs = np.zeros(len(offsets) - 1, np.uint8)
    for row in range(len(offsets) - 1):
        start, end = offsets[row], offsets[row + 1]
        need = _scan_characters(data, start, end, kinds, newlines, controls)
        if not nfc:
            need &= CLEAN
        if not need & CLEAN and (
            _has_long_run(data, start, end, 32, 9, max_space_run)
            or _has_long_run(data, start, end, 10, 10, max_newline_run)
        ):
            need |= CLEAN
        if not need & CLEAN:
            need |= _scan_edges(data, start, end, controls, strip)
        needs[row] = need
    return needs


@njit(cache=True, nogil=True)
def _clean_one(data, i, end, out, o, newlines, controls, max_space_run, max_newline_run, strip):  # type: ignore[no-untyped-def]
    begin = o
    changed = 0
    spaces = 0
    breaks = 0
    leading = True
    after_cr = False
    short = max_space_run - 7
    safe = len(data) - 7
    while i < end:
        if i + 8 <= end and not leading and spaces < short and data[i + 7] != 32:
            word = load_u64(data, i)
            # Eight bytes from 0x20 to 0x7E that do not end in a space, and too few to make a run of spaces long.
            if (word + BLANKS) & ~(word | (word + ONES)) & HIGHS == HIGHS:
                store_u64(out, o, word)
                o += 8
                i += 8
                spaces = 0
                breaks = 0
                after_cr = False
                continue
        word = load_u64(data, i) if i < safe else tail_word(data, i, end)
        point, size = decode(word, end - i)
        i += size
        if point > 0x3000 and point != 0xFEFF:
            spaces = 0
            breaks = 0
            after_cr = False
            leading = False
            store_u64(out, o, word)
            o += size
            continue
        if controls and (_is_control(point) or (leading and point == 0xFEFF)):
            changed |= CONTROLS
            continue
        if newlines and _is_break(point):
            changed |= NEWLINES
            after_cr = point == 13
            point = 10
        elif after_cr:
            after_cr = False
            if point == 10:
                continue
        if point == 10:
            breaks += 1
            spaces = 0
            if breaks > max_newline_run:
                changed |= NEWLINE_RUNS
            elif leading and strip:
                changed |= STRIP
            else:
                out[o] = 10
                o += 1
            continue
        breaks = 0
        if point == 32 or point == 9:
            spaces += 1
            if spaces > max_space_run:
                changed |= SPACES
                continue
        else:
            spaces = 0
        if leading:
            leading = _is_white(point)
            if leading and strip:
                changed |= STRIP
                continue
        store_u64(out, o, word)
        o += size
    if strip:
        stripped = _strip_end(out, begin, o)
        if stripped < o:
            changed |= STRIP
        o = stripped
    return o, changed


@njit(cache=True, nogil=True)
def clean(data, offsets, needs, newlines, controls, max_space_run, max_newline_run, strip):  # type: ignore[no-untyped-def]
    """Apply every rule but NFC to the documents marked CLEAN, strip those marked TRIM, copy the others.

    Returns ``(data: uint8[:], offsets: int64[n + 1] from 0, changed: uint8[n])``; ``changed`` holds the bits CONTROLS,
    NEWLINES, SPACES, NEWLINE_RUNS and STRIP of the rules that changed the document.
    """
    rows = len(offsets) - 1
    # Eight more than the text: a character is written as a whole word, and the next one goes over the rest of it.
    out = np.empty(offsets[rows] - offsets[0] + 8, np.uint8)
    ends = np.zeros(rows + 1, np.int64)
    changed = np.zeros(rows, np.uint8)
    o = 0
    for row in range(rows):
        start, end = offsets[row], offsets[row + 1]
        if needs[row] & CLEAN:
            o, changed[row] = _clean_one(
                data, start, end, out, o, newlines, controls, max_space_run, max_newline_run, strip
            )
        else:
            if needs[row] & TRIM:
                changed[row] = STRIP
                end = _strip_end(data, start, end)
                point, size = decode_at(data, start, end) if start < end else (0, 0)
                while start < end and _is_white(point):
                    start += size
                    point, size = decode_at(data, start, end)
            o = copy(data, start, end, out, o)
        ends[row + 1] = o
    return out[:o], ends, changed
