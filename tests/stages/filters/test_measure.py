"""Metrics against the plain reference, and what a measurement promises."""

import time

import filter_reference as reference
import numpy as np
import pyarrow as pa
import pytest
from filter_corpora import documents
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stages.errors import UserError
from stages.filters import FILTERS, MeasureConfig, measure
from stages.filters.c4 import C4Measure
from stages.filters.fineweb import FineWebMeasure
from stages.filters.gopher import GopherQualityMeasure
from stages.filters.measure import FAMILIES, _rules, text_buffers
from stages.kernels.document import COUNTERS, count_documents
from stages.kernels.scratch import make_scratch

CONFIGS: dict[str, MeasureConfig] = {
    chosen.family: chosen.measure_config(chosen.config(**({"min_words": 1} if name == "length" else {})))
    for name, chosen in FILTERS.items()
}
STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
PIECES = [
    *"ab \n\r.…-•#[]{}'\"?!\t\x1c\x85\u2028\u3000漢１é",
    "\n\n",
    "\r\n",
    "...",
    "the ",
    "of ",
    "a b c d e f. ",
    "ab c d ef a b ",
    "[12]",
    "[१]",
    "[edit]",
    "[citation needed]",
    "javaScript",
    "coo\u212aie policy",
    "Lorem [3]ipsum",
    "a line ends here.",
    "x" * 1001,
]
pieces = st.lists(st.sampled_from(PIECES), max_size=60).map("".join)


def column(texts: list[str]) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


def kernel_counts(texts: list[str]) -> np.ndarray:
    data, offsets = text_buffers(column(texts))
    rules = _rules(CONFIGS)
    counts = np.zeros((len(texts), len(COUNTERS)), np.int64)
    seen = np.full(len(rules.stop_words), -1, np.int64)
    count_documents(data, offsets, rules, make_scratch(max(map(int, np.diff(offsets)), default=0)), seen, counts)
    return counts


def assert_counts(texts: list[str]) -> None:
    for text, row in zip(texts, kernel_counts(texts), strict=True):
        expected = reference.counts(text, STOP_WORDS)
        assert dict(zip(COUNTERS, row.tolist(), strict=True)) == {name: expected.get(name, 0) for name in COUNTERS}


@given(st.lists(st.one_of(pieces, st.text(max_size=40)), max_size=4))
@example(["", " ", "\n", "\n\n", "\n a\n\n", "a\n\n \n\na", "\r", "\r\n\n\r"])
@example(["[[1]2] a b.", "a b c [1]. d", "see [] x y."])
@settings(max_examples=400, deadline=None)
def test_counts_equal_the_reference_on_any_text(texts: list[str]) -> None:
    assert_counts(texts)


def test_counts_equal_the_reference_on_real_text() -> None:
    assert_counts(documents(180, longest=20_000))


def test_columns_and_types() -> None:
    metrics = measure(column(["One line. And the rest of it."]), CONFIGS)
    families = [name.split(".")[0] for name in metrics.schema.names]
    assert list(dict.fromkeys(families)) == list(FAMILIES)
    for field in metrics.schema:
        ratio = field.name.endswith("ratio") or field.name == "gopher_quality.mean_word_length"
        assert field.type == (pa.float64() if ratio else pa.int64())
        assert not field.nullable
    row = metrics.to_pylist()[0]
    assert row["length.words"] == 7
    assert row["length.bytes"] == row["length.chars"] == 29
    assert row["gopher_quality.stop_words"] == 2
    assert row["gopher_quality.mean_word_length"] == 21 / 7
    assert row["c4.sentences"] == 2


def test_rows_do_not_depend_on_neighbours_slices_or_families() -> None:
    texts = ["the of", "", "漢字かな交じり文。\n" * 9, "the the", "a b c d e " * 40, "of"]
    whole = measure(column(texts), CONFIGS)
    sliced = measure(column(["padding", *texts, "more"]).slice(1, len(texts)), CONFIGS)
    assert sliced.equals(whole)
    for number, text in enumerate(texts):
        assert measure(column([text]), CONFIGS).equals(whole.slice(number, 1))
    for family, config in CONFIGS.items():
        alone = measure(column(texts), {family: config})
        assert alone.equals(whole.select(alone.schema.names))


def test_empty_column() -> None:
    metrics = measure(column([]), CONFIGS)
    assert metrics.num_rows == 0
    assert "gopher_repetition.top_2_gram_ratio" in metrics.schema.names


def test_settings_change_what_is_measured() -> None:
    text = "Two words.\nNow here are some more words; see the policy\nunsere Wörter und Sätze"
    found = measure(
        column([text]),
        {
            "gopher_quality": GopherQualityMeasure(stop_words=("und", "Wörter", "the")),
            "fineweb": FineWebMeasure(stop_chars="e", short_line_length=23),
            "c4": C4Measure(min_words_per_line=2, terminal_punctuation=False),
        },
    ).to_pylist()[0]
    assert found["gopher_quality.stop_words"] == 3
    assert found["fineweb.punctuated_line_ratio"] == 1 / 3
    assert found["fineweb.short_line_ratio"] == 2 / 3
    assert found["c4.kept_lines"] == 3


def test_errors_name_the_object() -> None:
    with pytest.raises(UserError, match="stop word 'of the' is not one word"):
        measure(column(["x"]), {"gopher_quality": GopherQualityMeasure(stop_words=("of the",))})
    with pytest.raises(UserError, match="1 of 2 texts are null"):
        measure(pa.array(["x", None], pa.large_string()), CONFIGS)
    with pytest.raises(UserError, match="cast it to large_string"):
        measure(pa.array(["x"]), CONFIGS)


@pytest.mark.parametrize("unit", ["word one two\n", "a\n", "x", "漢", "a " * 7 + "\n\n", "[", "...\n"])
def test_time_is_linear_in_the_document(unit: str) -> None:
    def seconds(repeats: int) -> float:
        texts = column([unit * repeats])
        best = np.inf
        for _ in range(3):
            begin = time.process_time()
            measure(texts, CONFIGS)
            best = min(best, time.process_time() - begin)
        return best

    small, large = 100_000 // len(unit), 800_000 // len(unit)
    assert seconds(large) < 8 * 4 * seconds(small) + 0.05
