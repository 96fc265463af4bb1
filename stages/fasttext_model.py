"""Reading a fastText classifier (`.bin`, or `.ftz` with quantized matrices) into plain arrays, without fastText.

The layout is that of version 12, which every fastText since 2017 writes. A quantized matrix (Joulin et al. 2016,
"FastText.zip", arXiv:1612.03651) is decoded once; a pruned model has few rows, so the decoded one is small: lid.176.ftz
takes 3.2 MB.
"""

import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stages.errors import UserError

MAGIC = 793712314
VERSION = 12
SUPERVISED = 3
HIERARCHICAL_SOFTMAX, SOFTMAX = 1, 3
CENTROIDS = 256
LABEL_PREFIX = "__label__"
LARGEST_BUCKET = 1 << 28


class FastTextModel(NamedTuple):
    """What inference needs; also the argument of the kernels, so it holds numbers and arrays only.

    Rows of `vectors` are the words in order, then the character n-grams that survived pruning.
    """

    minn: int
    maxn: int
    """Characters in the shortest and in the longest n-gram; 0 for `maxn` means words alone."""
    bucket: int
    """Number of hash values of n-grams."""
    ngram_bitmap: npt.NDArray[np.uint64]
    """Shape (bucket / 64 rounded up,): which hash values have a row, bit h % 64 of entry h / 64."""
    ngram_ranks: npt.NDArray[np.int32]
    """The row of the first hash of each entry; the rows of n-grams are in the order of their hashes."""
    words: npt.NDArray[np.uint8]
    """The UTF-8 of all words, one after the other."""
    word_offsets: npt.NDArray[np.int64]
    """Shape (words + 1,)."""
    word_slots: npt.NDArray[np.int32]
    """Open-addressing table (a power of two, at most half full) of word numbers by fastText hash, -1 where free."""
    end_of_line: int
    """Row of the pseudo-word that ends each text, -1 if the model has none."""
    vectors: npt.NDArray[np.float32]
    """Shape (rows, dim)."""
    outputs: npt.NDArray[np.float32]
    """Shape (labels, dim): inner nodes of the tree for hierarchical softmax, else labels."""
    tree: bool
    """Whether the output is a hierarchical softmax."""
    children: npt.NDArray[np.int32]
    """Shape (labels - 1, 2): left and right child of each inner node, the root last; below `labels` it is a label.
    Empty unless `tree`."""


def read_model(path: Path) -> tuple[FastTextModel, tuple[str, ...]]:
    """The model of a file and its labels, without their `__label__` prefix.

    Raises UserError where the file is no supervised fastText model of version 12, is cut short, or needs what is not
    supported here (word n-grams, another output than a softmax).
    """
    try:
        return _read(_Reader(path.read_bytes()))
    except OSError as error:
        raise UserError(f"{path}: the fastText model cannot be read: {error}") from None
    except (struct.error, ValueError, IndexError, OverflowError) as error:
        raise UserError(f"{path}: not a fastText classifier that can be used here: {error}") from None


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, layout: str) -> tuple[int, ...]:
        found = struct.unpack_from("<" + layout, self.data, self.at)
        self.at += struct.calcsize("<" + layout)
        return found

    def one(self, layout: str) -> int:
        return self.take(layout)[0]

    def array(self, dtype: str, count: int) -> npt.NDArray[np.generic]:
        if count < 0 or count > len(self.data):
            raise ValueError(f"an array of {count} entries at byte {self.at}; the file is damaged")
        found = np.frombuffer(self.data, dtype, count, self.at)
        self.at += found.nbytes
        return found

    def string(self) -> bytes:
        stop = self.data.index(b"\0", self.at)
        found = self.data[self.at : stop]
        self.at = stop + 1
        return found


def _read(reader: _Reader) -> tuple[FastTextModel, tuple[str, ...]]:
    magic, version = reader.take("ii")
    if magic != MAGIC or version != VERSION:
        raise ValueError(f"it starts with {magic}, {version} where a model starts with {MAGIC}, {VERSION}")
    settings = reader.take("12i")
    dim, word_ngrams, loss, kind, bucket, minn, maxn = (settings[i] for i in (0, 5, 6, 7, 8, 9, 10))
    reader.take("d")
    if kind != SUPERVISED:
        raise ValueError(f"its kind is {kind}, a classifier has {SUPERVISED}")
    if word_ngrams != 1:
        raise ValueError(f"it uses word {word_ngrams}-grams; only models with wordNgrams 1 are supported")
    if loss not in (HIERARCHICAL_SOFTMAX, SOFTMAX):
        raise ValueError(f"its loss is {loss}; hierarchical softmax (1) and softmax (3) are supported")
    if not 0 <= bucket <= LARGEST_BUCKET:
        raise ValueError(f"it has {bucket} buckets; the file is damaged")
    words, labels, counts, pruned = _dictionary(reader)
    vectors = _matrix(reader, bool(reader.one("b")), dim)
    outputs = _matrix(reader, bool(reader.one("b")), dim)
    if len(outputs) != len(labels) or not labels:
        raise ValueError(f"{len(labels)} labels and {len(outputs)} outputs; the file is damaged")
    bitmap, ranks, order = _ngrams(len(words), bucket if maxn > 0 else 0, pruned)
    tree = loss == HIERARCHICAL_SOFTMAX
    model = FastTextModel(
        minn=minn,
        maxn=maxn,
        bucket=bucket,
        ngram_bitmap=bitmap,
        ngram_ranks=ranks,
        words=np.frombuffer(b"".join(words), np.uint8),
        word_offsets=np.cumsum([0, *map(len, words)], dtype=np.int64),
        word_slots=_word_slots(words),
        end_of_line=words.index(b"</s>") if b"</s>" in words else -1,
        vectors=np.ascontiguousarray(vectors[order]),
        outputs=outputs,
        tree=tree,
        children=_tree(counts) if tree else np.empty((0, 2), np.int32),
    )
    return model, tuple(label.decode().removeprefix(LABEL_PREFIX) for label in labels)


