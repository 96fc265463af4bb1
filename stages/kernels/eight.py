"""Eight bytes of text at a time, as one number: where ASCII letters, spaces and other characters stand.

A flag is the highest bit of a byte; see `first_flag`. Bytes of characters outside ASCII are flagged by `not_ascii` and
by nothing else here.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic

from stages.kernels.text import Bytes, Int
from stages.kernels.xxh3 import load_u64

HIGH_BITS = np.uint64(0x8080808080808080)
_ONES = np.uint64(0x0101010101010101)
_LOW_BITS = ~HIGH_BITS
_CASE = _ONES * np.uint64(0x20)
_FROM_SMALL_A = _ONES * np.uint64(0x80 - ord("a"))
_AFTER_SMALL_Z = _ONES * np.uint64(0x80 - ord("z") - 1)
_FROM_0 = _ONES * np.uint64(0x80 - ord("0"))
_AFTER_9 = _ONES * np.uint64(0x80 - ord("9") - 1)
_AFTER_SPACE = _ONES * np.uint64(0x80 - ord(" ") - 1)
_1 = np.uint64(1)
_2 = np.uint64(2)
_8 = np.uint64(8)


@intrinsic
def _trailing_zeros(typingctx: Any, word: Any) -> tuple[Any, Callable[..., Any]]:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), generate


@njit(cache=True, nogil=True, forceinline=True)
def first_flag(flags: np.uint64) -> Int:
    """Place (0 to 7) of the first flagged byte; 8 if none is."""
    return np.int64(_trailing_zeros(flags)) >> 3


@njit(cache=True, nogil=True, forceinline=True)
def first_bytes(eight: np.uint64, count: Int) -> np.uint64:
    """The first `count` (0 to 7) bytes, the others 0."""
    return eight & ((_1 << (_8 * np.uint64(count))) - _1)


@njit(cache=True, nogil=True, forceinline=True)
def load(data: Bytes, at: Int, stop: Int) -> np.uint64:
    """The bytes from `at` (below `stop`) on, little-endian, with 0 for those from `stop` on."""
    if at + 8 <= stop:
        whole: np.uint64 = load_u64(data, at)
        return whole
    if at + 8 <= len(data):
        return first_bytes(load_u64(data, at), stop - at)
    part = np.uint64(0)
    for place in range(stop - at):
        part |= np.uint64(data[at + place]) << (_8 * np.uint64(place))
    return part


@njit(cache=True, nogil=True, forceinline=True)
def not_ascii(eight: np.uint64) -> np.uint64:
    """Flags of the bytes above 0x7F."""
    return eight & HIGH_BITS


@njit(cache=True, nogil=True, forceinline=True)
def _alphabetic(eight: np.uint64) -> np.uint64:
    small = (eight | _CASE) & _LOW_BITS
    return (small + _FROM_SMALL_A) & ~(small + _AFTER_SMALL_Z) & ~eight & HIGH_BITS


@njit(cache=True, nogil=True, forceinline=True)
def letters(eight: np.uint64) -> np.uint64:
    """Flags of the ASCII letters and digits."""
    low = eight & _LOW_BITS
    digits = (low + _FROM_0) & ~(low + _AFTER_9) & ~eight & HIGH_BITS
    return _alphabetic(eight) | digits


@njit(cache=True, nogil=True, forceinline=True)
def lower(eight: np.uint64) -> np.uint64:
    """The bytes with A-Z turned to a-z and all others as they were."""
    return eight | (_alphabetic(eight) >> _2)


@njit(cache=True, nogil=True, forceinline=True)
def graphic(eight: np.uint64) -> np.uint64:
    """Flags of the ASCII characters above the space, DEL among them."""
    return ((eight & _LOW_BITS) + _AFTER_SPACE) & ~eight & HIGH_BITS
