"""Same words in, same decisions out: our metrics and thresholds against the shipped filters of datatrove.

One deviation, shown below: a document with lines but no words makes datatrove's FineWeb filter divide
by zero; here a zero denominator counts as one.
"""

from collections import Counter
from functools import lru_cache

import pyarrow as pa
import pytest
from filter_corpora import documents

from stages.filters import FILTERS, measure
from stages.filters.fineweb import STOP_CHARS
from stages.kernels.sentences import spans
from stages.kernels.words import split

pytest.importorskip("regex", reason="datatrove's text functions need the regex package")
from datatrove.data import Document
from datatrove.pipeline.filters import (
    C4QualityFilter,
    FineWebQualityFilter,
    GopherQualityFilter,
    GopherRepetitionFilter,
)
from datatrove.pipeline.filters.base_filter import BaseFilter
from datatrove.utils.text import PUNCTUATION_SET, TERMINAL_PUNCTUATION
from datatrove.utils.word_tokenizers import WordTokenizer

CAUSES = {
    "gopher_quality": {
        "gopher_short_doc": "too_few_words",
        "gopher_long_doc": "too_many_words",
        "gopher_below_avg_threshold": "words_too_short",
        "gopher_above_avg_threshold": "words_too_long",
        "gopher_too_many_hashes": "too_many_hashes",
        "gopher_too_many_ellipsis": "too_many_ellipses",
        "gopher_too_many_bullets": "too_many_bullet_lines",
        "gopher_too_many_end_ellipsis": "too_many_ellipsis_lines",
        "gopher_below_alpha_threshold": "too_few_alphabetic_words",
        "gopher_enough_stop_words": "too_few_stop_words",
    },
    "gopher_repetition": {
        "empty": "empty",
        "dup_para_frac": "duplicate_paragraphs",
        "dup_para_char_frac": "duplicate_paragraph_chars",
        "dup_line_frac": "duplicate_lines",
        "dup_line_char_frac": "duplicate_line_chars",
        **{f"top_{size}_gram": f"top_{size}_gram" for size in (2, 3, 4)},
        **{f"duplicated_{size}_n_grams": f"duplicate_{size}_grams" for size in (5, 6, 7, 8, 9, 10)},
    },
    "c4": {
        "lorem_ipsum": "lorem_ipsum",
        "curly_bracket": "curly_bracket",
        "too_few_sentences": "too_few_sentences",
    },
    "fineweb": {
        "empty": "empty",
        "line_punct_ratio": "too_few_punctuated_lines",
        "short_line_ratio": "too_many_short_lines",
        "char_dup_ratio": "duplicate_line_chars",
        "list_ratio": "too_many_newlines",
    },
}
"""Their reason -> our cause."""


words_of = lru_cache(maxsize=4000)(split)


class OurWords(WordTokenizer):
    """datatrove's interface over our words and sentences."""

    def word_tokenize(self, text: str) -> list[str]:
        return words_of(text)

    def sent_tokenize(self, text: str) -> list[str]:
        return [text[start:stop] for start, stop in spans(text)]

    def span_tokenize(self, text: str) -> list[tuple[int, int]]:
        return spans(text)


def theirs(chosen: BaseFilter, text: str) -> str | None:
    """The first rule that drops `text`, None when it stays."""
    result = chosen.filter(Document(text=text, id=""))
    return None if result is True else result[1]


def ours(name: str, texts: list[str], **settings: object) -> dict[str, list[bool]]:
    chosen = FILTERS[name]
    config = chosen.config(**settings)
    metrics = measure(pa.array(texts, pa.large_string()), {chosen.family: chosen.measure_config(config)})
    return {cause.removeprefix(f"{name}."): mask.tolist() for cause, mask in chosen.decide(metrics, config).items()}


