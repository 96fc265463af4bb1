"""The `filters` stage: the decisions of a source's own filters, from the columns that `metrics` measured.

One boolean column a cause, all of them recorded, and `kept`, which is true where none holds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from stages.columns import Columns
from stages.filters import FILTERS
from stages.funnel import count_causes
from stages.recipe import Recipe

VERSION = 1


@dataclass(frozen=True)
class Filtering:
    """Column stage: causes and `kept` for the filters of a source, in the order in which the spec lists them."""

    source: str
    metrics: str
    filters: Sequence[tuple[str, Any]]
    has_data: bool = False
    reads: Sequence[str] = ("documents", "metrics")

    @cached_property
    def recipe(self) -> Recipe:
        config = [[name, config.model_dump(mode="json")] for name, config in self.filters]
        return Recipe("filters", VERSION, self.source, {"filters": config}, {"metrics": self.metrics})

    @property
    def causes(self) -> list[str]:
        """The causes for which this source's filters may drop a document, in the order they are tried."""
        return [cause for name, _ in self.filters for cause in FILTERS[name].causes]

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(name, pa.bool_(), nullable=False) for name in (*self.causes, "kept")])

    def columns(self, inputs: Mapping[str, pa.RecordBatch]) -> Columns:
        masks: dict[str, np.ndarray] = {}
        for name, config in self.filters:
            masks |= FILTERS[name].decide(inputs["metrics"], config)
        sizes = inputs["documents"].column("bytes").to_numpy()
        funnel, kept = count_causes({c: masks[c] for c in self.causes}, sizes)
        columns = [pa.array(masks[c]) for c in self.causes] + [pa.array(kept)]
        return Columns(pa.RecordBatch.from_arrays(columns, schema=self.schema), funnel=funnel)
