"""The quality and repetition rules of Gopher: Rae et al. 2021, https://arxiv.org/abs/2112.11446, appendix
A1.1.

What the paper leaves open (lines, symbols, rounding) follows datatrove 0.10.1, so that equal words give equal
decisions.
"""

import pyarrow as pa
from pydantic import NonNegativeFloat, NonNegativeInt

from stages.filters.config import (
    Causes,
    Counts,
    FilterConfig,
    MeasureConfig,
    Values,
    above,
    below,
    column,
    ratio,
)
from stages.kernels.repetition import DUPLICATE_SIZES, TOP_SIZES

QUALITY = "gopher_quality"
REPETITION = "gopher_repetition"

QUALITY_CAUSES = (
    "gopher_quality.too_few_words",
    "gopher_quality.too_many_words",
    "gopher_quality.words_too_short",
    "gopher_quality.words_too_long",
    "gopher_quality.too_many_hashes",
    "gopher_quality.too_many_ellipses",
    "gopher_quality.too_many_bullet_lines",
    "gopher_quality.too_many_ellipsis_lines",
    "gopher_quality.too_few_alphabetic_words",
    "gopher_quality.too_few_stop_words",
)
REPETITION_CAUSES = (
    "gopher_repetition.empty",
    "gopher_repetition.duplicate_paragraphs",
    "gopher_repetition.duplicate_paragraph_chars",
    "gopher_repetition.duplicate_lines",
    "gopher_repetition.duplicate_line_chars",
    *(f"gopher_repetition.top_{size}_gram" for size in TOP_SIZES),
    *(f"gopher_repetition.duplicate_{size}_grams" for size in DUPLICATE_SIZES),
)


class GopherQualityConfig(FilterConfig):
    """Thresholds of the quality rules, as published ("Quality filtering", appendix A1.1).

    A document stays with 50 to 100,000 words of mean length 3 to 10 characters, at most 0.1 hashes and 0.1
    ellipses a word, at most 90% of lines that start with a bullet and 30% that end with an ellipsis, at least
    80% of words with a letter, and two of eight English stop words. Stop words are compared as written, so
    "The" is none.
    """

    min_words: NonNegativeInt | None = 50
    max_words: NonNegativeInt | None = 100_000
    min_mean_word_length: NonNegativeFloat | None = 3
    max_mean_word_length: NonNegativeFloat | None = 10
    max_symbol_word_ratio: NonNegativeFloat | None = 0.1
    max_bullet_line_ratio: NonNegativeFloat | None = 0.9
    max_ellipsis_line_ratio: NonNegativeFloat | None = 0.3
    min_alphabetic_word_ratio: NonNegativeFloat | None = 0.8
    min_stop_words: NonNegativeInt | None = 2
    stop_words: tuple[str, ...] = ("the", "be", "to", "of", "and", "that", "have", "with")


class GopherQualityMeasure(MeasureConfig):
    """`stop_words`: sorted, each once; a stop word must be one word of `unicode-words-1`."""

    stop_words: tuple[str, ...]


class GopherRepetitionConfig(FilterConfig):
    """Largest fractions of a document that repetition may make up, as published (table A1).

    Line and paragraph fractions are of their number, all others of the characters of the text.
    """

    max_duplicate_line_ratio: NonNegativeFloat | None = 0.30
    max_duplicate_paragraph_ratio: NonNegativeFloat | None = 0.30
    max_duplicate_line_char_ratio: NonNegativeFloat | None = 0.20
    max_duplicate_paragraph_char_ratio: NonNegativeFloat | None = 0.20
    max_top_2_gram_ratio: NonNegativeFloat | None = 0.20
    max_top_3_gram_ratio: NonNegativeFloat | None = 0.18
    max_top_4_gram_ratio: NonNegativeFloat | None = 0.16
    max_duplicate_5_gram_ratio: NonNegativeFloat | None = 0.15
    max_duplicate_6_gram_ratio: NonNegativeFloat | None = 0.14
    max_duplicate_7_gram_ratio: NonNegativeFloat | None = 0.13
    max_duplicate_8_gram_ratio: NonNegativeFloat | None = 0.12
    max_duplicate_9_gram_ratio: NonNegativeFloat | None = 0.11
    max_duplicate_10_gram_ratio: NonNegativeFloat | None = 0.10


class GopherRepetitionMeasure(MeasureConfig):
    """Nothing to set."""


def quality_measure_config(config: GopherQualityConfig) -> GopherQualityMeasure:
    """The part of `config` that changes the metrics."""
    return GopherQualityMeasure(stop_words=tuple(sorted(set(config.stop_words))))


