"""Languages of real sentences and pages, what a document is judged by, and the stage around it."""

import gzip
import json
import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.errors import UserError
from stages.kernels.language import SPARE, excerpt
from stages.language import (
    LID_176,
    PIECE_BYTES,
    PIECES,
    SCHEMA,
    Language,
    LoadedModel,
    check_languages,
    identify,
    load_model,
)
from stages.named_file import LocatedFile, NamedFile, locate

ROOT = Path(__file__).parents[2]
CORPORA = ROOT.parent / "shared" / "corpora"
GOLDEN = ROOT / "tests" / "golden" / "language"
TINY = LocatedFile(GOLDEN / "tree.ftz", "tiny")


@pytest.fixture(scope="session")
def lid() -> LoadedModel:
    try:
        return load_model(locate(LID_176, "language.model", ROOT, ROOT / "build" / "cache"))
    except UserError as error:
        pytest.skip(f"lid.176.ftz is not at hand: {error}")


def judged(texts: Sequence[str], loaded: LoadedModel) -> list[dict]:
    return identify(pa.array(texts, pa.large_string()), loaded, PIECES, PIECE_BYTES).to_pylist()


def cut(text: str, pieces: int, piece: int) -> str:
    data = np.frombuffer(b"#" + text.encode() + b"#", np.uint8)
    out = np.empty(pieces * (piece + SPARE), np.uint8)
    return bytes(out[: excerpt(data, 1, len(data) - 1, pieces, piece, out)]).decode()


def test_sentences_in_many_scripts(lid: LoadedModel) -> None:
    golden = json.loads((GOLDEN / "lid.176.json").read_text(encoding="utf-8"))
    for row, (text, language, score) in zip(judged([text for text, *_ in golden], lid), golden, strict=True):
        assert row["language"] == language, text
        assert row["language_score"] == pytest.approx(score, abs=1.01e-4), text
        assert row["second_language"] != language and 0 <= row["second_language_score"] <= row["language_score"]


@pytest.mark.parametrize("name", ["install-guide", "scripture", "quotes"])
def test_true_labels_are_found(lid: LoadedModel, name: str) -> None:
    path = CORPORA / f"{name}.jsonl.gz"
    if not path.exists():
        pytest.skip(f"no {path}")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [row for row in map(json.loads, lines) if len(row["text"]) > 200 and row["lang"] != "transliteration"]
    named = [row["lang"].split("_")[0] for row in rows]
    found = [row["language"] for row in judged([row["text"] for row in rows], lid)]
    assert np.mean([a == b for a, b in zip(named, found, strict=True)]) >= 0.98


def test_english_pages_under_another_name_are_found(lid: LoadedModel) -> None:
    path = CORPORA / "web-manual.jsonl.gz"
    if not path.exists():
        pytest.skip(f"no {path}")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [row for row in map(json.loads, lines) if row["lang"] in ("ru", "fr")]
    found = judged([row["text"] for row in rows], lid)
    latin = [sum(c < "\u0250" for c in row["text"]) > 0.9 * len(row["text"]) for row in rows]
    russian = [i for i, row in enumerate(rows) if row["lang"] == "ru"]
    assert len(russian) > 100
    assert sum(found[i]["language"] == "en" for i in russian) > 0.95 * len(russian)
    assert not [i for i in russian if latin[i] and found[i]["language"] == "ru"]
    assert np.mean([f["language"] == "fr" for f, row in zip(found, rows, strict=True) if row["lang"] == "fr"]) > 0.95


@pytest.mark.parametrize("text", ["", " \n", "12 345 67.8%", "=> {} __ ''", "\u0301\u0302", "☃ 🎉", "\u064b\u064e"])
def test_without_letters_the_language_is_undetermined(text: str) -> None:
    (row,) = judged([text], load_model(TINY))
    assert list(row.values()) == ["und", 0.0, "und", 0.0]


