"""Shingles: the kernels against plain Python on `words.split` and lines, and what their docstrings state."""

import gzip
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.kernels import eight, shingles
from stages.kernels.classes import ASCII, JOINER, KIND, LETTER, SPACE, UNSPACED
from stages.kernels.shingles import next_unit, shingle_counts, shingle_sets, sort_unique
from stages.kernels.words import classes_of, split

CORPORA = Path(__file__).parents[4] / "shared" / "corpora"
TRICKY = "aZé1_'’-.!? \n\t\r\u0301\u200d\u00ad·漢字かไทยแ\u0e35한अ\u094dष。🙂\U00020000\u3000\u00a0\u2028\x1c\x00"
texts = st.one_of(
    st.text(max_size=80),
    st.text(alphabet=TRICKY, max_size=80),
    st.text(alphabet="abAB _'\n", max_size=200),
    st.text(alphabet="abcdefgh", max_size=40),
)


def column(rows: list[str]) -> tuple[np.ndarray, np.ndarray]:
    encoded = [row.encode() for row in rows]
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in encoded], out=offsets[1:])
    return np.frombuffer(b"".join(encoded), np.uint8), offsets


def lower_ascii(text: str) -> str:
    return "".join(c.lower() if c.isascii() else c for c in text)


def plain_words(text: str) -> list[str]:
    return [lower_ascii(word) for word in split(text)]


def plain_lines(text: str) -> list[str]:
    lines = []
    for line in text.split("\n"):
        classes = classes_of(line)
        if np.isin(classes & KIND, (LETTER, UNSPACED)).any():
            spaced = "".join(" " if found & SPACE else c for c, found in zip(line, classes, strict=True))
            lines.append(" ".join(part for part in spaced.split(" ") if part))
    return lines


PLAIN = {"words": plain_words, "lines": plain_lines}


def plain_shingles(text: str, kind: str, n: int) -> list[tuple[str, ...]]:
    units = PLAIN[kind](text)
    return [tuple(units[at : at + n]) for at in range(len(units) - n + 1)]


def hashes_of(text: str, kind: str) -> list[int]:
    data = np.frombuffer(text.encode(), np.uint8)
    found: list[int] = []
    at = 0
    while True:
        digest, first, at = next_unit(shingles.KINDS[kind], data, at, len(data))
        if first >= len(data):
            return found
        found.append(int(digest))


@pytest.mark.parametrize("kind", ["words", "lines"])
@given(st.lists(texts, min_size=1, max_size=6))
@settings(max_examples=150, deadline=None)
def test_units_are_those_of_the_reference(kind: str, rows: list[str]) -> None:
    """The same units in the same places: hashes are equal exactly where the reference's units are."""
    plain = [unit for row in rows for unit in PLAIN[kind](row)]
    hashed = [digest for row in rows for digest in hashes_of(row, kind)]
    assert len(hashed) == len(plain)
    assert len(set(zip(hashed, plain, strict=True))) == len(set(plain)) == len(set(hashed))


@pytest.mark.parametrize(("kind", "n"), [("words", 1), ("words", 5), ("lines", 1), ("lines", 3)])
@given(st.lists(texts, min_size=1, max_size=6))
@settings(max_examples=80, deadline=None)
def test_counts_and_sets(kind: str, n: int, rows: list[str]) -> None:
    data, offsets = column(rows)
    plain = [plain_shingles(row, kind, n) for row in rows]
    assert shingle_counts(data, offsets, kind, n).tolist() == [len(row) for row in plain]
    hashes, starts = shingle_sets(data, offsets, kind, n)
    sets = [hashes[a:b] for a, b in itertools.pairwise(starts)]
    assert starts[0] == 0 and starts[-1] == len(hashes)
    for found, row in zip(sets, plain, strict=True):
        assert len(found) == len(set(row))
        assert (np.diff(found.astype(object)) > 0).all()
    distinct = {shingle for row in plain for shingle in row}
    assert len(np.unique(hashes)) == len(distinct)
    for a in range(len(rows)):
        for b in range(a):
            assert len(np.intersect1d(sets[a], sets[b])) == len(set(plain[a]) & set(plain[b]))


