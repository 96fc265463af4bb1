"""Duplicate lines, paragraphs and n-grams of one document, counted as datatrove counts the rules of Gopher.

Rae et al. 2021 (https://arxiv.org/abs/2112.11446, table A1) name the quantities; what exactly is a line, a
paragraph or an n-gram follows datatrove 0.10.1. Equality is by 64-bit hash or 61-bit digest; see `text` for
the odds. All functions are linear in the document.
"""

import numpy as np
import numpy.typing as npt
from numba import njit

from stages.kernels.scratch import (
    AFTER,
    BREAKS,
    CHARACTERS_AFTER,
    FIRST,
    FIRST_CHARACTER,
    SOLID,
    Scratch,
)
from stages.kernels.text import (
    Bytes,
    Int,
    digest_power,
    first_slot,
    hash_bytes,
    join_digests,
    mix,
    table_bits,
)

Table = npt.NDArray[np.uint64]

FREE = np.uint64(0)
ONE = np.uint64(1)
_32 = np.uint64(32)
_FIRST_MASK = np.uint64(0xFFFFFFFF)

SPARSE = 2
"""log2 of the counters of `mark_repeated` for each slot of a table."""

TOP_SIZES = (2, 3, 4)
"""Sizes of the n-grams whose most frequent one is measured."""
DUPLICATE_SIZES = (5, 6, 7, 8, 9, 10)
"""Sizes of the n-grams whose repetitions are measured."""


@njit(cache=True, nogil=True)
def seen_before(key: np.uint64, slots: Table, bits: Int) -> bool:
    """Whether the non-zero `key` is in the table of 2^bits slots; it is afterwards."""
    slot = first_slot(key, bits)
    while slots[slot] != FREE:
        if slots[slot] == key:
            return True
        slot = (slot + 1) & ((1 << bits) - 1)
    slots[slot] = key
    return False


@njit(cache=True, nogil=True)
def mark_repeated(keys: Table, count: Int, marks: Bytes) -> Int:
    """Count the first `count` keys by hash in `marks`, return log2 of its size.

    A key whose counter (see `first_slot`) is 1 stands once; only the others, some 10% more than the repeated
    ones, need a look in a table.
    """
    bits = table_bits(count) + SPARSE
    marks[: 1 << bits] = 0
    for at in range(count):
        slot = first_slot(keys[at], bits)
        marks[slot] = min(marks[slot] + 1, 2)
    return bits


@njit(cache=True, nogil=True)
def duplicate_lines(data: Bytes, count: Int, scratch: Scratch) -> tuple[Int, Int, Int]:
    """Lines that repeat an earlier one: their number, their characters, and the characters of those not
    blank.

    `count` lines are described by `scratch.lines`: the text cut at runs of newlines, white space kept, empty
    ones at the two edges of the text included.
    """
    bits = table_bits(count)
    scratch.slots[: 1 << bits] = FREE
    repeated = 0
    chars = 0
    solid_chars = 0
    for number in range(count):
        line = scratch.lines[number]
        if seen_before(hash_bytes(data, line[FIRST], line[AFTER]), scratch.slots, bits):
            length = line[CHARACTERS_AFTER] - line[FIRST_CHARACTER]
            repeated += 1
            chars += length
            if line[SOLID]:
                solid_chars += length
    return repeated, chars, solid_chars


@njit(cache=True, nogil=True)
def duplicate_paragraphs(
    data: Bytes, count: Int, body: tuple[Int, Int, Int, Int], scratch: Scratch
) -> tuple[Int, Int, Int]:
    """Number of paragraphs, of those that repeat an earlier one, and the characters of the latter.

    Paragraphs are the stripped text cut at runs of two or more newlines. `body` is the stripped text: its
    first byte, the byte after it, and the same in characters; a text of white space alone is one empty
    paragraph.
    """
    first, after, first_character, characters_after = body
    if first >= after:
        return 1, 0, 0
    bits = table_bits(count)
    scratch.slots[: 1 << bits] = FREE
    paragraphs = 0
    repeated = 0
    chars = 0
    number = 0
    while scratch.lines[number, AFTER] <= first:
        number += 1
    while number < count and scratch.lines[number, FIRST] < after:
        start = max(first, scratch.lines[number, FIRST])
        length = -max(first_character, scratch.lines[number, FIRST_CHARACTER])
        while scratch.lines[number, BREAKS] == 1 and scratch.lines[number + 1, FIRST] < after:
            number += 1
        length += min(characters_after, scratch.lines[number, CHARACTERS_AFTER])
        paragraphs += 1
        if seen_before(hash_bytes(data, start, min(after, scratch.lines[number, AFTER])), scratch.slots, bits):
            repeated += 1
            chars += length
        number += 1
    return paragraphs, repeated, chars


