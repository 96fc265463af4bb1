"""Length of a document in words, characters and bytes. Bounds are inclusive and have no default."""

from typing import Self

import pyarrow as pa
from pydantic import NonNegativeInt, model_validator

from stages.filters.config import (
    Causes,
    Counts,
    FilterConfig,
    MeasureConfig,
    Values,
    above,
    below,
    column,
)

FAMILY = "length"
CAUSES = (
    "length.too_few_words",
    "length.too_many_words",
    "length.too_few_chars",
    "length.too_many_chars",
    "length.too_few_bytes",
    "length.too_many_bytes",
)


class LengthConfig(FilterConfig):
    """Bounds on words (`unicode-words-1`), characters (code points) and bytes (UTF-8); at least one must be
    given.
    """

    min_words: NonNegativeInt | None = None
    max_words: NonNegativeInt | None = None
    min_chars: NonNegativeInt | None = None
    max_chars: NonNegativeInt | None = None
    min_bytes: NonNegativeInt | None = None
    max_bytes: NonNegativeInt | None = None

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if all(bound is None for bound in self.model_dump().values()):
            raise ValueError("no bound is given: set at least one, such as min_words")
        for unit in ("words", "chars", "bytes"):
            least, most = getattr(self, f"min_{unit}"), getattr(self, f"max_{unit}")
            if least is not None and most is not None and least > most:
                raise ValueError(f"min_{unit} {least} is above max_{unit} {most}")
        return self


class LengthMeasure(MeasureConfig):
    """Nothing to set."""


def measure_config(config: LengthConfig) -> LengthMeasure:
    """The part of `config` that changes the metrics."""
    return LengthMeasure()


def columns(counts: Counts) -> dict[str, Values]:
    """`bytes`, `chars` and `words`, int64."""
    return {name: counts[name] for name in ("bytes", "chars", "words")}


def decide(metrics: pa.RecordBatch, config: LengthConfig) -> Causes:
    """Documents outside the bounds."""
    causes: Causes = {}
    for unit in ("words", "chars", "bytes"):
        values = column(metrics, f"length.{unit}")
        causes[f"length.too_few_{unit}"] = below(values, getattr(config, f"min_{unit}"))
        causes[f"length.too_many_{unit}"] = above(values, getattr(config, f"max_{unit}"))
    return causes
