"""A strict JSON Lines scanner in one pass over the bytes: two top-level keys out, everything else checked
and skipped.

It decides only what is beyond doubt: a line it marks `CLEAN` is valid JSON (RFC 8259) with an ordinary
text. Anything unusual (errors, duplicate keys, escaped key names, nesting beyond 60, numbers that could
overflow, odd types) is `UNCLEAR` and goes line by line through `json_line`, which has the last word. The
Arrow JSON reader is not used because it crashes on a line `null`, lets NaN and two objects on a line pass,
and gives up a whole block for one bad line.
"""

import numba as nb
import numpy as np

from stages.sources.json_tokens import (
    BACKSLASH,
    CLOSE_BRACE,
    COLON,
    COMMA,
    MINUS,
    NEWLINE,
    OPEN_BRACE,
    QUOTE,
    ZERO,
    copy_string,
    flag_special,
    skip_number,
    skip_scalar,
    skip_string,
    skip_value,
    space,
)

CLEAN, BLANK, UNCLEAR = 0, 1, 2


@nb.njit(cache=True, nogil=True)
def count_newlines(data: np.ndarray) -> int:
    """Number of 0x0A bytes in uint8[n]."""
    total = 0
    for byte in data:
        total += byte == NEWLINE
    return total


@nb.njit(cache=True, nogil=True)
def _is_key(data: np.ndarray, start: int, end: int, key: np.ndarray) -> bool:
    if end - start != key.shape[0]:
        return False
    same = True
    for k in range(key.shape[0]):
        same &= data[start + k] == key[k]
    return same


@nb.njit(cache=True, nogil=True)
def _object(
    data: np.ndarray,
    words: np.ndarray,
    i: int,
    text_key: np.ndarray,
    id_key: np.ndarray,
    text: np.ndarray,
    t: int,
    ids: np.ndarray,
    d: int,
) -> tuple[int, int, int, bool]:
    """One line's object from its brace at i: (index of the newline or -1, end in text, end in ids, id is
    null).
    """
    have_text = False
    have_id = False
    id_null = True
    i = space(data, i + 1)
    while True:
        if data[i] != QUOTE:
            return -1, t, d, True
        key = i + 1
        i = skip_string(data, words, i)
        if i < 0:
            return -1, t, d, True
        key_end = i - 1
        for k in range(key, key_end):
            if data[k] == BACKSLASH:
                return -1, t, d, True
        i = space(data, i)
        if data[i] != COLON:
            return -1, t, d, True
        i = space(data, i + 1)
        if _is_key(data, key, key_end, text_key):
            if have_text or data[i] != QUOTE:
                return -1, t, d, True
            have_text = True
            start = t
            i, t = copy_string(data, words, i, text, t)
            if i < 0 or t == start:
                return -1, t, d, True
        elif id_key.shape[0] > 0 and _is_key(data, key, key_end, id_key):
            if have_id:
                return -1, t, d, True
            have_id = True
            if data[i] == QUOTE:
                id_null = False
                i, d = copy_string(data, words, i, ids, d)
            elif data[i] == 0x6E:
                i = skip_scalar(data, words, i)
            else:
                start = i
                i, integer = skip_number(data, i)
                if not integer or i - start > 18 or (data[start] == MINUS and data[start + 1] == ZERO):
                    return -1, t, d, True
                id_null = False
                for k in range(start, i):
                    ids[d] = data[k]
                    d += 1
            if i < 0:
                return -1, t, d, True
        else:
            i = skip_value(data, words, i)
            if i < 0:
                return -1, t, d, True
        i = space(data, i)
        if data[i] == COMMA:
            i = space(data, i + 1)
        elif data[i] == CLOSE_BRACE:
            break
        else:
            return -1, t, d, True
    i = space(data, i + 1)
    if not have_text or data[i] != NEWLINE:
        return -1, t, d, True
    return i, t, d, id_null


@nb.njit(cache=True, nogil=True)
def scan_lines(
    data: np.ndarray,
    text_key: np.ndarray,
    id_key: np.ndarray,
    max_line_bytes: int,
    text: np.ndarray,
    text_offsets: np.ndarray,
    ids: np.ndarray,
    id_offsets: np.ndarray,
    id_null: np.ndarray,
    line_start: np.ndarray,
    status: np.ndarray,
    flags: np.ndarray,
) -> int:
    """Scan uint8[n] that ends with a newline; returns the number of CLEAN lines.

    `text_key` is the UTF-8 of the key, `id_key` too or empty for none. Filled in: for every line its start
    (int64[lines+1], the last is n) and `status` (uint8[lines]); for each clean line the decoded `text`
    (uint8[n]) with int64 offsets, and `ids` (uint8[n]) with int32 offsets and `id_null` (bool). `flags` is
    scratch (uint8[n rounded up to 8]). The bytes must be UTF-8 already.
    """
    clean = 0
    line = 0
    t = 0
    d = 0
    i = 0
    words = flags.view(np.uint64)
    flag_special(data, flags)
    text_offsets[0] = 0
    id_offsets[0] = 0
    line_start[0] = 0
    while i < data.shape[0]:
        start = i
        i = space(data, i)
        if data[i] == NEWLINE:
            status[line] = BLANK
        else:
            end = -1
            t_end = t
            d_end = d
            null = True
            if data[i] == OPEN_BRACE:
                end, t_end, d_end, null = _object(data, words, i, text_key, id_key, text, t, ids, d)
            if end >= 0 and end - start <= max_line_bytes:
                status[line] = CLEAN
                i, t, d = end, t_end, d_end
                clean += 1
                text_offsets[clean] = t
                id_offsets[clean] = d
                id_null[clean - 1] = null
            else:
                status[line] = UNCLEAR
                while data[i] != NEWLINE:
                    i += 1
        i += 1
        line += 1
        line_start[line] = i
    return clean
