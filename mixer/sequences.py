"""Cutting a domain's stream into sequences: which pieces of which documents a sequence holds, and their tokens.

A sequence is a span of a domain's stream: sequence j of a segment starts at the segment's offset + j * length. A piece
is the part of one document inside one sequence: the document's id, and start and end in the document's own tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numba import njit

from mixer.streams import DOCS, ENDS
from stages.artifact import Artifact
from stages.exact_duplicates import read_raw
from stages.kernels.copy import copy_spans
from stages.store import StorePart


class Pieces(NamedTuple):
    """The pieces of some sequences, in order. All arrays have one entry a piece but `counts` (one a sequence).

    counts: int64; part, row: int64, the document in the store; start, end: int64, tokens in the document;
    place: int64, where the piece begins in the flattened sequences.
    """

    counts: np.ndarray
    part: np.ndarray
    row: np.ndarray
    start: np.ndarray
    end: np.ndarray
    place: np.ndarray


@njit(cache=True, nogil=True)
def _count_pieces(ends: np.ndarray, begins: np.ndarray, length: int, first: np.ndarray, counts: np.ndarray) -> None:
    for i in range(len(begins)):
        begin = np.uint64(begins[i])
        low, high = 0, len(ends)
        while low < high:
            middle = (low + high) >> 1
            if ends[middle] <= begin:
                low = middle + 1
            else:
                high = middle
        first[i] = low
        stop = np.uint64(begins[i] + length)
        n = low
        while ends[n] < stop:
            n += 1
        counts[i] = n - low + 1


@njit(cache=True, nogil=True)
def _cut_pieces(
    ends: np.ndarray,
    begins: np.ndarray,
    length: int,
    first: np.ndarray,
    counts: np.ndarray,
    doc: np.ndarray,
    start: np.ndarray,
    end: np.ndarray,
    place: np.ndarray,
) -> None:
    k = 0
    for i in range(len(begins)):
        begin, stop = begins[i], begins[i] + length
        for n in range(first[i], first[i] + counts[i]):
            opens = np.int64(ends[n - 1]) if n else 0
            left, right = max(begin, opens), min(stop, np.int64(ends[n]))
            doc[k], start[k], end[k] = n, left - opens, right - opens
            place[k] = i * length + left - begin
            k += 1


@dataclass
class Stream:
    """A domain's stream as it is read: the store's parts and the mapped order of its documents."""

    parts: Sequence[StorePart]
    docs: np.ndarray
    ends: np.ndarray

    @property
    def tokens(self) -> int:
        """Tokens that the stream holds, over all its epochs."""
        return int(self.ends[-1]) if len(self.ends) else 0

    def pieces(self, begins: np.ndarray, length: int) -> Pieces:
        """The pieces of the sequences that start at these tokens of the stream (int64); it must reach their ends."""
        first, counts = np.zeros(len(begins), np.int64), np.zeros(len(begins), np.int64)
        _count_pieces(self.ends, begins, length, first, counts)
        total = int(counts.sum())
        doc, start, end, place = (np.zeros(total, np.int64) for _ in range(4))
        _cut_pieces(self.ends, begins, length, first, counts, doc, start, end, place)
        documents = self.docs[doc]
        return Pieces(counts, documents["part"].astype(np.int64), documents["row"].astype(np.int64), start, end, place)

    def gather(self, pieces: Pieces, out: np.ndarray, rows: np.ndarray) -> None:
        """Copy the tokens of the pieces to rows of `out` ([n, length], the store's dtype); `rows` has one row of `out`
        for each sequence of the pieces."""
        length = out.shape[1]
        owner = np.repeat(np.arange(len(pieces.counts)), pieces.counts)
        places = pieces.place + (rows[owner] - owner) * length
        flat = out.reshape(-1)
        for number in np.unique(pieces.part):
            part = self.parts[number]
            mine = np.flatnonzero(pieces.part == number)
            starts = part.offset[pieces.row[mine]] + pieces.start[mine]
            copy_spans(part.tokens, starts, pieces.end[mine] - pieces.start[mine], flat, places[mine])

    def ids(self, pieces: Pieces) -> np.ndarray:
        """The ids of the pieces' documents: big-endian bytes, uint8 [pieces, 16]."""
        out = np.zeros((len(pieces.part), 2), ">u8")
        for number in np.unique(pieces.part):
            hi, lo = self.parts[number].ids
            mine = np.flatnonzero(pieces.part == number)
            out[mine, 0], out[mine, 1] = hi[pieces.row[mine]], lo[pieces.row[mine]]
        return out.view(np.uint8).reshape(-1, 16)


def open_stream(artifact: Artifact, name: str, parts: Sequence[StorePart]) -> Stream:
    """The stream `train` or `validation` of a stream artifact."""
    shard = next(s for s in artifact.shards if s.name == name)
    return Stream(
        parts,
        read_raw(artifact.path(shard, ".docs.bin"), DOCS),
        read_raw(artifact.path(shard, ".ends.bin"), ENDS),
    )


_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


def hex_ids(ids: np.ndarray) -> pa.Array:
    """uint8 [n, 16] as a string column of 32 hex digits each."""
    digits = np.empty((len(ids), 32), np.uint8)
    digits[:, 0::2], digits[:, 1::2] = _HEX[ids >> 4], _HEX[ids & 15]
    offsets = np.arange(len(ids) + 1, dtype=np.int32) * 32
    return pa.StringArray.from_buffers(len(ids), pa.py_buffer(offsets), pa.py_buffer(digits.tobytes()))
