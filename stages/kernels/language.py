"""Which part of a document its language is judged by, and the judgement of a column of documents."""

import numpy as np
import numpy.typing as npt
from numba import njit

from stages.fasttext_model import FastTextModel
from stages.kernels.classes import ALPHABETIC, ASCII, JOINER, KIND, MARK, class_of
from stages.kernels.fasttext import Work, best_two, embed
from stages.kernels.text import Bytes, Int, decode

SPARE = 8
"""Bytes that a piece may be longer than asked for: the rest of a character and a space."""


@njit(cache=True, nogil=True, forceinline=True)
def _is_point(code: Int) -> bool:
    """Whether a mark is a vowel point or a recitation sign of Hebrew or Arabic, which ordinary text leaves out."""
    return 0x0591 <= code <= 0x05C7 or 0x0610 <= code <= 0x06ED


@njit(cache=True, nogil=True)
def _copy_letters(data: Bytes, at: Int, stop: Int, room: Int, out: Bytes, size: Int) -> tuple[Int, Int]:
    """Append words of data[at:stop] to out[:size], `room` bytes or up to a character more; return where reading and
    writing ended. All between words becomes one space; nothing is written before the first letter."""
    full = size + room
    inside = False
    while at < stop and size < full:
        byte = data[at]
        if byte < 0x80:
            if ASCII[byte] & ALPHABETIC or (byte == 0x27 and inside):
                out[size] = byte
                size += 1
                inside = True
            elif inside:
                out[size] = 0x20
                size += 1
                inside = False
            at += 1
            continue
        code, after = decode(data, at, stop)
        found = class_of(code)
        kind = found & KIND
        if kind == MARK and _is_point(code):
            at = after
            continue
        if found & ALPHABETIC or (inside and kind in (MARK, JOINER)):
            while at < after:
                out[size] = data[at]
                size += 1
                at += 1
            inside = True
        elif inside:
            out[size] = 0x20
            size += 1
            inside = False
        at = after
    if inside:
        out[size] = 0x20
        size += 1
    return at, size


@njit(cache=True, nogil=True)
def excerpt(data: Bytes, start: Int, stop: Int, pieces: Int, piece: Int, out: Bytes) -> int:
    """Write the words that stand for the document data[start:stop] to `out`, return their bytes; 0 without letters.

    Words are letters with their marks and apostrophes, one space after each; digits, punctuation and symbols are left
    out, as are the vowel points of Hebrew and Arabic. A document of up to pieces * piece bytes is taken whole. Of a
    longer one, `pieces` places spread evenly from its start to `piece` bytes before its end are read, each until
    `piece` bytes are written, and none before the end of the one before.
    `out` holds pieces * (piece + SPARE) bytes.
    """
    length = stop - start
    if length <= pieces * piece or pieces < 2:
        return _copy_letters(data, start, stop, pieces * piece, out, 0)[1]
    size = 0
    here = start
    for number in range(pieces):
        place = start + (length - piece) * number // (pieces - 1)
        while place < stop and data[place] & 0xC0 == 0x80:
            place += 1
        here, size = _copy_letters(data, max(here, place), stop, piece, out, size)
    return size


@njit(cache=True, nogil=True)
def identify_documents(
    model: FastTextModel,
    data: Bytes,
    offsets: npt.NDArray[np.int64],
    pieces: Int,
    piece: Int,
    text: Bytes,
    work: Work,
    labels: npt.NDArray[np.int32],
    scores: npt.NDArray[np.float64],
) -> None:
    """The two best labels of each document's excerpt and their scores, shape (n, 2); -1 and 0 without letters.

    `text` is room for an excerpt, `work` for texts of its size.
    """
    for document in range(len(offsets) - 1):
        size = excerpt(data, offsets[document], offsets[document + 1], pieces, piece, text)
        if size == 0:
            labels[document] = -1
            scores[document] = 0.0
        else:
            embed(model, text, size, work)
            best_two(model, work, labels[document], scores[document])
