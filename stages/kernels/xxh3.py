"""XXH3 (64 and 128 bits) over a column of byte strings, and keyed hashes of 128-bit ids.

The digests equal those of the ``xxhash`` library for every length and seed. The algorithm is the one of the XXH3
specification (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md), with its default secret.

A column is ``data: uint8[:]`` and ``offsets: int64[:]`` of n + 1 ascending positions in it; row i is
``data[offsets[i]:offsets[i + 1]]``. Offsets are not checked against ``data``.
"""

from typing import Any

import numpy as np
import xxhash
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

SECRET = np.frombuffer(
    bytes.fromhex(
        "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
        "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
        "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
        "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
    ),
    dtype=np.uint8,
)

U64 = np.uint64
P32_1, P32_2, P32_3 = U64(0x9E3779B1), U64(0x85EBCA77), U64(0xC2B2AE3D)
P64_1, P64_2, P64_3 = U64(0x9E3779B185EBCA87), U64(0xC2B2AE3D27D4EB4F), U64(0x165667B19E3779F9)
P64_4, P64_5 = U64(0x85EBCA77C2B2AE63), U64(0x27D4EB2F165667C5)
PRIME_MX1, PRIME_MX2 = U64(0x165667919E3779F9), U64(0x9FB21C651E98DF25)
GOLDEN = U64(0x9E3779B97F4A7C15)
LOW32 = U64(0xFFFFFFFF)
ONE = U64(1)