def repetition_measure_config(config: GopherRepetitionConfig) -> GopherRepetitionMeasure:
    """The part of `config` that changes the metrics."""
    return GopherRepetitionMeasure()


def quality_columns(counts: Counts) -> dict[str, Values]:
    """Words that are not punctuation (int64), distinct stop words (int64), and the ratios of the rules
    (float64).

    Symbols and words with a letter are counted per word of any kind.
    """
    words = counts["words"] - counts["punctuation_words"]
    return {
        "words": words,
        "mean_word_length": ratio(counts["letter_chars"], words),
        "hash_word_ratio": ratio(counts["hashes"], counts["words"]),
        "ellipsis_word_ratio": ratio(counts["ellipses"], counts["words"]),
        "bullet_line_ratio": ratio(counts["bullet_lines"], counts["lines"]),
        "ellipsis_line_ratio": ratio(counts["ellipsis_lines"], counts["lines"]),
        "alphabetic_word_ratio": ratio(counts["alphabetic_words"], counts["words"]),
        "stop_words": counts["stop_words"],
    }


def repetition_columns(counts: Counts) -> dict[str, Values]:
    """Characters (int64) and the fractions of table A1 (float64)."""
    chars = counts["chars"]
    found: dict[str, Values] = {
        "chars": chars,
        "duplicate_paragraph_ratio": ratio(counts["duplicate_paragraphs"], counts["paragraphs"]),
        "duplicate_paragraph_char_ratio": ratio(counts["duplicate_paragraph_chars"], chars),
        "duplicate_line_ratio": ratio(counts["duplicate_feed_lines"], counts["feed_lines"]),
        "duplicate_line_char_ratio": ratio(counts["duplicate_feed_line_chars"], chars),
    }
    for size in TOP_SIZES:
        found[f"top_{size}_gram_ratio"] = ratio(counts[f"top_{size}_gram_chars"], chars)
    for size in DUPLICATE_SIZES:
        found[f"duplicate_{size}_gram_ratio"] = ratio(counts[f"duplicate_{size}_gram_chars"], chars)
    return found


def decide_quality(metrics: pa.RecordBatch, config: GopherQualityConfig) -> Causes:
    """Documents that break a quality rule."""

    def values(name: str) -> Values:
        return column(metrics, f"{QUALITY}.{name}")

    symbols = config.max_symbol_word_ratio
    return {
        "gopher_quality.too_few_words": below(values("words"), config.min_words),
        "gopher_quality.too_many_words": above(values("words"), config.max_words),
        "gopher_quality.words_too_short": below(values("mean_word_length"), config.min_mean_word_length),
        "gopher_quality.words_too_long": above(values("mean_word_length"), config.max_mean_word_length),
        "gopher_quality.too_many_hashes": above(values("hash_word_ratio"), symbols),
        "gopher_quality.too_many_ellipses": above(values("ellipsis_word_ratio"), symbols),
        "gopher_quality.too_many_bullet_lines": above(values("bullet_line_ratio"), config.max_bullet_line_ratio),
        "gopher_quality.too_many_ellipsis_lines": above(values("ellipsis_line_ratio"), config.max_ellipsis_line_ratio),
        "gopher_quality.too_few_alphabetic_words": below(
            values("alphabetic_word_ratio"), config.min_alphabetic_word_ratio
        ),
        "gopher_quality.too_few_stop_words": below(values("stop_words"), config.min_stop_words),
    }


def decide_repetition(metrics: pa.RecordBatch, config: GopherRepetitionConfig) -> Causes:
    """Documents that repeat themselves too much, and empty ones."""

    def values(name: str) -> Values:
        return column(metrics, f"{REPETITION}.{name}")

    causes: Causes = {"gopher_repetition.empty": below(values("chars"), 1)}
    for part in ("paragraph", "line"):
        causes[f"gopher_repetition.duplicate_{part}s"] = above(
            values(f"duplicate_{part}_ratio"), getattr(config, f"max_duplicate_{part}_ratio")
        )
        causes[f"gopher_repetition.duplicate_{part}_chars"] = above(
            values(f"duplicate_{part}_char_ratio"), getattr(config, f"max_duplicate_{part}_char_ratio")
        )
    for size in TOP_SIZES:
        causes[f"gopher_repetition.top_{size}_gram"] = above(
            values(f"top_{size}_gram_ratio"), getattr(config, f"max_top_{size}_gram_ratio")
        )
    for size in DUPLICATE_SIZES:
        causes[f"gopher_repetition.duplicate_{size}_grams"] = above(
            values(f"duplicate_{size}_gram_ratio"), getattr(config, f"max_duplicate_{size}_gram_ratio")
        )
    return causes
