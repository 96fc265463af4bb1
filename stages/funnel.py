"""Counting what comes in, what stays, and what goes by which cause; nothing may be lost between the three.

A document can fail several rules. It is counted once under its first cause (the rules are tried in the order of the
stages and of the spec) and once under every cause, so the first causes add up and the others can be compared.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stages.errors import UserError


@dataclass(frozen=True)
class Count:
    """Documents, and the UTF-8 bytes of their normalized text."""

    documents: int = 0
    bytes: int = 0

    def __add__(self, other: "Count") -> "Count":
        return Count(self.documents + other.documents, self.bytes + other.bytes)

    def to_json(self) -> dict[str, int]:
        return {"documents": self.documents, "bytes": self.bytes}


@dataclass(frozen=True)
class Funnel:
    """What one stage did to a set of documents."""

    entered: Count = Count()
    kept: Count = Count()
    first: Mapping[str, Count] = field(default_factory=dict)
    every: Mapping[str, Count] = field(default_factory=dict)

    def __add__(self, other: "Funnel") -> "Funnel":
        return Funnel(
            self.entered + other.entered,
            self.kept + other.kept,
            add_counts(self.first, other.first),
            add_counts(self.every, other.every),
        )

    def check(self, where: str) -> None:
        """Raise UserError naming `where` unless entered = kept + the first causes, in documents and in bytes."""
        dropped = sum(self.first.values(), Count())
        if self.entered != self.kept + dropped:
            raise UserError(
                f"{where}: documents went missing: {self.entered.documents} came in ({self.entered.bytes} bytes), "
                f"{self.kept.documents} were kept ({self.kept.bytes}) and {dropped.documents} dropped "
                f"({dropped.bytes}); the build stops here, because its counts cannot be trusted"
            )

    def to_json(self) -> dict[str, Any]:
        return {
            "in": self.entered.to_json(),
            "kept": self.kept.to_json(),
            "dropped": {k: v.to_json() for k, v in sorted(self.first.items())},
            "every_cause": {k: v.to_json() for k, v in sorted(self.every.items())},
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "Funnel":
        return Funnel(
            Count(**data["in"]),
            Count(**data["kept"]),
            {k: Count(**v) for k, v in data["dropped"].items()},
            {k: Count(**v) for k, v in data["every_cause"].items()},
        )


def add_counts(a: Mapping[str, Count], b: Mapping[str, Count]) -> dict[str, Count]:
    """Both sets of causes, summed by cause."""
    return {k: a.get(k, Count()) + b.get(k, Count()) for k in {**a, **b}}


def count_causes(causes: Mapping[str, np.ndarray], sizes: np.ndarray) -> tuple[Funnel, np.ndarray]:
    """Funnel of one batch from its boolean cause columns (in the order the causes are tried) and its text sizes in
    bytes (int64); also the mask of the documents that no cause drops. Every cause gets a count, zero included."""
    open_ = np.ones(len(sizes), bool)
    first, every = {}, {}
    for cause, mask in causes.items():
        hit = open_ & mask
        first[cause] = _count(hit, sizes)
        every[cause] = _count(mask, sizes)
        open_ &= ~mask
    return Funnel(Count(len(sizes), int(sizes.sum())), _count(open_, sizes), first, every), open_


def _count(mask: np.ndarray, sizes: np.ndarray) -> Count:
    return Count(int(mask.sum()), int(sizes[mask].sum()))