@njit(cache=True, nogil=True)
def top_grams(words: Int, scratch: Scratch, top: npt.NDArray[np.int64]) -> None:
    """Write to `top` the characters that the most frequent n-gram covers, for n in `TOP_SIZES`.

    That is its length with one space between words, times its occurrences; of equally frequent n-grams the
    one seen first counts. A text of fewer than n words has 0. An n-gram can only be repeated where its first
    and its last n-1 words are, so longer ones are looked up at few places.
    """
    grams, places, slots, reach = scratch.grams, scratch.places, scratch.slots, scratch.reach
    for word in range(words):
        grams[word] = scratch.digests[word]
        places[word] = 1
    for size in TOP_SIZES:
        last = words - size + 1
        if last < 1:
            top[size - 2] = 0
            continue
        for at in range(last):
            grams[at] = mix(grams[at], scratch.digests[at + size - 1]) | ONE
        mark_bits = mark_repeated(grams, last, scratch.marks)
        candidates = 0
        for at in range(last):
            places[at] &= places[at + 1] & (scratch.marks[first_slot(grams[at], mark_bits)] > 1)
            candidates += places[at]
        bits = table_bits(candidates)
        mask = (1 << bits) - 1
        slots[: 2 << bits] = FREE
        best: Int = 1
        best_at: Int = 0
        for at in range(last):
            if not places[at]:
                places[at] = -1
                continue
            key = grams[at]
            slot = first_slot(key, bits)
            while slots[2 * slot] != FREE and slots[2 * slot] != key:
                slot = (slot + 1) & mask
            if slots[2 * slot] == FREE:
                slots[2 * slot] = key
                slots[2 * slot + 1] = (ONE << _32) | np.uint64(at)
            else:
                slots[2 * slot + 1] += ONE << _32
                times = np.int64(slots[2 * slot + 1] >> _32)
                seen_at = np.int64(slots[2 * slot + 1] & _FIRST_MASK)
                if times > best or (times == best and seen_at < best_at):
                    best = times
                    best_at = seen_at
            places[at] = slot
        for at in range(last):
            slot = places[at]
            places[at] = 1 if slot >= 0 and slots[2 * slot + 1] >> _32 > ONE else 0
        top[size - 2] = best * (reach[best_at + size] - reach[best_at] + size - 1)


@njit(cache=True, nogil=True)
def duplicate_grams(words: Int, scratch: Scratch, repeated: npt.NDArray[np.int64]) -> None:
    """Write to `repeated` the characters of n-grams that repeat an earlier one, for n in `DUPLICATE_SIZES`.

    After a repeated n-gram the search goes on behind it, so no character counts twice and the n-grams inside
    it are not remembered. N-grams are equal when their words written without spaces are equal, as in
    datatrove.
    """
    grams, powers, digests, reach, places = (
        scratch.grams,
        scratch.powers,
        scratch.digests,
        scratch.reach,
        scratch.places,
    )
    for word in range(words):
        grams[word] = digests[word]
        powers[word] = digest_power(reach[word + 1] - reach[word])
    for size in range(2, 11):
        last = words - size + 1
        for at in range(last):
            grams[at] = join_digests(digests[at], powers[at], grams[at + 1])
        if size < 5:
            continue
        chars = 0
        if last > 1:
            mark_bits = mark_repeated(grams, last, scratch.marks)
            candidates = 0
            for at in range(last):
                places[at] = scratch.marks[first_slot(grams[at], mark_bits)] > 1
                candidates += places[at]
            bits = table_bits(candidates)
            scratch.slots[: 1 << bits] = FREE
            at = 0
            while candidates and at < last:
                if places[at] and seen_before(grams[at] + ONE, scratch.slots, bits):
                    chars += reach[at + size] - reach[at]
                    at += size
                else:
                    at += 1
        repeated[size - 5] = chars