def _dictionary(reader: _Reader) -> tuple[list[bytes], list[bytes], list[int], npt.NDArray[np.int32] | None]:
    """Words, labels, counts of the labels, and the pairs (hash, n-gram row) of a pruned model."""
    size, word_count, label_count, _, pruned = reader.take("iiiqq")
    words: list[bytes] = []
    labels: list[bytes] = []
    counts: list[int] = []
    for _ in range(size):
        entry = reader.string()
        count, kind = reader.take("qb")
        if kind == 0:
            words.append(entry)
        else:
            labels.append(entry)
            counts.append(count)
    if (len(words), len(labels)) != (word_count, label_count):
        raise ValueError(f"{len(words)} words where its header says {word_count}; the file is damaged")
    if pruned < 0:
        return words, labels, counts, None
    return words, labels, counts, np.asarray(reader.array("<i4", 2 * pruned), np.int32).reshape(-1, 2)


def _ngrams(
    words: int, bucket: int, pruned: npt.NDArray[np.int32] | None
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Bitmap, ranks, and the rows of the file in the order in which the model wants them."""
    if pruned is None:
        pruned = np.repeat(np.arange(bucket, dtype=np.int32)[:, None], 2, axis=1)
    if len(pruned) and not (pruned.min() >= 0 and pruned[:, 0].max() < bucket):
        raise ValueError("an n-gram outside its buckets; the file is damaged")
    pruned = pruned[np.argsort(pruned[:, 0], kind="stable")]
    present = np.zeros((-(-bucket // 64), 64), np.uint8)
    present.reshape(-1)[pruned[:, 0]] = 1
    counts = present.sum(axis=1, dtype=np.int64)
    bitmap = np.packbits(present, axis=1, bitorder="little").view("<u8").reshape(-1).astype(np.uint64)
    order = np.concatenate([np.arange(words), words + pruned[:, 1].astype(np.int64)])
    return bitmap, (words + np.cumsum(counts) - counts).astype(np.int32), order


def _matrix(reader: _Reader, quantized: bool, dim: int) -> npt.NDArray[np.float32]:
    """Float32 of shape (rows, dim), decoded where it is quantized."""
    if quantized:
        return _quantized(reader, dim)
    rows, columns = reader.take("qq")
    if columns != dim:
        raise ValueError(f"a matrix has {columns} columns where the model has {dim}; the file is damaged")
    return np.asarray(reader.array("<f4", rows * columns), np.float32).reshape(rows, columns).copy()


def _quantized(reader: _Reader, dim: int) -> npt.NDArray[np.float32]:
    has_norms = bool(reader.one("b"))
    rows, columns, size = reader.take("qqi")
    codes = reader.array("u1", size)
    centroids, parts, width, last = _centroids(reader)
    if columns != dim or parts * rows != size:
        raise ValueError(f"a quantized matrix of {rows} x {columns} has {size} codes; the file is damaged")
    codes = codes.reshape(rows, parts)
    found = np.empty((rows, columns), np.float32)
    for part in range(parts):
        wide = width if part < parts - 1 else last
        book = centroids[part * CENTROIDS * width :][: CENTROIDS * wide].reshape(CENTROIDS, wide)
        found[:, part * width : part * width + wide] = book[codes[:, part].astype(np.int64)]
    if has_norms:
        norm_codes = reader.array("u1", rows)
        norms = _centroids(reader)[0]
        found *= norms[norm_codes.astype(np.int64)][:, None]
    return found


def _centroids(reader: _Reader) -> tuple[npt.NDArray[np.float32], int, int, int]:
    """Centroids of a product quantizer, its parts, the columns of a part and of the last part."""
    dim, parts, width, last = reader.take("4i")
    if (parts - 1) * width + last != dim:
        raise ValueError(f"a quantizer cuts {dim} columns in {parts} parts of {width}; the file is damaged")
    return np.asarray(reader.array("<f4", dim * CENTROIDS), np.float32), parts, width, last


def fasttext_hash(word: bytes) -> int:
    """fastText's 32-bit hash: FNV-1a over bytes that are sign-extended first."""
    state = 2166136261
    for byte in word:
        state = ((state ^ (byte | 0xFFFFFF00 if byte >= 0x80 else byte)) * 16777619) & 0xFFFFFFFF
    return state


def _word_slots(words: list[bytes]) -> npt.NDArray[np.int32]:
    size = 1 << max(3, (2 * len(words)).bit_length())
    slots = np.full(size, -1, np.int32)
    for number, word in enumerate(words):
        slot = fasttext_hash(word) % size
        while slots[slot] >= 0:
            slot = (slot + 1) % size
        slots[slot] = number
    return slots


def _tree(counts: list[int]) -> npt.NDArray[np.int32]:
    """Children of the Huffman tree over label counts, which must descend, built with fastText's order of ties."""
    labels = len(counts)
    total = [*counts, *([10**15] * (labels - 1))]
    children = np.empty((labels - 1, 2), np.int32)
    leaf, node = labels - 1, labels
    for new in range(labels, 2 * labels - 1):
        for side in (0, 1):
            if leaf >= 0 and total[leaf] < total[node]:
                children[new - labels, side] = leaf
                leaf -= 1
            else:
                children[new - labels, side] = node
                node += 1
        total[new] = sum(total[child] for child in children[new - labels])
    return children
