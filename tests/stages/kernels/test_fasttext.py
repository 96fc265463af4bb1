"""The kernels against what fastText's own binding says, for two tiny models that are shipped with the tests."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.errors import UserError
from stages.fasttext_model import FastTextModel, fasttext_hash, read_model
from stages.kernels.fasttext import classify, exponential, make_work, ngram_hashes

GOLDEN = Path(__file__).parents[2] / "golden" / "language"
EXPECTED = json.loads((GOLDEN / "expected.json").read_text(encoding="utf-8"))


def classified(model: FastTextModel, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    encoded = [text.encode() for text in texts]
    labels, scores = np.empty((len(texts), 2), np.int32), np.empty((len(texts), 2))
    offsets = np.cumsum([0, *map(len, encoded)])
    work = make_work(model, max(map(len, encoded)))
    classify(model, np.frombuffer(b"".join(encoded), np.uint8), offsets, work, labels, scores)
    return labels, scores


@pytest.mark.parametrize("name", sorted(EXPECTED["models"]))
def test_labels_and_scores_are_those_of_the_binding(name: str) -> None:
    model, names = read_model(GOLDEN / name)
    labels, scores = classified(model, EXPECTED["texts"])
    expected = EXPECTED["models"][name]
    assert [[names[label] for label in pair] for pair in labels] == [[label for label, _ in pair] for pair in expected]
    assert np.abs(scores - [[score for _, score in pair] for pair in expected]).max() < 1e-5


def test_one_model_is_a_pruned_tree_and_one_a_plain_softmax() -> None:
    tree, softmax = (read_model(GOLDEN / name)[0] for name in ("tree.ftz", "softmax.bin"))
    assert tree.tree and not softmax.tree
    assert sum(map(int.bit_count, tree.ngram_bitmap.tolist())) < tree.bucket
    assert sum(map(int.bit_count, softmax.ngram_bitmap.tolist())) == softmax.bucket


@pytest.mark.parametrize("name", sorted(EXPECTED["models"]))
def test_a_text_is_scored_alike_in_any_company(name: str) -> None:
    model, _ = read_model(GOLDEN / name)
    together = classified(model, EXPECTED["texts"])
    for place, text in enumerate(EXPECTED["texts"]):
        alone = classified(model, [text])
        assert np.array_equal(alone[0][0], together[0][place]) and np.array_equal(alone[1][0], together[1][place])


def ngrams(word: str, minn: int, maxn: int) -> list[str]:
    """fastText's order: by first character, then by length; the brackets alone are none."""
    marked = f"<{word}>"
    pieces = [marked[i : i + n] for i in range(len(marked)) for n in range(minn, maxn + 1) if i + n <= len(marked)]
    return [piece for piece in pieces if piece not in ("<", ">")]


@given(
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters=" \t\n\v\f\r\0<>"), min_size=1), max_size=5),
    st.integers(1, 3),
    st.integers(0, 3),
    st.integers(1, 1 << 28),
)
def test_ngrams_are_those_of_the_definition(words: list[str], minn: int, more: int, bucket: int) -> None:
    text = np.frombuffer(" \n".join(words).encode() + b" ", np.uint8)
    found = np.empty((len(text) + 2) * 8, np.uint32)
    count = ngram_hashes(text, len(text), minn, minn + more, bucket, 0, found)
    pieces = [gram for word in words for gram in ngrams(word, minn, minn + more)]
    assert found[:count].tolist() == [fasttext_hash(gram.encode()) % bucket for gram in pieces]


def test_the_hash_sign_extends_bytes() -> None:
    assert fasttext_hash(b"") == 2166136261
    assert fasttext_hash(b"a") == 0xE40C292C
    assert fasttext_hash(b"\xff") == ((2166136261 ^ 0xFFFFFFFF) * 16777619) % 2**32


@given(st.floats(-700, 700))
def test_exponential(x: float) -> None:
    assert exponential(x) == pytest.approx(math.exp(x), rel=1e-14)


def test_exponential_is_clamped() -> None:
    assert exponential(1e6) == exponential(700.0) and exponential(-1e6) == exponential(-700.0)


@pytest.mark.parametrize(
    ("mend", "says"),
    [
        (lambda data: b"PK\3\4" + data[4:], "starts with"),
        (lambda data: data[:200], "not a fastText classifier"),
        (lambda data: data[:28] + (2).to_bytes(4, "little") + data[32:], "word 2-grams"),
        (lambda data: data[:32] + (4).to_bytes(4, "little") + data[36:], "its loss is 4"),
        (lambda data: data[:36] + (1).to_bytes(4, "little") + data[40:], "its kind is 1"),
        (lambda data: data[:-40], "not a fastText classifier"),
    ],
)
def test_what_is_no_classifier_is_named(tmp_path: Path, mend, says: str) -> None:
    path = tmp_path / "model.ftz"
    path.write_bytes(mend((GOLDEN / "tree.ftz").read_bytes()))
    with pytest.raises(UserError, match=f"model.ftz.*{says}"):
        read_model(path)


def test_a_missing_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere.ftz"):
        read_model(tmp_path / "nowhere.ftz")
