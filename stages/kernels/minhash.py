"""MinHash signatures of shingle sets, and the keys of locality-sensitive hashing by bands.

A signature has k places. For every place each shingle has a random rank; the place holds the hash of the shingle of
lowest rank. Two documents agree at a place with probability J, the Jaccard similarity (resemblance) of their shingle
sets (Broder 1997), so the share of equal places is an unbiased estimate of J.

Ranks are those of Dahlgaard, Knudsen, Thorup 2017 ("Fast similarity sketching", FOCS,
https://arxiv.org/abs/1704.04370, algorithm 1). Round 0 sends every shingle to one place, with a rank for that place
alone. While places are empty, another round with a new hash sends every shingle to another place, with ranks above
those of all earlier rounds. After k / 8 such rounds (the paper: k) each place that is still empty takes the least of
all shingles under a hash of its own. What a place holds is the minimum over all rounds, the same whenever the rounds
end, so a short and a long document compare without bias, unlike with one-permutation hashing whose empty places are
filled by copies (Shrivastava 2017). Places of one round divide the shingles among them, so their agreements are
negatively correlated: the variance is at most the J(1-J)/k of k independent hashes.

The cost is one hash and one minimum for a shingle and round instead of k: about max(n, k ln k) steps for n distinct
shingles. With k = 128 that is one round for texts of 700 shingles, and finding the words takes more time than hashing.
"""

import numpy as np
import numpy.typing as npt
from numba import njit

from stages.kernels.shingles import (
    Hashes,
    base_power,
    kind_of,
    most_units,
    sort_unique,
    write_shingles,
)
from stages.kernels.text import Bytes, mix
from stages.kernels.xxh3 import mix64, mul_high

VERSION = 1
"""Version of signatures and band keys: for the same shingles they may not change unless this does."""

MOST_PLACES = 1 << 15
"""Upper bound of the places of a signature."""

Signatures = npt.NDArray[np.uint32]

COMMON_ROUNDS_OF = 8
"""Of k places, k divided by this is the number of rounds that divide the shingles among them. Waiting for chance to
fill the last places of a short text takes more steps than filling them one by one; 8 was near the fastest
of 2, 4, 8 and 16 for sets of 1 to 10,000 shingles.
"""

_LOW32 = np.uint64(0xFFFFFFFF)
_LOW40 = np.uint64((1 << 40) - 1)
_EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
_1 = np.uint64(1)
_24 = np.uint64(24)
_40 = np.uint64(40)


@njit(cache=True, nogil=True, forceinline=True)
def _hash(shingle: np.uint64, key: np.uint64) -> np.uint64:
    return (shingle * key) ^ mul_high(shingle, key)


@njit(cache=True, nogil=True)
def _sketch(shingles, start, count, seed, ranks, signature):  # type: ignore[no-untyped-def]
    """Write the signature of shingles[start:start + count], sorting them and dropping repetitions where that pays.

    A rank has the round in its upper 24 bits and 40 bits of hash below; its low 32 bits go into the signature.
    """
    places = len(ranks)
    ranks[:] = _EMPTY
    empty = places if count else 0
    common = places // COMMON_ROUNDS_OF
    number = 0
    while empty and number < common:
        if number == 2 and count > 6 * places:
            # So many distinct shingles leave a place empty in two rounds with probability k e^-12: these repeat.
            count = sort_unique(shingles, start, start + count)
        key = mix64(np.uint64(number), np.uint64(places), seed) | _1
        above = np.uint64(number) << _40
        for at in range(start, start + count):
            hashed = _hash(shingles[at], key)
            place = np.int64(((hashed >> _40) * np.uint64(places)) >> _24)
            rank = above | (hashed & _LOW40)
            if rank < ranks[place]:
                empty -= ranks[place] == _EMPTY
                ranks[place] = rank
        number += 1
    for place in range(places if empty else 0):
        if ranks[place] == _EMPTY:
            key = mix64(np.uint64(common + place), np.uint64(places), seed) | _1
            least = _EMPTY
            for at in range(start, start + count):
                rank = _hash(shingles[at], key) & _LOW40
                if rank < least:
                    least = rank
            ranks[place] = least
    for place in range(places):
        signature[place] = np.uint32(ranks[place] & _LOW32)


@njit(cache=True, nogil=True)
def _signatures(kind, data, offsets, n, places, seed):  # type: ignore[no-untyped-def]
    rows = len(offsets) - 1
    largest = 0
    for row in range(rows):
        largest = max(largest, offsets[row + 1] - offsets[row])
    ring = np.empty(n, np.uint64)
    power = base_power(n)
    shingles = np.empty(most_units(kind, largest), np.uint64)
    ranks = np.empty(places, np.uint64)
    signatures = np.empty((rows, places), np.uint32)
    counts = np.empty(rows, np.int64)
    for row in range(rows):
        counts[row] = write_shingles(kind, data, offsets[row], offsets[row + 1], ring, power, shingles, 0)
        _sketch(shingles, 0, counts[row], seed, ranks, signatures[row])
    return signatures, counts