@given(st.lists(texts, min_size=2, max_size=8), st.randoms())
@settings(max_examples=50, deadline=None)
def test_a_set_depends_on_its_text_alone(rows: list[str], random: object) -> None:
    data, offsets = column(rows)
    hashes, starts = shingle_sets(data, offsets, "words", 2)
    order = list(range(len(rows)))
    random.shuffle(order)  # type: ignore[attr-defined]
    some, some_starts = shingle_sets(data, offsets, "words", 2, np.array(order[: len(rows) // 2]))
    for place, row in enumerate(order[: len(rows) // 2]):
        alone, _ = shingle_sets(*column([rows[row]]), "words", 2)
        assert np.array_equal(some[some_starts[place] : some_starts[place + 1]], alone)
        assert np.array_equal(hashes[starts[row] : starts[row + 1]], alone)


@pytest.mark.parametrize(
    ("kind", "a", "b", "equal"),
    [
        ("words", "Don't STOP — now", "don't, stop now.\"", True),
        ("words", "born 1756 in Salzburg", "born 1770 in Salzburg", False),
        ("words", "ÉTÉ", "été", False),
        ("words", "a b", "b a", False),
        ("words", "ab c", "a bc", False),
        ("words", "12345678", "123456789", False),
        ("lines", "\tif x:\n\n  return  1\n}\n", "if x:\n    return 1", True),
        ("lines", "If x:", "if x:", False),
        ("lines", "a b", "ab", False),
        ("lines", "x\u00a0= 1\u3000", "x = 1", True),
        ("lines", "12345678 9", "1234567 89", False),
    ],
)
def test_stated_cases(kind: str, a: str, b: str, equal: bool) -> None:
    assert (hashes_of(a, kind) == hashes_of(b, kind)) is equal


def test_golden() -> None:
    """Raise `shingles.VERSION` when these change."""
    rows = [
        "The quick brown fox's tail, naïve_name 漢字かなカー! " * 2,
        "def f(x):\n    return x  # 1\n}\n\nf(2)\n",
        "",
    ]
    found = [shingle_sets(*column(rows), kind, n)[0] for kind, n in (("words", 5), ("lines", 2))]
    assert [(len(h), hex(int(np.bitwise_xor.reduce(h)))) for h in found] == GOLDEN
    assert shingles.VERSION == 1


GOLDEN = [(12, "0x7730ef6657353f2b"), (2, "0x80826d6c778942f0")]


def flagged(flags: np.uint64 | int) -> int:
    """`first_flag` of what a kernel returned: to Python a uint64 comes back as int, which would go in as int64."""
    return eight.first_flag(np.uint64(flags))


def test_eight_bytes_know_the_ascii_classes() -> None:
    for code in range(256):
        for place in range(8):
            data = np.full(8, ord("#"), np.uint8)
            data[place] = code
            word = np.uint64(eight.load(data, 0, 8))
            letter = code < 128 and ASCII[code] & KIND == LETTER
            assert flagged(eight.letters(word)) == (place if letter else 8)
            assert flagged(eight.not_ascii(word)) == (place if code >= 128 else 8)
            assert flagged(int(eight.graphic(word)) ^ int(eight.HIGH_BITS)) == (8 if 32 < code < 128 else place)
            lower = bytes([code]).lower()[0]
            assert int(eight.lower(word)).to_bytes(8, "little")[place] == lower
    assert not any(ASCII[code] & SPACE for code in range(33, 128))
    assert {chr(code) for code in range(128) if ASCII[code] & KIND == JOINER} == {"'", "_"}


@given(st.lists(st.one_of(st.integers(0, 3), st.integers(0, 2**64 - 1)), max_size=50))
@settings(deadline=None)
def test_sort_unique(values: list[int]) -> None:
    hashes = np.array([7, *values, 7], np.uint64)
    count = sort_unique(hashes, 1, len(values) + 1)
    assert hashes[1 : count + 1].tolist() == sorted(set(values))
    assert hashes[0] == hashes[-1] == 7


def test_large_sets_and_repetitive_texts() -> None:
    rng = np.random.default_rng(3)
    words = rng.integers(0, 1000, 50_000)
    rows = [" ".join(map(str, words)), "na " * 50_000, "ab " * 3 + "na " * 50_000]
    hashes, starts = shingle_sets(*column(rows), "words", 5)
    assert np.diff(starts).tolist() == [len(set(plain_shingles(row, "words", 5))) for row in rows]
    assert all((np.diff(hashes[a:b].astype(object)) > 0).all() for a, b in itertools.pairwise(starts))


def test_unknown_kind_and_size() -> None:
    data, offsets = column(["a"])
    with pytest.raises(ValueError, match="letters"):
        shingle_counts(data, offsets, "letters", 5)
    with pytest.raises(ValueError, match="0"):
        shingle_sets(data, offsets, "words", 0)


@pytest.mark.skipif(not CORPORA.is_dir(), reason="the shared corpora are not here")
@pytest.mark.parametrize("name", ["code-go", "poetry-zh", "office-help", "quotes"])
def test_real_text(name: str) -> None:
    with gzip.open(CORPORA / f"{name}.jsonl.gz", "rt") as file:
        rows = [json.loads(line)["text"][:10_000] for _, line in zip(range(100), file, strict=False)]
    data, offsets = column(rows)
    for kind, n in (("words", 5), ("lines", 3)):
        plain = [plain_shingles(row, kind, n) for row in rows]
        hashes, starts = shingle_sets(data, offsets, kind, n)
        assert shingle_counts(data, offsets, kind, n).tolist() == [len(row) for row in plain]
        assert np.diff(starts).tolist() == [len(set(row)) for row in plain]
        assert len(np.unique(hashes)) == len({shingle for row in plain for shingle in row})
