import gzip
import json
import re
import unicodedata
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from stages.kernels.xxh3 import xxh3_128
from stages.normalize import NORMALIZE_VERSION, RULES, NormalizeConfig, normalize, text_buffers

CORPORA = Path(__file__).resolve().parents[3] / "shared" / "corpora"
WHITE = "\t\n\v\f\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
SAMPLES = [
    "", "plain text", "line\nline\n\n\tindented", "caf\u00e9", "床前明月光，\n疑是地上霜。",
    "안녕하세요", "naïve 🙂 x", "a  b",
]  # fmt: skip
PIECES = [
    *" \t\n\r\v\f\0\x07\x1b\x7f", "\x85", "\x80", "\x9f", "\xa0", "\u2000", "\u2028", "\u2029", "\u3000",
    "\ufeff", "\u200b",
    "\r\n", "\r\0\n", " " * 5, "\n" * 5, "a", "e", "é", "<", "\u0301", "\u0323", "\u0338", "\u212b", "\u1100", "\u1161",
    "\u11a8", "\uac00", "\u0bc6", "\u0bbe", "\u0345", "中", "😀", "word", "eight by",
]  # fmt: skip

texts = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)
configs = st.builds(
    NormalizeConfig,
    controls=st.booleans(),
    newlines=st.booleans(),
    max_space_run=st.sampled_from([1, 2, 7, 8, 9, 100]),
    max_newline_run=st.sampled_from([1, 2, 10]),
    strip=st.booleans(),
    nfc=st.booleans(),
)


def array(rows: list[str]) -> pa.LargeStringArray:
    return pa.array(rows, pa.large_string())


def of_bytes(rows: list[bytes]) -> pa.LargeStringArray:
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return pa.LargeStringArray.from_buffers(len(rows), pa.py_buffer(offsets), pa.py_buffer(b"".join(rows)))


def to_bytes(column: pa.LargeStringArray) -> list[bytes]:
    data, offsets = text_buffers(column)
    return [bytes(data[a:b]) for a, b in pairwise(offsets)]


def reference(text: str, config: NormalizeConfig) -> tuple[str, dict[str, int]]:
    """The rules one after the other, as the module states them."""

    def controls(t: str) -> str:
        t = re.sub("[\0-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]", "", t)
        return re.sub(f"^[{WHITE}\ufeff]+", lambda match: match[0].replace("\ufeff", ""), t)

    steps = {
        "controls": controls if config.controls else str,
        "newlines": (lambda t: re.sub("\r\n|[\r\v\f\x85\u2028\u2029]", "\n", t)) if config.newlines else str,
        "spaces": lambda t: re.sub(f"([ \t]{{{config.max_space_run}}})[ \t]+", r"\1", t),
        "newline_runs": lambda t: re.sub(f"(\n{{{config.max_newline_run}}})\n+", r"\1", t),
        "strip": (lambda t: re.sub(f"^[{WHITE}]+|[{WHITE}]+\\Z", "", t)) if config.strip else str,
        "nfc": (lambda t: unicodedata.normalize("NFC", t)) if config.nfc else str,
    }
    changes = {}
    for rule, step in steps.items():
        after = step(text)
        changes[rule] = int(after != text)
        text = after
    return text, changes


@settings(deadline=None, max_examples=400)
@given(st.lists(texts, max_size=8), configs)
def test_follows_the_rules_and_is_idempotent(rows: list[str], config: NormalizeConfig) -> None:
    expected = [reference(row, config) for row in rows]
    result, changes = normalize(array(rows), config)
    result.validate(full=True)
    assert result.to_pylist() == [text for text, _ in expected]
    assert changes == {rule: sum(change[rule] for _, change in expected) for rule in RULES}
    again, unchanged = normalize(result, config)
    assert again.to_pylist() == result.to_pylist()
    assert not any(unchanged.values())


@settings(deadline=None)
@given(st.lists(texts, min_size=1, max_size=8), st.data())
def test_batches_and_slices_do_not_matter(rows: list[str], data: st.DataObject) -> None:
    config = NormalizeConfig(max_space_run=4, max_newline_run=3)
    cut = data.draw(st.integers(0, len(rows)))
    whole, total = normalize(array(rows), config)
    head, first = normalize(array(rows).slice(0, cut), config)
    tail, second = normalize(array(rows).slice(cut), config)
    assert head.to_pylist() + tail.to_pylist() == whole.to_pylist()
    assert {rule: first[rule] + second[rule] for rule in RULES} == total


chunks = st.one_of(st.binary(max_size=4), st.sampled_from(PIECES).map(str.encode))


@settings(deadline=None)
@given(st.lists(st.lists(chunks, max_size=10).map(b"".join), min_size=1, max_size=6), configs)
def test_invalid_bytes_are_kept_apart(rows: list[bytes], config: NormalizeConfig) -> None:
    """Random bytes neither fail nor reach into the next document."""
    together, _ = normalize(of_bytes(rows), config)
    assert to_bytes(together) == [to_bytes(normalize(of_bytes([row]), config)[0])[0] for row in rows]


