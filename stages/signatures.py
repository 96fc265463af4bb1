"""The `signatures` stage: what near-duplicate search needs of a document, without looking at any other.

A document is a set of shingles, by the policy of its source: runs of words for natural text, lines for code. 126
MinHash values of the set are cut into 18 bands of 7; documents that agree in a band may be near duplicates. The band
keys follow from the text and the policy alone, so another source, filter or threshold recomputes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, field_validator

from stages.columns import Columns
from stages.kernels.minhash import VERSION as MINHASH_VERSION
from stages.kernels.minhash import band_keys, signatures
from stages.kernels.xxh3 import key
from stages.normalize import text_buffers
from stages.quantity import Share
from stages.recipe import Recipe
from stages.similarity import LARGEST_DENOMINATOR
from stages.specfile import Spec

VERSION = 1
BANDS, ROWS = 18, 7
SCHEMA = pa.schema([pa.field("shingles", pa.int64(), nullable=False)])


class NearDuplicates(Spec):
    """A source's policy for near duplicates. A document is removed when its similarity to a kept one reaches
    `threshold`: Jaccard (shared shingles of all), or containment (shared shingles of its own).

    `shingle: words` takes runs of `size` words, `lines` runs of `size` normalized lines. A document of fewer than
    `min_shingles` is not judged. `shingle: none` leaves the whole source alone.
    """

    shingle: Literal["words", "lines", "none"] = "words"
    size: int = Field(5, ge=1, le=32)
    measure: Literal["jaccard", "containment"] = "jaccard"
    threshold: Share = Field(Fraction(4, 5), validate_default=True)
    min_shingles: int = Field(20, ge=1)

    @field_validator("threshold")
    @classmethod
    def _in_range(cls, threshold: Fraction) -> Fraction:
        if not 0 < threshold <= 1 or threshold.denominator > LARGEST_DENOMINATOR:
            raise ValueError(f"{threshold} is no threshold; write a share above 0 and up to 1, of six digits at most")
        return threshold

    @property
    def tag(self) -> int:
        """Only documents of one tag are compared."""
        return key(self.shingle, self.size)


@dataclass(frozen=True)
class Signatures:
    """Column stage: `shingles` (their number, int64), and in the `.bin` file the band keys, uint64 [rows, 18]."""

    source: str
    documents: str
    policy: NearDuplicates
    has_data: bool = True
    reads: Sequence[str] = ("documents",)
    schema: pa.Schema = SCHEMA

    @cached_property
    def recipe(self) -> Recipe:
        config = {
            "shingle": self.policy.shingle,
            "size": self.policy.size,
            "bands": BANDS,
            "rows": ROWS,
            "minhash": MINHASH_VERSION,
        }
        return Recipe("signatures", VERSION, self.source, config, {"documents": self.documents})

    def columns(self, inputs: Mapping[str, pa.RecordBatch]) -> Columns:
        texts = inputs["documents"].column("text")
        if self.policy.shingle == "none":
            counts, keys = np.zeros(len(texts), np.int64), np.zeros((len(texts), BANDS), np.uint64)
        else:
            data, offsets = text_buffers(texts)
            values, counts = signatures(data, offsets, self.policy.shingle, self.policy.size, BANDS * ROWS)
            keys = band_keys(values, BANDS, ROWS, self.policy.tag)
        batch = pa.RecordBatch.from_arrays([pa.array(counts)], schema=self.schema)
        return Columns(batch, data=keys.astype("<u8").reshape(-1))
