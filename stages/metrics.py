"""The `metrics` stage: what the filters measure, as columns. Thresholds play no part, so changing one costs no pass
over the text; see `stages.filtering` for the decisions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from stages.columns import Columns
from stages.filters import FILTERS, MeasureConfig, length, measure
from stages.filters import VERSION as MEASURE_VERSION
from stages.kernels.words import WORDS
from stages.recipe import Recipe

VERSION = 1


def measure_configs(filters: Sequence[tuple[str, Any]]) -> dict[str, MeasureConfig]:
    """What a source's filters need measured, by family; lengths are always measured."""
    needed = {FILTERS[name].family: FILTERS[name].measure_config(config) for name, config in filters}
    return {length.FAMILY: length.LengthMeasure(), **needed}


@dataclass(frozen=True)
class Metrics:
    """Column stage: `family.metric` columns for the measuring configs of a source's filters."""

    source: str
    documents: str
    families: Mapping[str, MeasureConfig]
    has_data: bool = False
    reads: Sequence[str] = ("documents",)

    @cached_property
    def recipe(self) -> Recipe:
        families = {name: config.model_dump(mode="json") for name, config in self.families.items()}
        config = {"words": WORDS, "measure": MEASURE_VERSION, "families": families}
        return Recipe("metrics", VERSION, self.source, config, {"documents": self.documents})

    @cached_property
    def schema(self) -> pa.Schema:
        return measure(pa.array([], pa.large_string()), self.families).schema

    def columns(self, inputs: Mapping[str, pa.RecordBatch]) -> Columns:
        return Columns(measure(inputs["documents"].column("text"), self.families))
