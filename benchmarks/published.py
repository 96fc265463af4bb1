"""The tables of published runs as printed, and an exact check of an order at every prefix of a phase."""

import csv
import time
from decimal import Decimal
from fractions import Fraction
from math import isqrt
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from mixer.apportion import apportion
from mixer.order import Order

CELLS = Path(__file__).parent.parent / "mixtures" / "cells"
SEQUENCE_LENGTH = 4096
BATCH = 11_264
# First step of every phase of the Marin run, and its end.
STEPS = {"initial": (0, 108_000), "main": (108_000, 312_192), "cooldown": (312_192, 390_251)}
BLOCK = 1 << 20
LONGEST_PHASE = isqrt(2**63 - 1)


def read_cells(name: str) -> list[dict[str, str]]:
    """The rows of `mixtures/cells/NAME.csv` as printed, without the comments on its head."""
    with (CELLS / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def exact(text: str) -> Fraction:
    """The value of a printed decimal."""
    return Fraction(Decimal(text))


def phase_sequences() -> dict[str, int]:
    """Sequences of each phase of the Marin run."""
    return {phase: (stop - start) * BATCH for phase, (start, stop) in STEPS.items()}


def marin_counts(rows: list[dict[str, str]]) -> NDArray[np.int64]:
    """Planned sequences of the Marin run: int64[3 phases, 200 cells], cells in the order of `rows`."""
    planned = [
        apportion(sequences, {row["cell"]: exact(row[phase]) for row in rows})
        for phase, sequences in phase_sequences().items()
    ]
    return np.array([list(counts.values()) for counts in planned], np.int64)


@njit(cache=True, nogil=True)
def _follow(domains, start, counts, length, emitted, worst):  # type: ignore[no-untyped-def]
    """Move `emitted` past the slots from `start` on and raise `worst` to the greatest distance from the targets.

    Distances are `emitted * length - count * slots`, in units of a sequence divided by `length`. A domain's distance
    falls from slot to slot while others are served and rises when it is served itself, so its extremes are just
    before and just after its own slots: two comparisons a slot cover every domain at every prefix.
    """
    most = worst[0]
    for i in range(domains.shape[0]):
        d = domains[i]
        slot = start + i
        before = emitted[d] * length - counts[d] * slot
        after = before + length - counts[d]
        emitted[d] += 1
        most = max(most, -before, after)
    worst[0] = most


class Checked(NamedTuple):
    """What a look at one phase found: `worst` is in sequences, exact."""

    positions: int
    worst: Fraction
    order_seconds: float
    check_seconds: float


def check_phase(order: Order, phase: int, positions: int | None = None) -> Checked:
    """Read a phase of `order` (only its first `positions` if given) and check it at every prefix.

    Raises RuntimeError when a domain's tally disagrees with the order's own or, at the end of the phase, with the
    plan, and ValueError for a phase of more than 3,037,000,499 sequences, whose products would leave 64 bits.
    """
    counts = order.counts[phase]
    length = int(counts.sum())
    if length > LONGEST_PHASE:
        raise ValueError(f"phase {phase} has {length} sequences; the check is exact up to {LONGEST_PHASE}")
    first = int(order.counts[:phase].sum())
    stop = first + min(length, positions or length)
    earlier = order.counts[:phase].sum(axis=0)
    emitted = np.zeros(len(counts), np.int64)
    worst = np.zeros(1, np.int64)
    _follow(np.empty(0, np.int16), 0, counts, length, emitted, worst)
    order_seconds = check_seconds = 0.0
    begun = time.perf_counter()
    for position, domains, seen in order.blocks(BLOCK, first, stop):
        read = time.perf_counter()
        if not np.array_equal(seen, earlier + emitted):
            raise RuntimeError(f"position {position}: the order's tally is not what it emitted")
        _follow(domains, position - first, counts, length, emitted, worst)
        done = time.perf_counter()
        order_seconds += read - begun
        check_seconds += done - read
        begun = done
    slots = stop - first
    behind = max(int(c) * slots - int(e) * length for c, e in zip(counts, emitted, strict=True))
    if slots == length and not np.array_equal(emitted, counts):
        raise RuntimeError(f"phase {phase}: the totals at its end are not those of the plan")
    return Checked(slots, Fraction(max(int(worst[0]), behind), length), order_seconds, check_seconds)
