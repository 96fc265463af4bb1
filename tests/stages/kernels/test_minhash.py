"""MinHash: the sketch against plain Python, its estimate against the truth, and the recall of banding."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.kernels import minhash
from stages.kernels.minhash import agreements, band_keys, collision_probability, signatures, sketch_sets
from stages.kernels.shingles import shingle_counts, shingle_sets
from stages.kernels.similarity import overlaps
from stages.kernels.xxh3 import mix64

CORPORA = Path(__file__).parents[4] / "shared" / "corpora"
LOW40 = (1 << 40) - 1
PLACES = 128


def column(rows: list[str]) -> tuple[np.ndarray, np.ndarray]:
    encoded = [row.encode() for row in rows]
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in encoded], out=offsets[1:])
    return np.frombuffer(b"".join(encoded), np.uint8), offsets


def plain_sketch(shingles: set[int], places: int, seed: int) -> list[int]:
    """Each place's least rank over all rounds, none left out."""
    ranks: list[list[int]] = [[] for _ in range(places)]
    common = places // minhash.COMMON_ROUNDS_OF
    for number in range(common + places):
        key = int(mix64(np.uint64(number), np.uint64(places), np.uint64(seed))) | 1
        for shingle in shingles:
            product = shingle * key
            hashed = (product ^ (product >> 64)) & ((1 << 64) - 1)
            place = (hashed >> 40) * places >> 24 if number < common else number - common
            ranks[place].append(min(number, common) << 40 | (hashed & LOW40))
    return [min(found) & 0xFFFFFFFF if found else 0xFFFFFFFF for found in ranks]


def pairs_of(rng: np.random.Generator, pairs: int, union: int, common: int) -> tuple[np.ndarray, np.ndarray]:
    """Signatures of random set pairs with `common` of `union` elements in both, the others shared out evenly."""
    drawn = rng.integers(0, 2**64, (pairs, union), dtype=np.uint64)
    half = common + (union - common) // 2
    first, second = drawn[:, :half], np.concatenate([drawn[:, :common], drawn[:, half:]], axis=1)
    return sketch(first), sketch(second)


def sketch(sets: np.ndarray) -> np.ndarray:
    return sketch_sets(np.ascontiguousarray(sets).ravel(), np.arange(len(sets) + 1) * sets.shape[1], PLACES)


@given(st.sets(st.integers(1, 2**64 - 1), max_size=40), st.integers(1, 40), st.integers(0, 2**64 - 1))
@settings(max_examples=30, deadline=None)
def test_sketch_is_the_minimum_over_all_rounds(shingles: set[int], places: int, seed: int) -> None:
    hashes = np.array(sorted(shingles), np.uint64)
    found = sketch_sets(hashes, np.array([0, len(hashes)]), places, seed)
    assert found.dtype == np.uint32
    assert found[0].tolist() == plain_sketch(shingles, places, seed)


