"""UTF-8 decoding and 64-bit hashing inside Numba kernels.

All hashes are for equality inside one document. Two distinct byte strings share `hash_bytes` with probability
near 2^-64, so a document of a million lines has a false duplicate with probability below 1e-7. The digests of
words are polynomials over the prime field of 2^61-1: see `join_digests`. Nothing here resists a text built
to collide.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic

Bytes = npt.NDArray[np.uint8]
"""Text bytes, UTF-8."""
Int = Any
"""A whole number inside a kernel: int to Python, int64 when compiled, a NumPy integer when read from an
array.
"""

_A = np.uint64(0x9E3779B97F4A7C15)
_B = np.uint64(0xD1B54A32D192ED03)
_C = np.uint64(0x8CB92BA72F3D8DD7)
_3 = np.uint64(3)
_61 = np.uint64(61)
_64 = np.uint64(64)

PRIME = np.uint64((1 << 61) - 1)
"""Modulus of the word digests."""
BASE = np.uint64(0x0F3A5C91B7D2E845)
"""Base of the word digests, a fixed arbitrary number below `PRIME`."""


@intrinsic
def _high_product(typingctx: Any, a: Any, b: Any) -> tuple[Any, Callable[..., Any]]:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


@njit(cache=True, nogil=True, forceinline=True)
def mix(a: np.uint64, b: np.uint64) -> np.uint64:
    """Order-sensitive 64-bit hash of two 64-bit numbers: both halves of a 128-bit product, folded."""
    a = a ^ _A
    b = b ^ _B
    low = a * b
    high: np.uint64 = _high_product(a, b)
    folded = (low ^ high) * _C
    return folded ^ (folded >> np.uint64(32))


@njit(cache=True, nogil=True, forceinline=True)
def times(a: np.uint64, b: np.uint64) -> np.uint64:
    """a * b modulo `PRIME`, for a and b below it."""
    low = a * b
    high: np.uint64 = _high_product(a, b)
    total = (low & PRIME) + ((low >> _61) | (high << _3))
    return total - PRIME if total >= PRIME else total


_POWERS = np.array([pow(int(BASE), place, int(PRIME)) for place in range(64)], np.uint64)
ASCII_PLACES = 32
"""Places of a word for which `ASCII_DIGITS` is tabulated."""
ASCII_DIGITS = np.array(
    [[(code + 1) * int(power) % int(PRIME) for code in range(128)] for power in _POWERS[:ASCII_PLACES]], np.uint64
)
"""uint64, shape (ASCII_PLACES, 128): what an ASCII character at a place of a word adds to its digest."""


@njit(cache=True, nogil=True, forceinline=True)
def reduce(total: np.uint64) -> np.uint64:
    """`total` modulo `PRIME`, for any total."""
    total = (total & PRIME) + (total >> _61)
    return total - PRIME if total >= PRIME else total


@njit(cache=True, nogil=True)
def digest_power(chars: Int) -> np.uint64:
    """BASE^chars modulo `PRIME`."""
    if chars < 64:
        result: np.uint64 = _POWERS[chars]
        return result
    result = np.uint64(1)
    square = BASE
    while chars > 0:
        if chars & 1:
            result = times(result, square)
        square = times(square, square)
        chars >>= 1
    return result


@njit(cache=True, nogil=True, forceinline=True)
def join_digests(first: np.uint64, power: np.uint64, second: np.uint64) -> np.uint64:
    """Digest of a string followed by another, from their digests; `power` is `digest_power` of the first
    one's length.

    A digest reads the code points of a string (plus one) as the digits of a number in base `BASE`, the first
    one lowest, modulo 2^61-1. So it depends on the characters alone, not on how they are grouped in words.
    Distinct strings of up to n characters collide with probability n / 2^61 over the choice of the base:
    among a million n-grams of 60 characters that is below 2e-5 for the document.
    """
    return reduce(first + times(power, second))


@njit(cache=True, nogil=True, forceinline=True)
def decode(data: Bytes, at: Int, stop: Int) -> tuple[Int, Int]:
    """Code point at byte `at` and the position after it; bytes that are no UTF-8 give U+FFFD and move on by
    one.
    """
    lead = np.int64(data[at])
    if lead < 0x80:
        return lead, at + 1
    if 0xC2 <= lead < 0xE0 and at + 1 < stop:
        return ((lead & 0x1F) << 6) | (data[at + 1] & 0x3F), at + 2
    if 0xE0 <= lead < 0xF0 and at + 2 < stop:
        return ((lead & 0x0F) << 12) | (np.int64(data[at + 1] & 0x3F) << 6) | (data[at + 2] & 0x3F), at + 3
    if 0xF0 <= lead < 0xF5 and at + 3 < stop:
        code = (
            ((lead & 0x07) << 18)
            | (np.int64(data[at + 1] & 0x3F) << 12)
            | (np.int64(data[at + 2] & 0x3F) << 6)
            | (data[at + 3] & 0x3F)
        )
        if code < 0x110000:
            return code, at + 4
    return 0xFFFD, at + 1


@njit(cache=True, nogil=True)
def last_code(data: Bytes, start: Int, stop: Int) -> Int:
    """Code point that ends the non-empty text data[start:stop]."""
    at = stop - 1
    while at > start and data[at] & 0xC0 == 0x80:
        at -= 1
    return decode(data, at, stop)[0]


@njit(cache=True, nogil=True, forceinline=True)
def _load(data: Bytes, at: Int) -> np.uint64:
    value = np.uint64(0)
    for byte in range(8):
        value |= np.uint64(data[at + byte]) << np.uint64(8 * byte)
    return value


@njit(cache=True, nogil=True)
def hash_bytes(data: Bytes, start: Int, stop: Int) -> np.uint64:
    """64-bit hash of data[start:stop], never 0 (0 marks a free slot in the tables of these kernels)."""
    state = np.uint64(stop - start)
    at = start
    while at + 8 <= stop:
        state = mix(state, _load(data, at))
        at += 8
    tail = np.uint64(0)
    while at < stop:
        tail = (tail << np.uint64(8)) | np.uint64(data[at])
        at += 1
    state = mix(state, tail)
    return state if state != np.uint64(0) else np.uint64(1)


@njit(cache=True, nogil=True)
def table_bits(entries: Int) -> Int:
    """log2 of the size of an open-addressing table that `entries` fill to at most a half."""
    bits = 3
    while (1 << bits) < 2 * entries:
        bits += 1
    return bits


@njit(cache=True, nogil=True, forceinline=True)
def first_slot(key: np.uint64, bits: Int) -> Int:
    """Slot of a table of 2^bits where the search for `key` starts."""
    return np.int64((key * _A) >> (_64 - np.uint64(bits)))