def test_invalid_bytes_stay() -> None:
    rows = [b"\xff\xfe\x80 a\0b", b"e\xcc", b"\x81 \xe2\x80", b"\xf0\x9f\x98 e\xcc\x81 \xc0\x80", b"\xed\xa0\x80\r"]
    result, _ = normalize(of_bytes(rows), NormalizeConfig())
    assert to_bytes(result) == [
        b"\xff\xfe\x80 ab", b"e\xcc", b"\x81 \xe2\x80", b"\xf0\x9f\x98 \xc3\xa9 \xc0\x80", b"\xed\xa0\x80",
    ]  # fmt: skip


def test_clean_column_is_returned_as_it_came() -> None:
    column = array(SAMPLES)
    result, changes = normalize(column, NormalizeConfig())
    assert result is column
    assert changes == dict.fromkeys(RULES, 0)


def test_no_rows() -> None:
    for column in (array([]), array(["a"]).slice(1), array([""]), array(["\n"])):
        result, _ = normalize(column, NormalizeConfig())
        assert result.to_pylist() == [""] * len(column)


def test_nulls_and_other_types_are_refused() -> None:
    with pytest.raises(ValueError, match="1 of 2 texts are null"):
        normalize(pa.array(["a", None], pa.large_string()), NormalizeConfig())
    with pytest.raises(TypeError, match="not StringArray"):
        normalize(pa.array(["a"]), NormalizeConfig())


def test_config_is_closed_and_frozen() -> None:
    for wrong in ({"lowercase": True}, {"max_space_run": 0}, {"max_newline_run": 0}):
        with pytest.raises(ValidationError):
            NormalizeConfig.model_validate(wrong)
    with pytest.raises(ValidationError):
        NormalizeConfig().nfc = False


def test_run_lengths_at_their_limits() -> None:
    rows = [
        f"a{mark * n}b" for mark, limit in ((" ", 100), ("\t", 100), ("\n", 10)) for n in (limit - 1, limit, limit + 1)
    ]
    result, changes = normalize(array(rows), NormalizeConfig())
    assert [len(row) for row in result.to_pylist()] == [101, 102, 102, 101, 102, 102, 11, 12, 12]
    assert (changes["spaces"], changes["newline_runs"]) == (2, 1)


def test_huge_document() -> None:
    rows = ["short", "\ufeff" + "a long line with e\u0301 and ä\r\n" * 2_000_000, "short\n"]
    assert len(rows[1].encode()) > 50_000_000
    result, changes = normalize(array(rows), NormalizeConfig())
    lines = ("a long line with é and ä\n" * 2_000_000)[:-1]
    assert result.to_pylist() == ["short", lines, "short"]
    assert changes == {"controls": 1, "newlines": 1, "spaces": 0, "newline_runs": 0, "strip": 2, "nfc": 1}


@pytest.mark.skipif(not CORPORA.is_dir(), reason="the shared corpora are not here")
@pytest.mark.parametrize("name", ["poetry-zh", "scripture", "code-go", "quotes", "docs-linux"])
def test_real_text(name: str) -> None:
    with gzip.open(CORPORA / f"{name}.jsonl.gz", "rt") as lines:
        rows = [json.loads(line)["text"] for line, _ in zip(lines, range(300), strict=False)]
    config = NormalizeConfig()
    result, _ = normalize(array(rows), config)
    assert result.to_pylist() == [reference(row, config)[0] for row in rows]


GOLDEN = [
    ("", ""),
    ("Hello, world.\n", "Hello, world."),
    ("\ufeff  a\r\nb\rc\u2028d\x85e\ff  \n\n", "a\nb\nc\nd\ne\nf"),
    ("nul\0 bell\x07 \x1b[0m tab\t c1\x80\x9f.", "nul bell [0m tab\t c1."),
    ("x" + " " * 150 + "y" + "\n" * 20 + "z", "x" + " " * 100 + "y" + "\n" * 10 + "z"),
    ("cafe\0\u0301 \u212b \u1112\u1161\u11ab q\u0307\u0323", "café Å 한 q\u0323\u0307"),
    ("\u3000床前明月光\u3000疑是地上霜\xa0", "床前明月光\u3000疑是地上霜"),
    ("ﬁ ² “quotes” \u200b\ufeff kept", "ﬁ ² “quotes” \u200b\ufeff kept"),
]
GOLDEN_IDS = [
    "99aa06d3014798d86001c324468d497f",
    "79e28a50ad14254e7b4373b7c23fabf5",
    "5ee68669bfba53516a45ccf257ca74e2",
    "a695c64db74e9afd6466d7cb79490701",
    "002bb59b74d88a405a4ea30f03505e8b",
    "b605db8eda3753b914c1cbeaff3c8b80",
    "9088eab64feb0d3db875a81d9d0320e1",
    "eb0f68971cf7527eef199b70eeda32a4",
]


def test_golden() -> None:
    """A change here is a change of every document id: raise NORMALIZE_VERSION with it."""
    assert NORMALIZE_VERSION == 1
    result, changes = normalize(array([raw for raw, _ in GOLDEN]), NormalizeConfig())
    assert result.to_pylist() == [text for _, text in GOLDEN]
    assert changes == {"controls": 3, "newlines": 1, "spaces": 1, "newline_runs": 1, "strip": 3, "nfc": 1}
    hi, lo = xxh3_128(*text_buffers(result))
    assert [f"{h:016x}{v:016x}" for h, v in zip(hi, lo, strict=True)] == GOLDEN_IDS
