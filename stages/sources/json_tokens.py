"""JSON tokens in Numba: strings, numbers and whole values over uint8[n] whose last byte is a newline.

No token accepts a raw newline, so none of the loops needs a bounds check. An index of -1 means: not JSON,
or not so plain that it is certain. Numba's on-disk cache of a caller does not see a change here: empty
`__pycache__` after one.
"""

import numba as nb
import numpy as np

MAX_DEPTH = 60
MAX_NUMBER_BYTES = 100

QUOTE, BACKSLASH, NEWLINE = 0x22, 0x5C, 0x0A
COMMA, COLON, MINUS, DOT, ZERO, NINE = 0x2C, 0x3A, 0x2D, 0x2E, 0x30, 0x39
OPEN_BRACE, CLOSE_BRACE, OPEN_BRACKET, CLOSE_BRACKET = 0x7B, 0x7D, 0x5B, 0x5D


def _escapes() -> np.ndarray:
    table = np.zeros(256, np.uint8)
    for letter, value in zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t', strict=True):
        table[letter] = value
    return table


def _hex_digits() -> np.ndarray:
    table = np.full(256, -1, np.int32)
    for digit in b"0123456789abcdefABCDEF":
        table[digit] = int(chr(digit), 16)
    return table


ESCAPES = _escapes()
HEX = _hex_digits()


@nb.njit(cache=True, nogil=True)
def space(data: np.ndarray, i: int) -> int:
    while data[i] == 0x20 or data[i] == 0x09 or data[i] == 0x0D:
        i += 1
    return i


@nb.njit(cache=True, nogil=True)
def _hex4(data: np.ndarray, i: int) -> int:
    code = 0
    for k in range(4):
        digit = HEX[data[i + k]]
        if digit < 0:
            return -1
        code = code * 16 + digit
    return code


@nb.njit(cache=True, nogil=True)
def _escape(data: np.ndarray, i: int) -> tuple[int, int]:
    """The escape whose backslash is at i: (index after it, code point), or (-1, 0)."""
    letter = data[i + 1]
    if letter != 0x75:
        value = ESCAPES[letter]
        return (i + 2, int(value)) if value else (-1, 0)
    code = _hex4(data, i + 2)
    if code < 0 or 0xDC00 <= code <= 0xDFFF:
        return -1, 0
    i += 6
    if 0xD800 <= code <= 0xDBFF:
        if data[i] != BACKSLASH or data[i + 1] != 0x75:
            return -1, 0
        low = _hex4(data, i + 2)
        if low < 0xDC00 or low > 0xDFFF:
            return -1, 0
        return i + 6, 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
    return i, code


@nb.njit(cache=True, nogil=True)
def flag_special(data: np.ndarray, flags: np.ndarray) -> None:
    """flags[i] = 1 where a string may not simply go on: a quote, a backslash, a control byte; 1 in the
    padding.
    """
    for i in range(data.shape[0]):
        byte = data[i]
        flags[i] = (byte == QUOTE) | (byte == BACKSLASH) | (byte < 0x20)
    for i in range(data.shape[0], flags.shape[0]):
        flags[i] = 1


@nb.njit(cache=True, nogil=True)
def _next_special(words: np.ndarray, i: int) -> int:
    """First flagged index from i on; `words` are the flags seen as little-endian uint64, eight at a time."""
    word = np.uint64(i) >> np.uint64(3)
    rest = words[word] >> (np.uint64(8) * (np.uint64(i) & np.uint64(7)))
    while rest == 0:
        word += np.uint64(1)
        rest = words[word]
        i = (i | 7) + 1
    while rest & np.uint64(0xFF) == 0:
        rest >>= np.uint64(8)
        i += 1
    return i


@nb.njit(cache=True, nogil=True)
def skip_string(data: np.ndarray, words: np.ndarray, i: int) -> int:
    """Index after the string whose opening quote is at i, or -1."""
    i += 1
    while True:
        i = _next_special(words, i)
        byte = data[i]
        if byte == QUOTE:
            return i + 1
        if byte != BACKSLASH:
            return -1
        if ESCAPES[data[i + 1]]:
            i += 2
            continue
        i, _ = _escape(data, i)
        if i < 0:
            return -1


