"""Word and sentence definitions: the kernels against the plain references, and the cases their docstrings state."""

import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.kernels import classes, make_classes
from stages.kernels.sentences import count_sentences, spans
from stages.kernels.text import decode, digest_power, hash_bytes, join_digests
from stages.kernels.words import PIECE, scan_word, split, word_digest, word_spans

TRICKY = (
    "aZé1_'’-.!? \n\u0301\u200d\u00ad·漢字かなカー๑ไทยมแ\u0e35\u0e48เ한글אب१क"
    '\u094dष。！」"１()🙂\U00020000\u3007\x1c\x85\u2028'
)
texts = st.one_of(st.text(), st.text(alphabet=TRICKY, max_size=60), st.text(alphabet="ab '._漢", max_size=200))


def encoded(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8)


def kernel_words(text: str) -> list[str]:
    data = encoded(text)
    found = np.zeros((len(data) // 2 + 2, 2), np.int64)
    count = word_spans(data, 0, len(data), found)
    return [bytes(data[start:stop]).decode() for start, stop in found[:count]]


@given(texts)
@settings(max_examples=400, deadline=None)
def test_kernel_finds_the_words_of_the_reference(text: str) -> None:
    assert kernel_words(text) == split(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't l’homme snake_case __init__ dogs' a--b", "Don't|l’homme|snake_case|init|dogs|a|b"),
        ("well-known 3.14 and/or", "well|known|3|14|and|or"),
        ("Привет, мир! क्षेत्र שלום", "Привет|мир|क्षेत्र|שלום"),
        ("e\u0301te \u0301 ❤\ufe0f", "e\u0301te"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("春眠不覺曉，處處聞啼鳥。", "春眠不覺|曉|處處聞啼|鳥"),
        ("Python語2023年", "Python|語|2023|年"),
        ("ที่นี่มี", "ที่นี่|มี"),
        ("", ""),
        ("... --- !!!", ""),
    ],
)
def test_stated_cases(text: str, words: str) -> None:
    assert split(text) == kernel_words(text) == [word for word in words.split("|") if word]


@given(st.text(alphabet="漢字かな\u3099\u0e35", max_size=40))
@settings(deadline=None)
def test_unspaced_pieces_never_start_with_a_mark_and_cover_the_run(text: str) -> None:
    words = split("漢" + text)
    assert "".join(words) == "漢" + text
    assert all(unicodedata.category(word[0])[0] == "L" for word in words)
    assert all(len(word) >= PIECE for word in words[:-1])


@given(texts)
@settings(max_examples=200, deadline=None)
def test_digest_of_a_joined_text_does_not_depend_on_the_cut(text: str) -> None:
    data = encoded(text)
    whole = word_digest(data, 0, len(data))
    middle = len(text) // 2
    cut = len(text[:middle].encode())
    first, second = (np.uint64(word_digest(data, *span)) for span in ((0, cut), (cut, len(data))))
    assert join_digests(first, np.uint64(digest_power(middle)), second) == whole
    for word in split(text):
        own = encoded(word)
        assert scan_word(own, 0, len(own))[4] == word_digest(own, 0, len(own))


def test_digests_of_long_words_are_exact() -> None:
    prime, base = (1 << 61) - 1, 0x0F3A5C91B7D2E845
    for word in ("z" * 31, "~é" * 70, "aé" * 20 + "b" * 50, "\U0001e7ff"):
        expected = sum((ord(letter) + 1) * pow(base, place, prime) for place, letter in enumerate(word)) % prime
        data = encoded(word)
        assert int(word_digest(data, 0, len(data))) == expected


@given(st.binary(max_size=40), st.binary(max_size=40))
@settings(deadline=None)
def test_hashes_differ_when_bytes_do(left: bytes, right: bytes) -> None:
    def hashed(data: bytes) -> int:
        padded = np.frombuffer(b"??" + data + b"?", np.uint8)
        return int(hash_bytes(padded, 2, 2 + len(data)))

    assert (hashed(left) == hashed(right)) == (left == right)
    assert hashed(left) != hashed(left + b"\0")


@given(st.binary(max_size=60))
@settings(deadline=None)
def test_bytes_that_are_no_utf8_stay_inside_the_text(data: bytes) -> None:
    padded = np.frombuffer(data + b"\x80\x80\x80", np.uint8)
    at = 0
    while at < len(data):
        code, after = decode(padded, at, len(data))
        assert 0 <= code < 0x110000
        assert at < after <= len(data)
        at = after
    assert word_spans(padded, 0, len(data), np.zeros((len(data) // 2 + 2, 2), np.int64)) <= len(data)


@given(texts)
@settings(max_examples=400, deadline=None)
def test_kernel_counts_the_sentences_of_the_reference(text: str) -> None:
    data = encoded(text)
    assert count_sentences(data, 0, len(data)) == max(1, len(spans(text)))


@pytest.mark.parametrize(
    ("line", "sentences"),
    [
        ("One. Two! Three?", 3),
        ('He said "No." Then left', 2),
        ("Pi is 3.14 exactly...", 1),
        ("春眠。處處聞「啼鳥。」夜来", 3),
        ("राम आया। वह गया।", 2),
        ("?! ... a", 3),
        ("", 1),
    ],
)
def test_stated_sentences(line: str, sentences: int) -> None:
    data = encoded(line)
    assert count_sentences(data, 0, len(data)) == max(1, len(spans(line))) == sentences


def test_tables_are_those_of_unicodedata() -> None:
    if unicodedata.unidata_version != classes.UNICODE:
        pytest.skip(f"this Python has Unicode {unicodedata.unidata_version}")
    table = classes.BLOCKS.reshape(-1, classes.BLOCK)[classes.BLOCK_OF].ravel()
    np.testing.assert_array_equal(table, make_classes.character_classes())
    np.testing.assert_array_equal(classes.TERMINALS, make_classes.terminals())
    assert str(np.load(Path(classes.__file__).with_name("classes.npz"))["unicode"]) == classes.UNICODE


def test_classes_of_space_and_line_breaks_hold_for_this_python() -> None:
    for code in range(0x3100):
        found = classes.class_of(code)
        assert bool(found & classes.SPACE) == chr(code).isspace()
        assert bool(found & classes.BREAK) == (len(f"a{chr(code)}a".splitlines()) == 2)