@intrinsic
def load_u64(typingctx: Any, array: Any, position: Any) -> Any:
    """``load_u64(data, i) -> uint64``: the 8 bytes from ``data[i]`` on, little-endian. Bounds are not checked.

    ``data`` is a contiguous ``uint8[:]`` and ``i`` an integer of 64 bits. The host must be little-endian.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        view = context.make_array(signature.args[0])(context, builder, args[0])
        first = cgutils.gep_inbounds(builder, view.data, args[1])
        word = context.get_value_type(types.uint64)
        return builder.load(builder.bitcast(first, word.as_pointer()), align=1)

    return types.uint64(array, position), codegen


@intrinsic
def store_u64(typingctx: Any, array: Any, position: Any, word: Any) -> Any:
    """``store_u64(data, i, word)``: write the 8 bytes that ``load_u64`` reads. Bounds are not checked."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        view = context.make_array(signature.args[0])(context, builder, args[0])
        first = cgutils.gep_inbounds(builder, view.data, args[1])
        narrow = context.get_value_type(types.uint64)
        builder.store(args[2], builder.bitcast(first, narrow.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(array, position, types.uint64), codegen


@intrinsic
def mul_high(typingctx: Any, a: Any, b: Any) -> Any:
    """``mul_high(a: uint64, b: uint64) -> uint64``: the upper 64 bits of the 128-bit product."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        narrow = context.get_value_type(types.uint64)
        wide = type(narrow)(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        return builder.trunc(builder.lshr(product, wide(64)), narrow)

    return types.uint64(types.uint64, types.uint64), codegen


@njit(inline="always")
def _fold(a, b):  # type: ignore[no-untyped-def]
    return (a * b) ^ mul_high(a, b)


@njit(inline="always")
def _load_u32(data, i):  # type: ignore[no-untyped-def]
    return U64(data[i]) | U64(data[i + 1]) << U64(8) | U64(data[i + 2]) << U64(16) | U64(data[i + 3]) << U64(24)


@njit(inline="always")
def _swap32(x):  # type: ignore[no-untyped-def]
    x = ((x & U64(0x00FF00FF)) << U64(8)) | ((x >> U64(8)) & U64(0x00FF00FF))
    return ((x << U64(16)) | (x >> U64(16))) & LOW32


@njit(inline="always")
def _swap64(x):  # type: ignore[no-untyped-def]
    return _swap32(x & LOW32) << U64(32) | _swap32(x >> U64(32))


@njit(inline="always")
def _rotl(x, bits):  # type: ignore[no-untyped-def]
    return (x << U64(bits)) | (x >> U64(64 - bits))


@njit(inline="always")
def _avalanche_xxh64(h):  # type: ignore[no-untyped-def]
    h = (h ^ (h >> U64(33))) * P64_2
    h = (h ^ (h >> U64(29))) * P64_3
    return h ^ (h >> U64(32))


@njit(inline="always")
def _avalanche(h):  # type: ignore[no-untyped-def]
    h = (h ^ (h >> U64(37))) * PRIME_MX1
    return h ^ (h >> U64(32))


@njit(inline="always")
def _secret_pair(a, b):  # type: ignore[no-untyped-def]
    return load_u64(SECRET, a) ^ load_u64(SECRET, b)


@njit(inline="always")
def _mix16(data, i, s, seed):  # type: ignore[no-untyped-def]
    return _fold(
        load_u64(data, i) ^ (load_u64(SECRET, s) + seed), load_u64(data, i + 8) ^ (load_u64(SECRET, s + 8) - seed)
    )


@njit(inline="always")
def _mix32(lo, hi, data, i, j, s, seed):  # type: ignore[no-untyped-def]
    lo = (lo + _mix16(data, i, s, seed)) ^ (load_u64(data, j) + load_u64(data, j + 8))
    hi = (hi + _mix16(data, j, s + 16, seed)) ^ (load_u64(data, i) + load_u64(data, i + 8))
    return lo, hi


@njit(cache=True, nogil=True)
def _short_64(data, i, n, seed):  # type: ignore[no-untyped-def]
    """Rows of 0 to 240 bytes, 64 bits."""
    size = U64(n)
    if n == 0:
        return _avalanche_xxh64(seed ^ _secret_pair(56, 64))
    if n <= 3:
        word = U64(data[i]) << U64(16) | U64(data[i + n // 2]) << U64(24) | U64(data[i + n - 1]) | size << U64(8)
        return _avalanche_xxh64(word ^ ((_load_u32(SECRET, 0) ^ _load_u32(SECRET, 4)) + seed))
    if n <= 8:
        seed ^= _swap32(seed & LOW32) << U64(32)
        word = _load_u32(data, i + n - 4) + (_load_u32(data, i) << U64(32))
        h = word ^ (_secret_pair(8, 16) - seed)
        h ^= _rotl(h, 49) ^ _rotl(h, 24)
        h *= PRIME_MX2
        h ^= (h >> U64(35)) + size
        h *= PRIME_MX2
        return h ^ (h >> U64(28))
    if n <= 16:
        lo = load_u64(data, i) ^ (_secret_pair(24, 32) + seed)
        hi = load_u64(data, i + n - 8) ^ (_secret_pair(40, 48) - seed)
        return _avalanche(size + _swap64(lo) + hi + _fold(lo, hi))
    acc = size * P64_1
    if n <= 128:
        for step in range((n - 1) // 32, -1, -1):
            acc += _mix16(data, i + 16 * step, 32 * step, seed)
            acc += _mix16(data, i + n - 16 * (step + 1), 32 * step + 16, seed)
        return _avalanche(acc)
    for step in range(8):
        acc += _mix16(data, i + 16 * step, 16 * step, seed)
    acc = _avalanche(acc)
    for step in range(8, n // 16):
        acc += _mix16(data, i + 16 * step, 16 * (step - 8) + 3, seed)
    return _avalanche(acc + _mix16(data, i + n - 16, 136 - 17, seed))


@njit(cache=True, nogil=True)
def _short_128(data, i, n, seed):  # type: ignore[no-untyped-def]
    """Rows of 0 to 240 bytes, 128 bits as (hi, lo)."""
    size = U64(n)
    if n == 0:
        return _avalanche_xxh64(seed ^ _secret_pair(80, 88)), _avalanche_xxh64(seed ^ _secret_pair(64, 72))
    if n <= 3:
        lo = U64(data[i]) << U64(16) | U64(data[i + n // 2]) << U64(24) | U64(data[i + n - 1]) | size << U64(8)
        hi = _swap32(lo)
        hi = ((hi << U64(13)) | (hi >> U64(19))) & LOW32
        lo ^= (_load_u32(SECRET, 0) ^ _load_u32(SECRET, 4)) + seed
        hi ^= (_load_u32(SECRET, 8) ^ _load_u32(SECRET, 12)) - seed
        return _avalanche_xxh64(hi), _avalanche_xxh64(lo)
    if n <= 8:
        seed ^= _swap32(seed & LOW32) << U64(32)
        word = _load_u32(data, i) + (_load_u32(data, i + n - 4) << U64(32))
        word ^= _secret_pair(16, 24) + seed
        factor = P64_1 + (size << U64(2))
        lo, hi = word * factor, mul_high(word, factor)
        hi += lo << ONE
        lo ^= hi >> U64(3)
        lo = (lo ^ (lo >> U64(35))) * PRIME_MX2
        return _avalanche(hi), lo ^ (lo >> U64(28))
    if n <= 16:
        head, tail = load_u64(data, i), load_u64(data, i + n - 8)
        word = head ^ tail ^ (_secret_pair(32, 40) - seed)
        lo, hi = word * P64_1, mul_high(word, P64_1)
        lo += (size - ONE) << U64(54)
        tail ^= _secret_pair(48, 56) + seed
        hi += tail + (tail & LOW32) * (P32_2 - ONE)
        lo ^= _swap64(hi)
        return _avalanche(mul_high(lo, P64_2) + hi * P64_2), _avalanche(lo * P64_2)
    lo, hi = size * P64_1, U64(0)
    if n <= 128:
        for step in range((n - 1) // 32, -1, -1):
            lo, hi = _mix32(lo, hi, data, i + 16 * step, i + n - 16 * (step + 1), 32 * step, seed)
    else:
        for step in range(4):
            lo, hi = _mix32(lo, hi, data, i + 32 * step, i + 32 * step + 16, 32 * step, seed)
        lo, hi = _avalanche(lo), _avalanche(hi)
        for step in range(4, n // 32):
            lo, hi = _mix32(lo, hi, data, i + 32 * step, i + 32 * step + 16, 3 + 32 * (step - 4), seed)
        lo, hi = _mix32(lo, hi, data, i + n - 16, i + n - 32, 136 - 17 - 16, U64(0) - seed)
    digest_hi = lo * P64_1 + hi * P64_4 + (size - seed) * P64_2
    return U64(0) - _avalanche(digest_hi), _avalanche(lo + hi)


@njit(cache=True, nogil=True)
def _accumulate(acc, data, i, secret, s, stripes):  # type: ignore[no-untyped-def]
    """Add ``stripes`` of 64 bytes to the eight accumulators; stripe k uses the secret from s + 8k on."""
    a0, a1, a2, a3, a4, a5, a6, a7 = acc[0], acc[1], acc[2], acc[3], acc[4], acc[5], acc[6], acc[7]
    for _ in range(stripes):
        d0, d1, d2, d3 = load_u64(data, i), load_u64(data, i + 8), load_u64(data, i + 16), load_u64(data, i + 24)
        d4, d5 = load_u64(data, i + 32), load_u64(data, i + 40)
        d6, d7 = load_u64(data, i + 48), load_u64(data, i + 56)
        k0, k1 = d0 ^ load_u64(secret, s), d1 ^ load_u64(secret, s + 8)
        k2, k3 = d2 ^ load_u64(secret, s + 16), d3 ^ load_u64(secret, s + 24)
        k4, k5 = d4 ^ load_u64(secret, s + 32), d5 ^ load_u64(secret, s + 40)
        k6, k7 = d6 ^ load_u64(secret, s + 48), d7 ^ load_u64(secret, s + 56)
        a0 += d1 + (k0 & LOW32) * (k0 >> U64(32))
        a1 += d0 + (k1 & LOW32) * (k1 >> U64(32))
        a2 += d3 + (k2 & LOW32) * (k2 >> U64(32))
        a3 += d2 + (k3 & LOW32) * (k3 >> U64(32))
        a4 += d5 + (k4 & LOW32) * (k4 >> U64(32))
        a5 += d4 + (k5 & LOW32) * (k5 >> U64(32))
        a6 += d7 + (k6 & LOW32) * (k6 >> U64(32))
        a7 += d6 + (k7 & LOW32) * (k7 >> U64(32))
        i += 64
        s += 8
    acc[0], acc[1], acc[2], acc[3], acc[4], acc[5], acc[6], acc[7] = a0, a1, a2, a3, a4, a5, a6, a7


@njit(cache=True, nogil=True)
def _long(acc, data, i, n, secret):  # type: ignore[no-untyped-def]
    """Fill ``acc`` from a row of more than 240 bytes: blocks of 16 stripes with a scramble after each."""
    acc[0], acc[1], acc[2], acc[3], acc[4], acc[5], acc[6], acc[7] = (
        P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1,
    )  # fmt: skip
    blocks = (n - 1) // 1024
    for block in range(blocks):
        _accumulate(acc, data, i + 1024 * block, secret, 0, 16)
        for lane in range(8):
            a = acc[lane]
            acc[lane] = (a ^ (a >> U64(47)) ^ load_u64(secret, 128 + 8 * lane)) * P32_1
    _accumulate(acc, data, i + 1024 * blocks, secret, 0, (n - 1 - 1024 * blocks) // 64)
    _accumulate(acc, data, i + n - 64, secret, 192 - 64 - 7, 1)


@njit(cache=True, nogil=True)
def _merge(acc, secret, s, start):  # type: ignore[no-untyped-def]
    h = start
    for k in range(4):
        h += _fold(acc[2 * k] ^ load_u64(secret, s + 16 * k), acc[2 * k + 1] ^ load_u64(secret, s + 16 * k + 8))
    return _avalanche(h)


@njit(cache=True, nogil=True)
def _seeded_secret(seed):  # type: ignore[no-untyped-def]
    secret = SECRET.copy()
    for word in range(24):
        value = load_u64(SECRET, 8 * word)
        value = value + seed if word % 2 == 0 else value - seed
        for byte in range(8):
            secret[8 * word + byte] = np.uint8((value >> U64(8 * byte)) & U64(255))
    return secret


@njit(cache=True, nogil=True)
def _column_64(data, offsets, seed):  # type: ignore[no-untyped-def]
    rows = len(offsets) - 1
    digests = np.empty(rows, np.uint64)
    acc = np.empty(8, np.uint64)
    secret = _seeded_secret(seed)
    for row in range(rows):
        i = offsets[row]
        n = offsets[row + 1] - i
        if n <= 240:
            digests[row] = _short_64(data, i, n, seed)
        else:
            _long(acc, data, i, n, secret)
            digests[row] = _merge(acc, secret, 11, U64(n) * P64_1)
    return digests


@njit(cache=True, nogil=True)
def _column_128(data, offsets, seed):  # type: ignore[no-untyped-def]
    rows = len(offsets) - 1
    hi = np.empty(rows, np.uint64)
    lo = np.empty(rows, np.uint64)
    acc = np.empty(8, np.uint64)
    secret = _seeded_secret(seed)
    for row in range(rows):
        i = offsets[row]
        n = offsets[row + 1] - i
        if n <= 240:
            hi[row], lo[row] = _short_128(data, i, n, seed)
        else:
            _long(acc, data, i, n, secret)
            lo[row] = _merge(acc, secret, 11, U64(n) * P64_1)
            hi[row] = _merge(acc, secret, 192 - 64 - 11, ~(U64(n) * P64_2))
    return hi, lo


def xxh3_64(data: np.ndarray, offsets: np.ndarray, seed: int = 0) -> np.ndarray:
    """``uint64[n]``: XXH3-64 of every row; equal to ``xxhash.xxh3_64_intdigest(row, seed)``."""
    return _column_64(data, offsets, U64(seed))


def xxh3_128(data: np.ndarray, offsets: np.ndarray, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """``(hi: uint64[n], lo: uint64[n])``: XXH3-128 of every row, upper and lower half.

    Equal to ``xxhash.xxh3_128_intdigest(row, seed) == hi << 64 | lo``.
    """
    return _column_128(data, offsets, U64(seed))


@njit(inline="always")
def _finalize(x):  # type: ignore[no-untyped-def]
    x = (x ^ (x >> U64(30))) * U64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> U64(27))) * U64(0x94D049BB133111EB)
    return x ^ (x >> U64(31))


@njit(cache=True, nogil=True)
def mix64(hi, lo, key):  # type: ignore[no-untyped-def]
    """``mix64(hi: uint64, lo: uint64, key: uint64) -> uint64``: a hash of a 128-bit id under a key, for kernels.

    Three nested finalizers of SplitMix64 (Steele, Lea, Flood 2014): key, then hi, then lo. For a fixed key and hi it
    is a bijection of lo. Not cryptographic.
    """
    return _finalize(U64(lo) + _finalize(U64(hi) + _finalize(U64(key) + GOLDEN)))


@njit(cache=True, nogil=True)
def _keyed_hash(hi, lo, key):  # type: ignore[no-untyped-def]
    hashes = np.empty(len(hi), np.uint64)
    for row in range(len(hi)):
        hashes[row] = mix64(hi[row], lo[row], key)
    return hashes


def keyed_hash(hi: np.ndarray, lo: np.ndarray, key: int) -> np.ndarray:
    """``uint64[n]``: ``mix64`` of every id ``(hi: uint64[n], lo: uint64[n])`` under one 64-bit key."""
    return _keyed_hash(hi, lo, U64(key))


def key(*parts: str | int) -> int:
    """A key of 64 bits from names and numbers: XXH3-64 of the parts, each as type, byte length, bytes.

    No two different lists of parts share an encoding: ``key("ab", "c")``, ``key("a", "bc")`` differ, and so do
    ``key(1)`` and ``key("1")``. Raises TypeError for any other type, bool included.
    """
    encoded = bytearray()
    for part in parts:
        if type(part) is str:
            tag, body = b"s", part.encode()
        elif type(part) is int:
            tag, body = b"i", str(part).encode()
        else:
            raise TypeError(f"a key is made of str and int, not {type(part).__name__}: {part!r}")
        encoded += tag + len(body).to_bytes(8, "little") + body
    return xxhash.xxh3_64_intdigest(bytes(encoded))
