import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from mixer.sequences import Stream, hex_ids
from mixer.streams import DOCS, ENDS
from stages.artifact import Artifact
from stages.store import open_part

Store = Callable[..., Artifact]
Order = Sequence[int]


def documents(lengths: Sequence[int]) -> dict[int, list[int]]:
    """Documents of these lengths; every token says where it comes from."""
    first = np.cumsum([0, *lengths])
    rng = random.Random(5)
    return {rng.getrandbits(128): list(range(first[k], first[k] + n)) for k, n in enumerate(lengths)}


def stream_of(store: Artifact, order: Order) -> Stream:
    """The documents with these ids, one after the other."""
    parts = [open_part(store, shard) for shard in store.shards]
    places = {}
    for number, part in enumerate(parts):
        for row, (hi, lo) in enumerate(zip(*part.ids, strict=True)):
            places[int(hi) << 64 | int(lo)] = (number, row)
    docs = np.array([places[i] for i in order], DOCS)
    lengths = [parts[p].length[r] for p, r in docs.tolist()]
    return Stream(parts, docs, np.cumsum(lengths).astype(ENDS))


def check(stream: Stream, docs: dict[int, list[int]], order: Order, numbers: Sequence[int], length: int) -> None:
    """Compare sequences of the stream with slices of the documents, one after the other."""
    tokens = [t for i in order for t in docs[i]]
    pieces = stream.pieces(np.array(numbers, np.int64) * length, length)
    found_rows = np.full((len(numbers), length), 65_535, stream.parts[0].tokens.dtype)
    stream.gather(pieces, found_rows, np.arange(len(numbers)))
    assert found_rows.tolist() == [tokens[n * length : (n + 1) * length] for n in numbers]
    out = found_rows.reshape(-1)
    ids = [int.from_bytes(row.tobytes(), "big") for row in stream.ids(pieces)]
    at = 0
    for number, count in enumerate(pieces.counts):
        found: list[int] = []
        for k in range(at, at + count):
            assert pieces.place[k] == number * length + len(found)
            assert pieces.end[k] > pieces.start[k]
            found += docs[ids[k]][pieces.start[k] : pieces.end[k]]
        assert found == out[number * length : (number + 1) * length].tolist()
        at += count
    assert at == len(pieces.part)


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("length", [1, 2, 5, 16, 50])
@pytest.mark.parametrize("width", ["<u2", "<u4"])
def test_sequences_are_slices_of_the_documents_in_stream_order(
    make_store: Store, parts: int, length: int, width: str
) -> None:
    rng = random.Random(length)
    docs = documents([rng.randint(1, 40) for _ in range(60)])
    order = [i for _ in range(3) for i in rng.sample(sorted(docs), len(docs))]
    stream = stream_of(make_store({"a": docs}, parts, width), order)
    total = stream.tokens // length
    check(stream, docs, order, range(total), length)
    check(stream, docs, order, rng.choices(range(total), k=20), length)


def test_a_document_longer_than_a_sequence_goes_on_in_the_next_ones(make_store: Store) -> None:
    docs = documents([3, 25, 4])
    order = list(docs)
    stream = stream_of(make_store({"a": docs}), order)
    pieces = stream.pieces(np.arange(4) * 8, 8)
    assert pieces.counts.tolist() == [2, 1, 1, 2]
    assert list(zip(pieces.start.tolist(), pieces.end.tolist(), strict=True)) == [
        (0, 3),
        (0, 5),
        (5, 13),
        (13, 21),
        (21, 25),
        (0, 4),
    ]
    check(stream, docs, order, range(4), 8)


def test_several_epochs_of_a_tiny_domain_fit_into_one_sequence(make_store: Store) -> None:
    docs = documents([3, 2])
    a, b = docs
    order = [a, b, b, a, a, b, b, a]
    stream = stream_of(make_store({"a": docs}), order)
    check(stream, docs, order, [0], 20)
    check(stream, docs, order, [0, 1], 9)
    assert stream.pieces(np.array([0]), 20).counts.tolist() == [8]


def test_documents_that_end_where_a_sequence_ends(make_store: Store) -> None:
    docs = documents([4, 4, 8, 1, 3])
    order = list(docs)
    stream = stream_of(make_store({"a": docs}), order)
    assert stream.pieces(np.arange(5) * 4, 4).counts.tolist() == [1, 1, 1, 1, 2]
    check(stream, docs, order, range(5), 4)


def test_places_far_beyond_32_bits() -> None:
    """The arithmetic only: documents of 2^33 tokens, whose tokens are never touched."""
    size = 1 << 33
    ends = (np.arange(1, 6, dtype=np.uint64) * np.uint64(size)).astype(ENDS)
    stream = Stream([], np.zeros(5, DOCS), ends)
    pieces = stream.pieces(np.array([0, 2 * size - 4096, 5 * size - 4096]), 4096)
    assert pieces.counts.tolist() == [1, 1, 1]
    assert pieces.end.tolist() == [4096, size, size]


def test_sequences_go_to_the_rows_that_are_named_and_nowhere_else(make_store: Store) -> None:
    docs = documents([5, 9, 4, 30, 2])
    order = list(docs)
    stream = stream_of(make_store({"a": docs}, 2), order)
    tokens = [t for i in order for t in docs[i]]
    out = np.full((6, 10), 65_535, "<u2")
    stream.gather(stream.pieces(np.array([30, 0, 17]), 10), out, np.array([5, 1, 2]))
    assert [out[row].tolist() for row in (5, 1, 2)] == [tokens[b : b + 10] for b in (30, 0, 17)]
    assert (out[[0, 3, 4]] == 65_535).all()


def test_hex_ids() -> None:
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 256, (50, 16), dtype=np.uint8)
    ids[0], ids[1] = 0, 255
    assert hex_ids(ids).to_pylist() == [row.tobytes().hex() for row in ids]
    assert hex_ids(ids[:0]).to_pylist() == []
