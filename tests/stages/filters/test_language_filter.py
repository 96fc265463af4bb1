"""The decision by language: first the name, then the score, each document for one cause at most."""

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from stages.filters.language import CAUSES, LanguageConfig, decide

LANGUAGES = pa.array(["en", "en", "de", "zh", "zh", "und", "fr"])
SCORES = np.array([0.65, 0.6499, 0.9, 0.4, 0.3999, 0.0, 0.1])


def decided(**settings) -> dict[str, list[int]]:
    causes = decide(LANGUAGES, SCORES, LanguageConfig(**settings))
    assert tuple(causes) == CAUSES
    assert all(mask.dtype == np.bool_ and len(mask) == len(SCORES) for mask in causes.values())
    return {cause.removeprefix("language."): np.flatnonzero(mask).tolist() for cause, mask in causes.items()}


def test_the_default_score_is_included() -> None:
    assert decided(keep=["en"]) == {"other": [2, 3, 4, 5, 6], "unsure": [1]}


def test_scores_of_single_languages() -> None:
    found = decided(keep=["zh", "en", "und"], min_score="0.9", min_scores={"zh": "0.4"})
    assert found == {"other": [2, 6], "unsure": [0, 1, 4]}


def test_no_score_at_all() -> None:
    assert decided(keep=["en", "zh", "fr", "de"], min_score=0) == {"other": [5], "unsure": []}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"keep": []},
        {"keep": ["en", "en"]},
        {"keep": ["en"], "min_scores": {"de": 0.5}},
        {"keep": ["en"], "min_scores": {"en": 1.5}},
        {"keep": ["en"], "min_score": -0.1},
        {"keep": ["en"], "minimum": 0.5},
    ],
)
def test_settings_that_mean_nothing(settings: dict) -> None:
    with pytest.raises(ValidationError):
        LanguageConfig(**settings)


def test_absent_languages_are_an_error() -> None:
    with pytest.raises(ValueError, match="1 documents have no language"):
        decide(pa.array(["en", None]), np.zeros(2), LanguageConfig(keep=["en"]))
