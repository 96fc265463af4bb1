"""The custom filters of FineWeb: Penedo et al. 2024, https://arxiv.org/abs/2406.17557, section 3.5.

Details follow datatrove 0.10.1: lines are cut at newlines, blank ones do not count, and white space inside a
line does.
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
from stages.kernels.classes import TERMINALS

FAMILY = "fineweb"
CAUSES = (
    "fineweb.empty",
    "fineweb.too_few_punctuated_lines",
    "fineweb.too_many_short_lines",
    "fineweb.duplicate_line_chars",
    "fineweb.too_many_newlines",
)
STOP_CHARS = "".join(map(chr, TERMINALS.tolist()))
"""Characters that end a punctuated line: the sentence terminals of all scripts."""


class FineWebConfig(FilterConfig):
    """Published thresholds: at least 12% of lines end in a terminal, at most 67% have up to 30 characters, at
    most 1% of characters are in repeated lines; and (in the released code) at most 0.3 newlines a word, a
    mark of lists.

    `zero_punctuation_passes` spares documents without any punctuated line. `stop_chars` are single
    characters.
    """

    min_punctuated_line_ratio: NonNegativeFloat | None = 0.12
    zero_punctuation_passes: bool = False
    max_short_line_ratio: NonNegativeFloat | None = 0.67
    max_duplicate_line_char_ratio: NonNegativeFloat | None = 0.01
    max_newline_word_ratio: NonNegativeFloat | None = 0.3
    stop_chars: str = STOP_CHARS
    short_line_length: NonNegativeInt = 30


class FineWebMeasure(MeasureConfig):
    """`stop_chars`: ascending, each once; `short_line_length`: characters up to which a line is short."""

    stop_chars: str = STOP_CHARS
    short_line_length: NonNegativeInt = 30


def measure_config(config: FineWebConfig) -> FineWebMeasure:
    """The part of `config` that changes the metrics."""
    return FineWebMeasure(
        stop_chars="".join(sorted(set(config.stop_chars))), short_line_length=config.short_line_length
    )


def columns(counts: Counts) -> dict[str, Values]:
    """Lines that are not blank (int64) and the ratios of the rules (float64); newlines in the text count
    nowhere as characters.
    """
    lines = counts["solid_feed_lines"]
    return {
        "lines": lines,
        "punctuated_line_ratio": ratio(counts["punctuated_feed_lines"], lines),
        "short_line_ratio": ratio(counts["short_feed_lines"], lines),
        "duplicate_line_char_ratio": ratio(
            counts["duplicate_solid_feed_line_chars"], counts["chars"] - counts["newlines"]
        ),
        "newline_word_ratio": ratio(counts["newlines"], counts["words"]),
    }


def decide(metrics: pa.RecordBatch, config: FineWebConfig) -> Causes:
    """Documents that break a rule; a document without lines is `fineweb.empty` and breaks no rule on
    lines.
    """
    empty = below(column(metrics, "fineweb.lines"), 1)
    punctuated = column(metrics, "fineweb.punctuated_line_ratio")
    unpunctuated = below(punctuated, config.min_punctuated_line_ratio) & ~empty
    if config.zero_punctuation_passes:
        unpunctuated &= punctuated > 0
    return {
        "fineweb.empty": empty,
        "fineweb.too_few_punctuated_lines": unpunctuated,
        "fineweb.too_many_short_lines": above(column(metrics, "fineweb.short_line_ratio"), config.max_short_line_ratio),
        "fineweb.duplicate_line_chars": above(
            column(metrics, "fineweb.duplicate_line_char_ratio"), config.max_duplicate_line_char_ratio
        ),
        "fineweb.too_many_newlines": above(
            column(metrics, "fineweb.newline_word_ratio"), config.max_newline_word_ratio
        ),
    }
