"""`python -m benchmarks.published`: the order of the Marin 535B-A23B run, checked at every one of its prefixes."""

import argparse
import csv
import resource
import statistics
import time
from decimal import Decimal
from fractions import Fraction
from math import isqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from benchmarks.report import Row, write
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


def _locate_milliseconds(order: Order, last: int, times: int) -> list[float]:
    positions = np.random.default_rng(0).integers(0, last, times)
    spent = []
    for position in positions.tolist():
        begun = time.perf_counter()
        order.locate(position)
        spent.append((time.perf_counter() - begun) * 1e3)
    return sorted(spent)


def main() -> None:
    """Check the order and write `results/published.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--whole", action="store_true", help="all 4.4 billion positions (some minutes)")
    parser.add_argument("--sample", type=int, default=60_000_000, help="positions to check, a third in each phase")
    options = parser.parse_args()
    begun = time.perf_counter()
    rows = read_cells("harrier")
    counts = marin_counts(rows)
    plan_seconds = time.perf_counter() - begun
    order = Order([row["cell"] for row in rows], counts)
    order.domains(0, 1)
    found = []
    for phase, name in enumerate(STEPS):
        found.append(check_phase(order, phase, None if options.whole else options.sample // len(STEPS)))
        f = found[-1]
        print(f"{name}: {f.positions:,} positions, worst {float(f.worst):.6f}, {f.order_seconds:.0f} s", flush=True)
    positions = sum(f.positions for f in found)
    order_seconds = sum(f.order_seconds for f in found)
    check_seconds = sum(f.check_seconds for f in found)
    checkpoints = order.checkpoints() if options.whole else np.empty(0, np.uint8)
    # Without --whole only the start of the run has checkpoints.
    located = _locate_milliseconds(order, len(order) if options.whole else found[0].positions, 500)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    facts: dict[str, Any] = {"positions": positions, "run_positions": len(order), "domains": len(rows)}
    result = [
        Row("worst distance from a target at any prefix", float(max(f.worst for f in found)), "seqs", 1.0, False),
        Row("check against order", order_seconds / check_seconds, "x", 1.0),
        Row("positions checked", positions, "seqs"),
        Row("order", positions / order_seconds / 1e6, "M/s"),
        Row("check", positions / check_seconds / 1e6, "M/s"),
        Row("order, seconds", order_seconds, "s"),
        Row("check, seconds", check_seconds, "s"),
        Row("plan of 200 cells in 3 phases", plan_seconds * 1e3, "ms"),
        Row("locate, median", statistics.median(located), "ms"),
        Row("locate, 99th percentile", located[len(located) * 99 // 100], "ms"),
        Row("checkpoints of the run", checkpoints.nbytes / 1e6, "MB"),
        Row("peak memory", peak / 1e6, "MB"),
    ]
    write("published" if options.whole else "published_sample", result, **facts)


if __name__ == "__main__":
    main()