@nb.njit(cache=True, nogil=True)
def copy_string(data: np.ndarray, words: np.ndarray, i: int, out: np.ndarray, o: int) -> tuple[int, int]:
    """Decode the string whose opening quote is at i to out[o:]: (index after it, end in out), or (-1, o)."""
    i += 1
    while True:
        end = _next_special(words, i)
        source, target = np.uint64(i), np.uint64(o)  # unsigned: no test for negative indices, so it vectorizes
        for k in range(np.uint64(end - i)):
            out[target + k] = data[source + k]
        o += end - i
        byte = data[end]
        if byte == QUOTE:
            return end + 1, o
        if byte != BACKSLASH:
            return -1, o
        letter = ESCAPES[data[end + 1]]
        if letter:  # the common case; `_escape` would do the same
            out[o] = letter
            o += 1
            i = end + 2
            continue
        i, code = _escape(data, end)
        if i < 0:
            return -1, o
        if code < 0x80:
            out[o] = code
            o += 1
        elif code < 0x800:
            out[o] = 0xC0 | (code >> 6)
            out[o + 1] = 0x80 | (code & 0x3F)
            o += 2
        elif code < 0x10000:
            out[o] = 0xE0 | (code >> 12)
            out[o + 1] = 0x80 | ((code >> 6) & 0x3F)
            out[o + 2] = 0x80 | (code & 0x3F)
            o += 3
        else:
            out[o] = 0xF0 | (code >> 18)
            out[o + 1] = 0x80 | ((code >> 12) & 0x3F)
            out[o + 2] = 0x80 | ((code >> 6) & 0x3F)
            out[o + 3] = 0x80 | (code & 0x3F)
            o += 4


@nb.njit(cache=True, nogil=True)
def _digits(data: np.ndarray, i: int) -> int:
    while ZERO <= data[i] <= NINE:
        i += 1
    return i


@nb.njit(cache=True, nogil=True)
def skip_number(data: np.ndarray, i: int) -> tuple[int, bool]:
    """(index after the number at i, whether it is an integer), or (-1, False); never one that could
    overflow.
    """
    start = i
    if data[i] == MINUS:
        i += 1
    first = i
    i = _digits(data, i)
    if i == first or (data[first] == ZERO and i > first + 1):
        return -1, False
    integer = True
    if data[i] == DOT:
        integer = False
        fraction = i + 1
        i = _digits(data, fraction)
        if i == fraction:
            return -1, False
    if data[i] == 0x65 or data[i] == 0x45:
        integer = False
        i += 1
        if data[i] == MINUS or data[i] == 0x2B:
            i += 1
        exponent = i
        i = _digits(data, i)
        if i == exponent or i - exponent > 2:
            return -1, False
    if i - start > MAX_NUMBER_BYTES:
        return -1, False
    return i, integer


@nb.njit(cache=True, nogil=True)
def skip_scalar(data: np.ndarray, words: np.ndarray, i: int) -> int:
    """Index after the string, number or literal at i, or -1."""
    byte = data[i]
    if byte == QUOTE:
        return skip_string(data, words, i)
    if byte == MINUS or ZERO <= byte <= NINE:
        end, _ = skip_number(data, i)
        return end
    if byte == 0x74 and data[i + 1] == 0x72 and data[i + 2] == 0x75 and data[i + 3] == 0x65:
        return i + 4
    if byte == 0x6E and data[i + 1] == 0x75 and data[i + 2] == 0x6C and data[i + 3] == 0x6C:
        return i + 4
    if byte == 0x66 and data[i + 1] == 0x61 and data[i + 2] == 0x6C and data[i + 3] == 0x73:
        return i + 5 if data[i + 4] == 0x65 else -1
    return -1


@nb.njit(cache=True, nogil=True)
def _skip_key(data: np.ndarray, words: np.ndarray, i: int) -> int:
    """Index after `"key" :` from i (spaces allowed), or -1."""
    i = space(data, i)
    if data[i] != QUOTE:
        return -1
    i = skip_string(data, words, i)
    if i < 0:
        return -1
    i = space(data, i)
    return i + 1 if data[i] == COLON else -1


@nb.njit(cache=True, nogil=True)
def skip_value(data: np.ndarray, words: np.ndarray, i: int) -> int:
    """Index after the JSON value at i, or -1. `objects` has a bit for each open container, 1 for an
    object.
    """
    depth = 0
    objects = np.uint64(0)
    one = np.uint64(1)
    while True:
        i = space(data, i)
        byte = data[i]
        if byte in (OPEN_BRACE, OPEN_BRACKET):
            if depth == MAX_DEPTH:
                return -1
            is_object = byte == OPEN_BRACE
            inside = space(data, i + 1)
            if data[inside] == (CLOSE_BRACE if is_object else CLOSE_BRACKET):
                i = inside + 1
            else:
                depth += 1
                objects = (objects << one) | (one if is_object else np.uint64(0))
                i = _skip_key(data, words, inside) if is_object else inside
                if i < 0:
                    return -1
                continue
        else:
            i = skip_scalar(data, words, i)
            if i < 0:
                return -1
        while True:
            if depth == 0:
                return i
            i = space(data, i)
            in_object = (objects & one) == one
            if data[i] == COMMA:
                i = _skip_key(data, words, i + 1) if in_object else i + 1
                if i < 0:
                    return -1
                break
            if data[i] != (CLOSE_BRACE if in_object else CLOSE_BRACKET):
                return -1
            i += 1
            depth -= 1
            objects >>= one