@njit(cache=True, nogil=True)
def _sketch_sets(hashes, starts, places, seed):  # type: ignore[no-untyped-def]
    ranks = np.empty(places, np.uint64)
    signatures = np.empty((len(starts) - 1, places), np.uint32)
    for row in range(len(starts) - 1):
        _sketch(hashes, starts[row], starts[row + 1] - starts[row], seed, ranks, signatures[row])
    return signatures


@njit(cache=True, nogil=True)
def _band_keys(signatures, bands, rows, tag):  # type: ignore[no-untyped-def]
    keys = np.empty((len(signatures), bands), np.uint64)
    for document in range(len(signatures)):
        for band in range(bands):
            key = mix(np.uint64(tag), np.uint64(band))
            for row in range(band * rows, (band + 1) * rows):
                key = mix(key, np.uint64(signatures[document, row]))
            keys[document, band] = key
    return keys


@njit(cache=True, nogil=True)
def _agreements(first, first_rows, second, second_rows):  # type: ignore[no-untyped-def]
    found = np.empty(len(first_rows), np.int64)
    for pair in range(len(first_rows)):
        a, b = first[first_rows[pair]], second[second_rows[pair]]
        equal = 0
        for place in range(len(a)):
            equal += a[place] == b[place]
        found[pair] = equal
    return found


def _check_places(places: int, seed: int) -> None:
    if not 1 <= places <= MOST_PLACES:
        raise ValueError(f"a signature has 1 to {MOST_PLACES} hashes, not {places}")
    if not 0 <= seed < 1 << 64:
        raise ValueError(f"the seed is a number of 64 bits without sign, not {seed}")


def signatures(
    data: Bytes, offsets: npt.NDArray[np.int64], kind: str, n: int, hashes: int = 128, seed: int = 1
) -> tuple[Signatures, npt.NDArray[np.int64]]:
    """Signatures of every row, straight from the text.

    ``data: uint8[:]``, ``offsets: int64[rows + 1]``; `kind` and `n` as in `stages.kernels.shingles`. Returns
    ``(signatures: uint32[rows, hashes], counts: int64[rows])``; counts are those of `shingles.shingle_counts`. A row
    without shingles has 0xFFFFFFFF everywhere and must not be compared. Work space is 4 bytes for each byte of the
    largest row. Hashes follow from the seed by the finalizer of SplitMix64 (`xxh3.mix64`); signatures compare only
    if kind, n, hashes and seed are equal, and a longer signature does not begin with a shorter one.

    Raises ValueError for an unknown kind, n below 1, and hashes or a seed out of range.
    """
    _check_places(hashes, seed)
    found, counts = _signatures(kind_of(kind, n), data, offsets, n, hashes, np.uint64(seed))
    return found, counts


def sketch_sets(sets: Hashes, starts: npt.NDArray[np.int64], hashes: int = 128, seed: int = 1) -> Signatures:
    """``uint32[m, hashes]``: signatures of shingle sets (``uint64[total]``, ``int64[m + 1]``, see
    `shingles.shingle_sets`), equal to those `signatures` takes from the text.

    Raises ValueError for hashes or a seed out of range.
    """
    _check_places(hashes, seed)
    found: Signatures = _sketch_sets(sets.copy(), starts, hashes, np.uint64(seed))
    return found


def agreements(
    first: Signatures,
    first_rows: npt.NDArray[np.int64],
    second: Signatures,
    second_rows: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """``int64[pairs]``: in how many places first[first_rows[i]] and second[second_rows[i]] agree.

    Divided by the number of places that estimates the Jaccard similarity. Raises ValueError if the signatures differ
    in length or the rows in number.
    """
    if first.shape[1] != second.shape[1] or len(first_rows) != len(second_rows):
        raise ValueError(f"signatures {first.shape} {second.shape}, rows {first_rows.shape} {second_rows.shape}")
    found: npt.NDArray[np.int64] = _agreements(first, first_rows, second, second_rows)
    return found


def band_keys(signatures: Signatures, bands: int, rows: int, kind_tag: int) -> Hashes:
    """``uint64[documents, bands]``: a hash of each band of `rows` places, of the band's number and of `kind_tag`.

    Two documents are candidates if they share a key: see `collision_probability`. `kind_tag` (64 bits) keeps apart
    what must not meet, such as words and lines; `xxh3.key` makes one from names. Documents without shingles all share
    their keys and are to be left out. Raises ValueError if the bands need more places than there are.
    """
    if bands < 1 or rows < 1 or bands * rows > signatures.shape[1]:
        raise ValueError(f"{bands} bands of {rows} rows do not fit in a signature of {signatures.shape[1]}")
    keys: Hashes = _band_keys(signatures, bands, rows, np.uint64(kind_tag))
    return keys


def collision_probability(similarity: float, bands: int, rows: int) -> float:
    """Probability that documents of that Jaccard similarity share a band key: 1 - (1 - s^rows)^bands.

    Leskovec, Rajaraman, Ullman, "Mining of Massive Datasets", section 3.4.2, for independent places.
    """
    return 1.0 - (1.0 - similarity**rows) ** bands
