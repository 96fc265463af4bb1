"""Filters: metrics are measured once per document, thresholds decide afterwards.

Adding a filter takes a config with a `decide` function (in a module of its own), a line in `FILTERS`, and a
test; a family with new metrics also a line in `measure.FAMILIES`.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
from pydantic import ValidationError

from stages.errors import UserError
from stages.filters import c4, fineweb, gopher, length
from stages.filters.config import Causes, FilterConfig, MeasureConfig
from stages.filters.measure import VERSION, measure

__all__ = ["FILTERS", "VERSION", "Causes", "Filter", "FilterConfig", "MeasureConfig", "measure", "parse"]


class Filter(NamedTuple):
    """One filter: thresholds over the metrics of a family."""

    config: type[FilterConfig]
    family: str
    causes: tuple[str, ...]
    """All causes `decide` returns, in the order of its rules."""
    decide: Callable[[pa.RecordBatch, Any], Causes]
    """(metrics, config) -> for every cause, the documents it drops; a rule that is off drops none."""
    measure_config: Callable[[Any], MeasureConfig]
    """The settings of a config that change the metrics of the family."""


FILTERS: dict[str, Filter] = {
    "length": Filter(length.LengthConfig, length.FAMILY, length.CAUSES, length.decide, length.measure_config),
    "gopher_quality": Filter(
        gopher.GopherQualityConfig,
        gopher.QUALITY,
        gopher.QUALITY_CAUSES,
        gopher.decide_quality,
        gopher.quality_measure_config,
    ),
    "gopher_repetition": Filter(
        gopher.GopherRepetitionConfig,
        gopher.REPETITION,
        gopher.REPETITION_CAUSES,
        gopher.decide_repetition,
        gopher.repetition_measure_config,
    ),
    "c4": Filter(c4.C4Config, c4.FAMILY, c4.CAUSES, c4.decide, c4.measure_config),
    "fineweb": Filter(fineweb.FineWebConfig, fineweb.FAMILY, fineweb.CAUSES, fineweb.decide, fineweb.measure_config),
}
"""Filters by the name that a corpus spec uses."""


def _nearest(name: str, valid: Iterable[str]) -> str:
    known = list(valid)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"choose one of {', '.join(known)}"


def parse(entry: str | Mapping[str, Any]) -> tuple[str, FilterConfig]:
    """A filter entry of a corpus spec: a name, or a mapping of one name to the thresholds that differ from
    the defaults.

    Raises `UserError` on an unknown filter or key, with the nearest valid one, and on a value out of range.
    """
    if isinstance(entry, str):
        name, settings = entry, None
    elif isinstance(entry, Mapping) and len(entry) == 1:
        ((name, settings),) = entry.items()
    else:
        raise UserError(f"filter {entry!r}: write a name, or one name with its thresholds")
    if name not in FILTERS:
        raise UserError(f"filter {name!r} does not exist: {_nearest(str(name), FILTERS)}")
    if settings is not None and not isinstance(settings, Mapping):
        raise UserError(f"filter {name}: {settings!r} is no mapping of thresholds: write {{{name}: {{key: value}}}}")
    config = FILTERS[name].config
    for key in settings or {}:
        if key not in config.model_fields:
            raise UserError(f"filter {name}: unknown key {key!r}: {_nearest(str(key), config.model_fields)}")
    try:
        return name, config.model_validate(settings or {})
    except ValidationError as error:
        problems = "; ".join(
            ": ".join(filter(None, (".".join(map(str, problem["loc"])), problem["msg"]))) for problem in error.errors()
        )
        raise UserError(f"filter {name}: {problems}; correct the thresholds in the corpus spec") from None
