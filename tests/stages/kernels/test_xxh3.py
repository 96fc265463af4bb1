import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from stages.kernels.xxh3 import key, keyed_hash, mix64, xxh3_64, xxh3_128

GOLDEN_KEY_0 = ["33fe8bd4f9c57863", "906a2e0a4515e900", "943afb10d107f8fd", "53068436cf225838"]
GOLDEN_KEY_MAX = ["179f01f0d2fba97a", "1e45e2a324b7110a", "55ee1ad81936ae11", "d23c7f88e65c775c"]
GOLDEN_NAME = "b3a4539d47687e36"
SEEDS = (0, 1, 0x9E3779B97F4A7C15, 2**64 - 1)


def column(rows: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return np.frombuffer(b"".join(rows), np.uint8), offsets


def check(rows: list[bytes], seed: int) -> None:
    data, offsets = column(rows)
    hi, lo = xxh3_128(data, offsets, seed)
    assert [int(h) << 64 | int(v) for h, v in zip(hi, lo, strict=True)] == [
        xxhash.xxh3_128_intdigest(row, seed) for row in rows
    ]
    assert xxh3_64(data, offsets, seed).tolist() == [xxhash.xxh3_64_intdigest(row, seed) for row in rows]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_length(seed: int) -> None:
    noise = np.random.default_rng(7).bytes(1 << 20)
    check([noise[n : n + n] for n in range(1101)], seed)
    check([noise, noise[1:], noise[: 1 << 19], noise[3 : 1024 * 300 + 3], noise[: 1024 * 300 + 1]], seed)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=600)), st.integers(0, 2**64 - 1))
def test_any_rows_and_seed(rows: list[bytes], seed: int) -> None:
    check(rows, seed)


def test_no_rows_and_a_slice() -> None:
    assert [len(part) for part in xxh3_128(np.empty(0, np.uint8), np.zeros(1, np.int64))] == [0, 0]
    data, offsets = column([b"aa", b"bbb", b"c" * 300])
    assert xxh3_64(data, offsets[1:]).tolist() == xxh3_64(data, offsets)[1:].tolist()


def test_mix64_golden_values() -> None:
    hi = np.array([0, 0, 1, 2**64 - 1], np.uint64)
    lo = np.array([0, 1, 0, 2**64 - 1], np.uint64)
    assert [f"{value:016x}" for value in keyed_hash(hi, lo, 0)] == GOLDEN_KEY_0
    assert [f"{value:016x}" for value in keyed_hash(hi, lo, 2**64 - 1)] == GOLDEN_KEY_MAX


def test_mix64_inside_a_kernel() -> None:
    @njit
    def kernel(hi, lo):  # type: ignore[no-untyped-def]
        return mix64(hi[0], lo[0], np.uint64(5))

    hi, lo = np.array([3], np.uint64), np.array([4], np.uint64)
    assert kernel(hi, lo) == keyed_hash(hi, lo, 5)[0]


@pytest.mark.parametrize("shift", [0, 8, 56])
def test_keyed_hash_spreads_counting_ids(shift: int) -> None:
    n = 1 << 16
    count = np.arange(n, dtype=np.uint64)
    none = np.zeros(n, np.uint64)
    for hashes in (
        keyed_hash(none, count, 1),
        keyed_hash(count, none, 1),
        keyed_hash(none, count, 1) ^ keyed_hash(none, count, 2),
        keyed_hash(none, count, 1) ^ keyed_hash(count, none, 1),
    ):
        buckets = np.bincount((hashes >> np.uint64(shift)) & np.uint64(255), minlength=256)
        chi_square = float(((buckets - n / 256) ** 2).sum() / (n / 256))
        assert 150 < chi_square < 380  # 255 degrees of freedom: mean 255, standard deviation 22.6


def test_each_bit_of_an_id_and_key_moves_half_of_the_hash() -> None:
    rng = np.random.default_rng(3)
    hi, lo = rng.integers(0, 2**64, (2, 2000), dtype=np.uint64)
    base = keyed_hash(hi, lo, 99)
    for bit in range(64):
        one = np.uint64(1 << bit)
        for other in (keyed_hash(hi ^ one, lo, 99), keyed_hash(hi, lo ^ one, 99), keyed_hash(hi, lo, 99 ^ 1 << bit)):
            assert 31 < np.bitwise_count(base ^ other).mean() < 33


def test_key() -> None:
    assert f"{key('epoch', 'wiki', 3):016x}" == GOLDEN_NAME
    keys = [key(), key(""), key("", ""), key("ab", "c"), key("a", "bc"), key("abc"), key(1), key("1"), key(-1)]
    keys += [key(1, 2), key(12), key("é"), key(2**80)]
    assert len(set(keys)) == len(keys)
    assert all(0 <= value < 2**64 for value in keys)
    for part in (True, 1.0, b"a", None):
        with pytest.raises(TypeError, match="made of str and int"):
            key(part)  # type: ignore[arg-type]
