"""Filter by language: which ones stay, and how sure the model must be; from the columns of `stages.language`."""

from collections.abc import Mapping
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from stages.filters.config import Causes, FilterConfig

CAUSES = ("language.other", "language.unsure")


class LanguageConfig(FilterConfig):
    """`keep` names languages as the model does (`en`, `de`, `zh`, and `und` for documents without letters).

    `min_score` is the least score of a kept language, `min_scores` that of single ones. The default is the 0.65 that
    FineWeb (Penedo et al. 2024, arXiv:2406.17557) asks of lid.176 for English; CCNet (Wenzek et al. 2020,
    arXiv:1911.00359) asks for 0.5 of every language. Both score whole pages. `und` has score 0 and is never unsure.
    """

    keep: tuple[str, ...] = Field(min_length=1)
    min_score: float = Field(0.65, ge=0, le=1)
    min_scores: Mapping[str, float] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _known(self) -> Self:
        if len(set(self.keep)) != len(self.keep):
            raise ValueError("keep: a language is listed twice")
        extra = sorted(set(self.min_scores) - set(self.keep))
        if extra:
            raise ValueError(f"min_scores: {', '.join(extra)} is not in keep, so its score is never asked for")
        bad = sorted(name for name, score in self.min_scores.items() if not 0 <= score <= 1)
        if bad:
            raise ValueError(f"min_scores: {', '.join(bad)} is outside 0 to 1")
        return self


def decide(language: pa.StringArray, score: np.ndarray, config: LanguageConfig) -> Causes:
    """Documents in another language, and documents in a kept one with too low a score (float64, as stored).

    A document is never both. Raises ValueError on null languages.
    """
    if language.null_count:
        raise ValueError(f"{language.null_count} documents have no language; `stages.language` gives every one")
    places = pc.index_in(language, pa.array(config.keep, pa.string()))
    other = np.asarray(pc.is_null(places).to_numpy(zero_copy_only=False))
    least = np.array([0.0 if n == "und" else config.min_scores.get(n, config.min_score) for n in config.keep])
    limits = least[pc.fill_null(places, 0).to_numpy(zero_copy_only=False)]
    return {"language.other": other, "language.unsure": ~other & (score < limits)}