@given(st.lists(st.text(alphabet="abcé漢 .\n", max_size=60), min_size=1, max_size=4), st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_signatures_of_texts_are_those_of_their_sets(rows: list[str], n: int) -> None:
    data, offsets = column(rows)
    for kind in ("words", "lines"):
        found, counts = signatures(data, offsets, kind, n, 64, 9)
        assert np.array_equal(found, sketch_sets(*shingle_sets(data, offsets, kind, n), 64, 9))
        assert np.array_equal(counts, shingle_counts(data, offsets, kind, n))
        assert (found[counts == 0] == 0xFFFFFFFF).all()


def test_repetitions_change_nothing() -> None:
    """Also where they are dropped before the third round."""
    once = " ".join(f"w{at}" for at in range(30))
    data, offsets = column([once, (once + ". ") * 2, (once + ". ") * 100])
    found, counts = signatures(data, offsets, "words", 1)
    assert counts.tolist() == [30, 60, 3000]
    assert (found == found[0]).all()


@pytest.mark.parametrize(("union", "common"), [(5, 4), (20, 10), (60, 48), (200, 160), (1000, 300), (1000, 800)])
def test_estimate_is_unbiased_with_at_most_the_variance_of_independent_hashes(union: int, common: int) -> None:
    pairs, rows = 3000, np.arange(3000)
    a, b = pairs_of(np.random.default_rng(union + common), pairs, union, common)
    estimate = agreements(a, rows, b, rows) / PLACES
    truth = common / union
    variance = truth * (1 - truth) / PLACES
    assert abs(estimate.mean() - truth) < 4 * np.sqrt(variance / pairs)
    assert estimate.var() < variance * (1 + 4 * np.sqrt(2 / pairs))
    # Every place by itself is a fair draw, whichever round filled it.
    assert np.abs((a == b).mean(axis=0) - truth).max() < 5 * np.sqrt(truth * (1 - truth) / pairs)


def test_small_and_large_sets_compare_without_bias() -> None:
    pairs, rows = 1000, np.arange(1000)
    drawn = np.random.default_rng(4).integers(0, 2**64, (pairs, 2000), dtype=np.uint64)
    estimate = agreements(sketch(drawn[:, :20]), rows, sketch(drawn), rows) / PLACES
    assert abs(estimate.mean() - 0.01) < 4 * np.sqrt(0.01 * 0.99 / PLACES / pairs)


@pytest.mark.parametrize(("bands", "rows"), [(18, 7), (21, 6), (14, 8)])
@pytest.mark.parametrize("union", [50, 400])
def test_banding_finds_pairs_as_often_as_the_formula_says(bands: int, rows: int, union: int) -> None:
    pairs = 2000
    for similarity in (0.3, 0.6, 0.8, 0.9):
        a, b = pairs_of(np.random.default_rng(union), pairs, union, round(similarity * union))
        found = (band_keys(a, bands, rows, 5) == band_keys(b, bands, rows, 5)).any(axis=1).mean()
        expected = collision_probability(similarity, bands, rows)
        # Places are negatively correlated, bands the more so: a few hundredths, on the side of fewer false candidates.
        assert abs(found - expected) < 0.03 + 4 * np.sqrt(expected * (1 - expected) / pairs)
        if similarity >= 0.8:
            assert found > expected - 4 * np.sqrt(expected * (1 - expected) / pairs) - 1e-9


def test_recommended_bands() -> None:
    assert collision_probability(0.8, 18, 7) == pytest.approx(0.98554, abs=1e-5)
    assert collision_probability(0.5, 18, 7) == pytest.approx(0.13166, abs=1e-5)
    assert collision_probability(0.0, 3, 2) == 0 and collision_probability(1.0, 3, 2) == 1


def test_band_keys_are_of_band_rows_and_tag() -> None:
    base = np.arange(12, dtype=np.uint32).reshape(1, 12) % 3
    keys = band_keys(base, 4, 3, 1)
    assert len(set(keys[0].tolist())) == 4  # equal rows, but other bands
    assert not np.isin(keys, band_keys(base, 4, 3, 2)).any()
    changed = base.copy()
    changed[0, 4] = 9
    assert (band_keys(changed, 4, 3, 1) == keys).tolist() == [[True, False, True, True]]
    with pytest.raises(ValueError, match="5 bands of 3"):
        band_keys(base, 5, 3, 1)


def test_golden() -> None:
    """Raise `minhash.VERSION`, or `shingles.VERSION` if it is the shingles that changed."""
    data, offsets = column(
        ["a rose is a rose is a rose, naïve 漢字かなカー", "x = 1\ny = 2\nz = 3\n", "", "one " * 500]
    )
    words, _ = signatures(data, offsets, "words", 5, 128, 1)
    lines, _ = signatures(data, offsets, "lines", 2, 128, 1)
    keys = [band_keys(found, 18, 7, 3) for found in (words, lines)]
    assert minhash.VERSION == 1
    assert [int(found.sum(dtype=np.uint64)) for found in (words, lines)] == GOLDEN_SUMS
    assert [hex(int(np.bitwise_xor.reduce(k.ravel()))) for k in keys] == GOLDEN_KEYS
    assert hex(int(np.bitwise_xor.reduce(signatures(data, offsets, "words", 5, 100, 7)[0].ravel()))) == GOLDEN_OTHER


GOLDEN_SUMS = [1375119327359, 1907384040210]
GOLDEN_KEYS = ["0x4fce31016df890c9", "0x171d20a9722d997a"]
GOLDEN_OTHER = "0x4ebcfc2d"


def test_what_is_out_of_range() -> None:
    data, offsets = column(["a"])
    for hashes, seed in ((0, 1), (minhash.MOST_PLACES + 1, 1), (128, -1), (128, 2**64)):
        with pytest.raises(ValueError, match="hashes|seed"):
            signatures(data, offsets, "words", 5, hashes, seed)
    with pytest.raises(ValueError, match="signatures"):
        agreements(np.zeros((1, 3), np.uint32), np.array([0]), np.zeros((1, 4), np.uint32), np.array([0]))


@pytest.mark.skipif(not CORPORA.is_dir(), reason="the shared corpora are not here")
def test_real_pairs() -> None:
    """Neighbours in a corpus of near duplicates and texts with every fortieth word replaced."""
    with gzip.open(CORPORA / "handbook.jsonl.gz", "rt") as file:
        rows = [json.loads(line)["text"][:30_000] for line in file][:600]
    edited = [" ".join(w if at % 40 else "new" for at, w in enumerate(row.split(" "))) for row in rows]
    data, offsets = column([*rows, *edited])
    sets, starts = shingle_sets(data, offsets, "words", 5)
    first = np.concatenate([np.arange(600), np.arange(599)])
    second = np.concatenate([np.arange(600, 1200), np.arange(1, 600)])
    common, a, b = overlaps(sets, starts, first, sets, starts, second)
    judged = np.minimum(a, b) > 0
    truth = common[judged] / (a + b - common)[judged]
    found, _ = signatures(data, offsets, "words", 5)
    error = agreements(found, first[judged], found, second[judged]) / PLACES - truth
    assert (truth > 0.6).sum() > 400
    assert np.abs(error).max() < 5 * np.sqrt(0.25 / PLACES)
    deviation = np.sqrt(truth * (1 - truth) / PLACES)
    assert abs(error.mean()) < 5 * np.sqrt((deviation**2).sum()) / len(truth)
