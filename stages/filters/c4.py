"""The document rules of C4: Raffel et al. 2020, https://jmlr.org/papers/v21/20-074.html, section 2.2.

C4 first removes lines and then drops documents by what is left. Documents are never rewritten here, so the
metrics describe the text that the line rules would leave, and only the document rules decide. Order of the
rules and details follow datatrove 0.10.1; sentences are those of `stages.kernels.sentences`.
"""

import pyarrow as pa
from pydantic import Field, NonNegativeInt

from stages.filters.config import Causes, Counts, FilterConfig, MeasureConfig, Values, above, below, column

FAMILY = "c4"
CAUSES = ("c4.lorem_ipsum", "c4.curly_bracket", "c4.too_few_sentences")
COLUMNS = (
    "lines",
    "kept_lines",
    "sentences",
    "long_word_lines",
    "no_terminal_lines",
    "few_words_lines",
    "javascript_lines",
    "policy_lines",
    "lorem_ipsum_lines",
    "curly_bracket_lines",
)


class C4Measure(MeasureConfig):
    """Which lines C4 leaves. A null number or a false switch turns a rule off.

    A line stays when no word has over `max_word_length` characters, it ends in . ? ! " or ' (not in an
    ellipsis), has `min_words_per_line` words between spaces, and names neither JavaScript nor a policy on
    cookies, terms or privacy.
    """

    min_words_per_line: NonNegativeInt | None = 3
    max_word_length: NonNegativeInt | None = 1000
    remove_citations: bool = True
    terminal_punctuation: bool = True
    javascript: bool = True
    policy: bool = True


class C4Config(FilterConfig):
    """Published rules: a document needs five sentences in the lines left, no "lorem ipsum" and no curly
    bracket there.

    The other fields are those of `C4Measure`.
    """

    min_sentences: NonNegativeInt | None = 5
    lorem_ipsum: bool = Field(default=True, description="drop documents that hold the phrase")
    curly_bracket: bool = Field(default=True, description="drop documents that hold an opening one")
    min_words_per_line: NonNegativeInt | None = 3
    max_word_length: NonNegativeInt | None = 1000
    remove_citations: bool = True
    terminal_punctuation: bool = True
    javascript: bool = True
    policy: bool = True


def measure_config(config: C4Config) -> C4Measure:
    """The part of `config` that changes the metrics."""
    return C4Measure.model_validate({name: getattr(config, name) for name in C4Measure.model_fields})


def columns(counts: Counts) -> dict[str, Values]:
    """Lines, those left and those removed by the first rule that applies; sentences in the lines left; all
    int64.

    `lorem_ipsum_lines` and `curly_bracket_lines` count lines that reach these rules, which drop a document
    and no line.
    """
    return {name: counts[name] for name in COLUMNS}


def decide(metrics: pa.RecordBatch, config: C4Config) -> Causes:
    """Documents that the document rules drop."""
    return {
        "c4.lorem_ipsum": above(column(metrics, "c4.lorem_ipsum_lines"), 0 if config.lorem_ipsum else None),
        "c4.curly_bracket": above(column(metrics, "c4.curly_bracket_lines"), 0 if config.curly_bracket else None),
        "c4.too_few_sentences": below(column(metrics, "c4.sentences"), config.min_sentences),
    }
