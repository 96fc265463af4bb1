"""What all filters share: frozen configs, ratios, and a threshold applied to a column."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import BaseModel, ConfigDict

Values = npt.NDArray[np.int64] | npt.NDArray[np.float64]
Counts = Mapping[str, npt.NDArray[np.int64]]
"""Raw counts by the names in `stages.kernels.document.COUNTERS`, one entry a document."""
Mask = npt.NDArray[np.bool_]
Causes = dict[str, Mask]
"""For every cause of a filter, which documents it drops."""


class FilterConfig(BaseModel):
    """Thresholds of one filter. None turns a rule off; numbers may be written as decimal strings."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class MeasureConfig(BaseModel):
    """The settings of one family that change what is measured; two equal ones can share a measurement."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def ratio(part: npt.NDArray[np.int64], whole: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """part / whole, float64, correctly rounded below 2^53; a whole of 0 counts as 1, so that 0 / 0 is 0."""
    return np.asarray(part / np.maximum(whole, 1), np.float64)


def column(metrics: pa.RecordBatch, name: str) -> Values:
    """The column `name` of a measurement as a NumPy array, without a copy; raises KeyError where it is
    absent.
    """
    values: Values = metrics.column(name).to_numpy(zero_copy_only=True)
    return values


def above(values: Values, limit: float | None) -> Mask:
    """Where `values` exceed `limit`; nowhere when it is None."""
    return np.zeros(len(values), np.bool_) if limit is None else np.asarray(values > limit)


def below(values: Values, limit: float | None) -> Mask:
    """Where `values` are under `limit`; nowhere when it is None."""
    return np.zeros(len(values), np.bool_) if limit is None else np.asarray(values < limit)
