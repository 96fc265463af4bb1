"""fastText inference in Numba: hash the words and character n-grams of a text, average their vectors, score labels.

Joulin et al. 2017, "Bag of Tricks for Efficient Text Classification" (arXiv:1607.01759). Hashes, n-grams and the tree
of labels are those of fastText to the bit. Vectors are summed in float32 in a fixed order (words, n-grams, the end of
the line) and all else is float64 arithmetic in a fixed order without a mathematics library, so scores are the same on
every platform. From those of fastText, which sums in another order, they differ by less than 1e-6 in a text of a
kilobyte, and by up to 5e-5 in a long book.

Memory decides the speed: most n-grams of a text are not in a pruned model, so they are looked up in a bitmap that fits
a core's cache, and only those found go on to the table of vectors.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from stages.fasttext_model import FastTextModel
from stages.kernels.text import Bytes, Int

FLOOR = 1e-5
"""What fastText adds to a probability before it takes the logarithm; it stays in the scores."""

_START = np.uint32(2166136261)
_PRIME = np.uint32(16777619)
_OPEN, _CLOSE = 0x3C, 0x3E
_ONE = np.uint64(1)
_6 = np.uint32(6)
_63 = np.uint32(63)
_SEPARATES = np.zeros(256, np.uint8)
_SEPARATES[[0x00, 0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x20]] = 1
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_LOG2_E = 1.4426950408889634
_INVERSE_FACTORIALS = 1.0 / np.cumprod([1.0, *range(1, 14)])


class Work(NamedTuple):
    """Buffers of one thread; contents are garbage between texts."""

    grams: npt.NDArray[np.uint32]
    """Hashes of n-grams, then rows of vectors."""
    hidden: npt.NDArray[np.float32]
    """The average vector."""
    stack: npt.NDArray[np.int64]
    """Nodes of the tree still to visit."""
    reached: npt.NDArray[np.float64]
    """Their scores, or those of all labels."""


def make_work(model: FastTextModel, largest: int) -> Work:
    """Buffers for texts of up to `largest` bytes."""
    labels, dim = model.outputs.shape
    features = (largest + 2) * (max(model.maxn - model.minn, 0) + 2) + 1
    return Work(
        np.empty(features, np.uint32), np.empty(dim, np.float32), np.empty(labels + 2, np.int64), np.empty(labels + 2)
    )


@njit(cache=True, nogil=True)
def exponential(x: float) -> float:
    """e^x with a relative error below 1e-14, from additions and multiplications alone; x is clamped to [-700, 700]."""
    x = min(max(x, -700.0), 700.0)
    power = np.int64(np.floor(x * _LOG2_E + 0.5))
    rest = (x - power * _LN2_HIGH) - power * _LN2_LOW
    total = 0.0
    for place in range(len(_INVERSE_FACTORIALS) - 1, -1, -1):
        total = total * rest + _INVERSE_FACTORIALS[place]
    scale = 2.0 if power > 0 else 0.5
    for _ in range(abs(power)):
        total *= scale
    return total


@njit(cache=True, nogil=True, forceinline=True)
def _step(state: np.uint32, byte: Int) -> np.uint32:
    return np.uint32((state ^ np.uint32(np.int32(np.int8(byte)))) * _PRIME)


@njit(cache=True, nogil=True, forceinline=True)
def _ones(x: np.uint64) -> Int:
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((x * np.uint64(0x0101010101010101)) >> np.uint64(56))


@njit(cache=True, nogil=True)
def word_rows(model: FastTextModel, text: Bytes, size: Int, rows: npt.NDArray[np.uint32]) -> int:
    """Write the rows of the words of text[:size] that the model knows, in order; return their number."""
    slots, offsets, words = model.word_slots, model.word_offsets, model.words
    mask = len(slots) - 1
    count = 0
    at = 0
    while at < size:
        if _SEPARATES[text[at]]:
            at += 1
            continue
        state = _START
        after = at
        while after < size and not _SEPARATES[text[after]]:
            state = _step(state, text[after])
            after += 1
        slot = np.int64(state) & mask
        while slots[slot] >= 0:
            number = slots[slot]
            first = offsets[number]
            if offsets[number + 1] - first == after - at:
                same = 0
                while same < after - at and words[first + same] == text[at + same]:
                    same += 1
                if same == after - at:
                    rows[count] = number
                    count += 1
                    break
            slot = (slot + 1) & mask
        at = after
    return count


@njit(cache=True, nogil=True)
def ngram_hashes(
    text: Bytes, size: Int, minn: Int, maxn: Int, bucket: Int, count: Int, grams: npt.NDArray[np.uint32]
) -> Int:
    """Write the hashes, modulo `bucket`, of the n-grams of each `<word>` of text[:size] from grams[count] on; return
    the number of entries. An n-gram that is `<` or `>` alone is none."""
    # Exact below 2^32: the factor is above 1 / bucket by less than 2^-48 of it, too little to reach the next integer.
    factor = (1.0 / bucket) * (1.0 + 2.0**-50)
    found = np.uint64(count)
    at = np.uint64(0)
    size = np.uint64(size)
    while at < size:
        if _SEPARATES[text[at]]:
            at += _ONE
            continue
        after = at + _ONE
        while after < size and not _SEPARATES[text[after]]:
            after += _ONE
        first = at
        opened = True
        while first < after:
            state = _START
            chars = 0
            here = first
            if opened:
                state = _step(state, _OPEN)
                chars = 1
            while chars < maxn and here <= after:
                if here == after:
                    if chars == 0:
                        break
                    state = _step(state, _CLOSE)
                    here += _ONE
                else:
                    state = _step(state, text[here])
                    here += _ONE
                    while here < after and text[here] & 0xC0 == 0x80:
                        state = _step(state, text[here])
                        here += _ONE
                chars += 1
                if chars >= minn:
                    whole = np.int64(np.float64(state) * factor)
                    grams[found] = np.uint32(np.int64(state) - whole * bucket)
                    found += _ONE
            if opened:
                opened = False
            else:
                first += _ONE
                while first < after and text[first] & 0xC0 == 0x80:
                    first += _ONE
        at = after
    return np.int64(found)


@njit(cache=True, nogil=True)
def ngram_rows(model: FastTextModel, start: Int, stop: Int, grams: npt.NDArray[np.uint32]) -> Int:
    """Turn the hashes grams[start:stop] into rows of the n-grams that the model has; return where they end."""
    bitmap, ranks = model.ngram_bitmap, model.ngram_ranks
    found = np.uint64(start)
    for place in range(np.uint64(start), np.uint64(stop)):
        gram = grams[place]
        grams[found] = gram
        found += (bitmap[gram >> _6] >> np.uint64(gram & _63)) & _ONE
    for place in range(np.uint64(start), found):
        gram = grams[place]
        below = (_ONE << np.uint64(gram & _63)) - _ONE
        grams[place] = np.uint32(ranks[gram >> _6] + _ones(bitmap[gram >> _6] & below))
    return np.int64(found)


@njit(cache=True, nogil=True)
def embed(model: FastTextModel, text: Bytes, size: Int, work: Work) -> int:
    """Write the average vector of the UTF-8 text[:size], read as one line, to `work.hidden`; return the number of
    features averaged.

    Words are cut at ASCII white space and NUL, as fastText does; a line feed is white space like any other.
    """
    rows, hidden, vectors = work.grams, work.hidden, model.vectors
    count = word_rows(model, text, size, rows)
    if model.maxn > 0:
        end = ngram_hashes(text, size, model.minn, model.maxn, model.bucket, count, rows)
        count = ngram_rows(model, count, end, rows)
    if model.end_of_line >= 0:
        rows[count] = model.end_of_line
        count += 1
    hidden[:] = 0
    for place in range(np.uint64(count)):
        row = rows[place]
        for column in range(np.uint64(hidden.shape[0])):
            hidden[column] += vectors[row, column]
    if count > 0:
        scale = np.float32(1.0 / count)
        for column in range(np.uint64(hidden.shape[0])):
            hidden[column] *= scale
    return count


@njit(cache=True, nogil=True, forceinline=True)
def _dot(outputs: npt.NDArray[np.float32], row: Int, hidden: npt.NDArray[np.float32]) -> float:
    total = 0.0
    for column in range(np.uint64(hidden.shape[0])):
        total += np.float64(outputs[row, column]) * np.float64(hidden[column])
    return total


@njit(cache=True, nogil=True, forceinline=True)
def _rank(label: Int, score: float, labels: npt.NDArray[np.int32], scores: npt.NDArray[np.float64]) -> None:
    for place in range(2):
        if labels[place] < 0 or score > scores[place] or (score == scores[place] and label < labels[place]):
            if place == 0:
                labels[1] = labels[0]
                scores[1] = scores[0]
            labels[place] = label
            scores[place] = score
            return


@njit(cache=True, nogil=True)
def best_two(model: FastTextModel, work: Work, labels: npt.NDArray[np.int32], scores: npt.NDArray[np.float64]) -> None:
    """Write the two best labels for `work.hidden` and their scores, of equal scores the lower label first; the second
    label is -1 where the model has but one."""
    labels[:] = -1
    scores[:] = 0.0
    if model.tree:
        _walk(model.outputs, model.children, work.hidden, work.stack, work.reached, labels, scores)
    else:
        _softmax(model.outputs, work.hidden, work.reached, labels, scores)


@njit(cache=True, nogil=True)
def _walk(
    outputs: npt.NDArray[np.float32],
    children: npt.NDArray[np.int32],
    hidden: npt.NDArray[np.float32],
    stack: npt.NDArray[np.int64],
    reached: npt.NDArray[np.float64],
    labels: npt.NDArray[np.int32],
    scores: npt.NDArray[np.float64],
) -> None:
    count = outputs.shape[0]
    stack[0] = 2 * count - 2
    reached[0] = 1.0
    depth = 1
    while depth > 0:
        depth -= 1
        node = stack[depth]
        score = reached[depth]
        if labels[1] >= 0 and score < scores[1]:
            continue
        if node < count:
            _rank(node, score, labels, scores)
            continue
        right = 1.0 / (1.0 + exponential(-_dot(outputs, node - count, hidden)))
        # The likelier child goes on top, so that good scores come early and prune the rest.
        likelier = 1 if right >= 0.5 else 0
        stack[depth] = children[node - count, 1 - likelier]
        reached[depth] = score * (min(right, 1.0 - right) + FLOOR)
        stack[depth + 1] = children[node - count, likelier]
        reached[depth + 1] = score * (max(right, 1.0 - right) + FLOOR)
        depth += 2


@njit(cache=True, nogil=True)
def _softmax(
    outputs: npt.NDArray[np.float32],
    hidden: npt.NDArray[np.float32],
    reached: npt.NDArray[np.float64],
    labels: npt.NDArray[np.int32],
    scores: npt.NDArray[np.float64],
) -> None:
    highest = -np.inf
    for label in range(outputs.shape[0]):
        reached[label] = _dot(outputs, label, hidden)
        highest = max(highest, reached[label])
    total = 0.0
    for label in range(outputs.shape[0]):
        reached[label] = exponential(reached[label] - highest)
        total += reached[label]
    for label in range(outputs.shape[0]):
        _rank(label, reached[label] / total + FLOOR, labels, scores)


@njit(cache=True, nogil=True)
def classify(
    model: FastTextModel,
    data: Bytes,
    offsets: npt.NDArray[np.int64],
    work: Work,
    labels: npt.NDArray[np.int32],
    scores: npt.NDArray[np.float64],
) -> None:
    """The two best labels (-1 for none) and their scores, shape (n, 2), of each whole text of a column."""
    for text in range(len(offsets) - 1):
        start, stop = offsets[text], offsets[text + 1]
        embed(model, data[start:stop], stop - start, work)
        best_two(model, work, labels[text], scores[text])