def test_points_and_symbols_do_not_count() -> None:
    plain, pointed = "السلام عليكم", "السَّلَامُ عَلَيْكُمْ"
    assert cut(pointed, 5, 128) == cut(plain, 5, 128) == plain + " "
    assert cut("1. don't <b>stop</b>, né_e!", 5, 128) == "don't b stop b né e "
    assert cut("नमस्ते दुनिया", 5, 128) == "नमस्ते दुनिया "


@given(st.text(max_size=400), st.integers(2, 5), st.integers(16, 60))
def test_an_excerpt_is_bounded_words_of_the_text(text: str, pieces: int, piece: int) -> None:
    found = cut(text, pieces, piece)
    assert len(found.encode()) <= pieces * (piece + SPARE)
    assert bool(found) == any(map(cut_letters, text))
    assert set(found) <= {*text, " "} and "  " not in found and not found.startswith(" ")


def cut_letters(char: str) -> bool:
    return bool(cut(char, 2, 16))


def test_a_long_document_is_heard_from_start_to_end() -> None:
    text = "alpha " * 2000 + "beta " * 2000 + "gamma " * 2000
    assert {"alpha", "beta", "gamma"} <= set(cut(text, 3, 64).split())
    assert {"late"} <= set(cut("0 " * 5000 + "late " * 50, 3, 64).split())
    assert cut("1 " * 5000 + "one" + " 2" * 5000, 3, 64) == "one "


def test_rows_do_not_depend_on_their_batch() -> None:
    loaded = load_model(TINY)
    texts = [*json.loads((GOLDEN / "expected.json").read_text(encoding="utf-8"))["texts"], "dog " * 500, "кот " * 900]
    column = pa.array(texts, pa.large_string())
    whole = identify(column, loaded, PIECES, PIECE_BYTES)
    pieces = [identify(column.slice(i, 3), loaded, PIECES, PIECE_BYTES) for i in range(0, len(texts), 3)]
    assert whole.to_pylist() == [row for piece in pieces for row in piece.to_pylist()]


def test_the_stage() -> None:
    stage = pickle.loads(pickle.dumps(Language("web", "d" * 64, TINY)))
    batch = pa.record_batch({"text": pa.array(["the dog in the house", "123"], pa.large_string())})
    made = stage.columns({"documents": batch}).batch
    assert made.schema == stage.schema == SCHEMA
    assert made.column("language").to_pylist() == ["en", "und"]
    digests = {
        Language(source, documents, LocatedFile(TINY.path, model), 5, size).recipe.digest
        for source, documents, model, size in [
            ("a", "d", "m", 128),
            ("b", "d", "m", 128),
            ("a", "e", "m", 128),
            ("a", "d", "n", 128),
            ("a", "d", "m", 64),
        ]
    }
    assert len(digests) == 4, "all but the source's name are part of the recipe"


def test_a_language_that_the_model_lacks_is_named() -> None:
    check_languages(["en", "und"], load_model(TINY))
    with pytest.raises(UserError, match=r"no xx, yy; it knows de, en, ru, zh"):
        check_languages(["en", "yy", "xx"], load_model(TINY))


def test_a_named_file_is_found_and_checked(tmp_path: Path) -> None:
    (tmp_path / "model.ftz").write_bytes(b"abc")
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert locate(NamedFile(file="model.ftz", sha256=digest), "x", tmp_path, tmp_path) == (
        tmp_path / "model.ftz",
        digest,
    )
    with pytest.raises(UserError, match="x: .*asks for 00"):
        locate(NamedFile(file="model.ftz", sha256="00"), "x", tmp_path, tmp_path)
    with pytest.raises(UserError, match="x: .*gone.ftz does not exist"):
        locate(NamedFile(file="gone.ftz"), "x", tmp_path, tmp_path)
    with pytest.raises(UserError, match="no-such-package' is not installed"):
        locate(NamedFile(file="a", package="no-such-package"), "x", tmp_path, tmp_path)
    assert locate(NamedFile(file="numpy/version.py", package="numpy"), "x", tmp_path, tmp_path).path.is_file()