def compare(name: str, chosen: BaseFilter, texts: list[str], **settings: object) -> Counter[str]:
    """Assert that decisions agree on every text, return how often each of their rules came first."""
    decided = ours(name, texts, **settings)
    reasons: Counter[str] = Counter()
    for number, text in enumerate(texts):
        reason = theirs(chosen, text)
        own = [cause for cause in FILTERS[name].causes if decided[cause.removeprefix(f"{name}.")][number]]
        if reason is None:
            assert own == [], (number, text[:80])
        else:
            assert f"{name}.{CAUSES[name][reason]}" in own, (number, reason, own, text[:80])
            if name != "c4":  # whose reason is that of the first line
                assert f"{name}.{CAUSES[name][reason]}" == own[0], (number, reason, own, text[:80])
        reasons[reason or "kept"] += 1
    return reasons


SHIPPED = {
    "gopher_quality": GopherQualityFilter,
    "gopher_repetition": GopherRepetitionFilter,
    "c4": C4QualityFilter,
    "fineweb": FineWebQualityFilter,
}


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_published_thresholds_decide_alike(name: str) -> None:
    reasons = compare(name, SHIPPED[name](language=OurWords()), documents(2000, longest=12_000))
    assert reasons["kept"] > 50
    assert len(reasons) > {"c4": 2}.get(name, 3)


def test_each_repetition_rule_alone_decides_alike() -> None:
    texts = documents(150, longest=8_000)
    fields = list(FILTERS["gopher_repetition"].config.model_fields)
    off = dict.fromkeys(fields)
    for field in fields:
        for limit in (0.02, 0.08):
            grams = int(field.split("_")[2]) if "gram" in field else 0
            chosen = GopherRepetitionFilter(
                dup_line_frac=limit if field == "max_duplicate_line_ratio" else None,
                dup_para_frac=limit if field == "max_duplicate_paragraph_ratio" else None,
                dup_line_char_frac=limit if field == "max_duplicate_line_char_ratio" else None,
                dup_para_char_frac=limit if field == "max_duplicate_paragraph_char_ratio" else None,
                top_n_grams=((grams, limit),) if field.startswith("max_top") else (),
                dup_n_grams=((grams, limit),) if grams >= 5 else (),
                language=OurWords(),
            )
            compare("gopher_repetition", chosen, texts, **{**off, field: limit})


def test_lines_that_c4_removes_are_counted_alike() -> None:
    texts = documents(400, longest=30_000)
    chosen = C4QualityFilter(
        language=OurWords(), min_num_sentences=-1, filter_lorem_ipsum=False, filter_curly_bracket=False
    )
    for text in texts:
        theirs(chosen, text)
    family = FILTERS["c4"].measure_config(FILTERS["c4"].config())
    metrics = measure(pa.array(texts, pa.large_string()), {"c4": family})
    names = {
        "line-total": "lines",
        "line-kept": "kept_lines",
        "line-filter-too_long_word": "long_word_lines",
        "line-filter-no_terminal_punc": "no_terminal_lines",
        "line-filter-too_few_words": "few_words_lines",
        "line-filter-javascript": "javascript_lines",
        "line-filter-policy": "policy_lines",
    }
    for their_name, name in names.items():
        expected = chosen.stats[their_name].total if their_name in chosen.stats.stats else 0
        assert sum(metrics.column(f"c4.{name}").to_pylist()) == expected, name


def test_character_lists_are_the_same() -> None:
    assert set(STOP_CHARS) == TERMINAL_PUNCTUATION
    in_words = {letter for letter in PUNCTUATION_SET if split(f"a{letter}a") == [f"a{letter}a"]}
    assert in_words == set("'’_\uff11")


def test_deviation_no_words() -> None:
    text = "!!! ??? a line of marks alone is of no use".translate({ord(c): "." for c in "aleinofmrkus"})
    assert split(text) == []
    with pytest.raises(ZeroDivisionError):
        theirs(FineWebQualityFilter(language=OurWords(), short_line_thr=1), text)
    decided = ours("fineweb", [text], max_short_line_ratio=1)
    assert not any(mask[0] for mask in decided.values())
