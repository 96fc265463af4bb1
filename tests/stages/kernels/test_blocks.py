"""Repeated blocks: the kernel against a plain search, and the stated cases."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.kernels import blocks
from stages.kernels.blocks import repeated_blocks
from stages.kernels.words import word_spans


def count(rows: list[str], words: int) -> list[int]:
    encoded = [row.encode() for row in rows]
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in encoded], out=offsets[1:])
    return repeated_blocks(np.frombuffer(b"".join(encoded), np.uint8), offsets, words).tolist()


def plain(text: str, n: int) -> int:
    """Bytes marked one by one, every earlier run compared."""
    data = np.frombuffer(text.encode(), np.uint8)
    spans = np.zeros((len(data) // 2 + 2, 2), np.int64)
    spans = spans[: word_spans(data, 0, len(data), spans)]
    words = [bytes(data[a:b]).lower() for a, b in spans]
    marked = np.zeros(len(data), bool)
    for at in range(len(words) - n + 1):
        if any(words[before : before + n] == words[at : at + n] for before in range(at - n + 1)):
            marked[spans[at, 0] : spans[at + n - 1, 1]] = True
    return int(marked.sum())


@given(st.lists(st.text(alphabet="abAé漢 .'", max_size=60), min_size=1, max_size=5), st.integers(1, 4))
@settings(max_examples=150, deadline=None)
def test_kernel_finds_what_the_plain_search_finds(rows: list[str], n: int) -> None:
    assert count(rows, n) == [plain(row, n) for row in rows]


@given(st.lists(st.sampled_from(["abc def", "ghi", "jkl mno pqr", "x y"]), max_size=40), st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_texts_of_repeated_parts(parts: list[str], n: int) -> None:
    text = ". ".join(parts)
    assert count(["abc def ghi", text, text], n) == [0, plain(text, n), plain(text, n)]


def test_stated_cases() -> None:
    block = " ".join(f"word{at}" for at in range(20))
    assert count([block, f"{block}, {block}", f"{block}. new. {block.upper()} end"], 20) == [0, len(block), len(block)]
    assert count([f"{block} {block[:-7]}"], 20) == [0]
    assert count(["la " * 100], 20) == [80 * 3 - 1]
    assert count(["la " * 39], 20) == [0]
    assert count(["", "..."], 20) == [0, 0]
    assert count([f"{block} {block} {block}"], 20) == [2 * len(block) + 1]


def test_golden() -> None:
    """Raise `blocks.VERSION` when these change."""
    text = "Home | About Us | 漢字かな\nIt's a page. " * 3
    assert (blocks.VERSION, count([text], 5)) == (1, [plain(text, 5)])
    assert count([text], 5) == [86]


def test_words_out_of_range() -> None:
    with pytest.raises(ValueError, match="one word"):
        count(["a"], 0)
