"""`python -m benchmarks.mixture`: planning, ordering and reading a mixture; writes results/mixture.json."""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

import mixer.reader
from benchmarks import watched
from benchmarks.published import check_phase
from benchmarks.report import Row, write
from mixer.build import load_table_plan
from mixer.order import Order
from mixer.plan import Run, plan_run
from stages.quantity import parse_amount

ROOT = Path(__file__).parent.parent
MIXTURES = ROOT / "mixtures"
PLANS = 3
BATCH = 64
READ_SECONDS = 5.0


class Access(NamedTuple):
    """Milliseconds of one random access, by the clock on the wall and by the processor: median and 99th percentile."""

    median: float
    last: float
    processor_last: float


def plan_process() -> list[Row]:
    """`mixer plan` of the Marin run as a whole process: start, imports, plan, table."""
    command = [sys.executable, "-m", "mixer", "plan", str(MIXTURES / "harrier.yaml")]
    runs = [watched.run(command) for _ in range(PLANS)]
    return [
        Row("plan harrier, whole process", statistics.median(seconds for seconds, _, _ in runs), "s", 5.0, False),
        Row("plan harrier, peak memory", max(peak for _, peak, _ in runs) / 1e9, "GB", 0.5, False),
    ]


def harrier(budget: int | None) -> Run:
    """The Marin run, or one of its mixture with another budget in tokens."""
    domains, run, supply = load_table_plan(MIXTURES / "harrier.yaml")
    return run if budget is None else plan_run(domains, supply, budget)


def order_rows(run: Run, accesses: int) -> list[Row]:
    """Read the whole order once, checked at every prefix, then look up random positions with its checkpoints loaded.

    `check_phase` raises RuntimeError when the order does not hold the plan.
    """
    plan = run.segments[0].plan
    order = plan.order()
    order.domains(0, 1)
    checked = []
    for number, phase in enumerate(plan.phases):
        found = check_phase(order, number)
        checked.append(found)
        print(f"{phase.name}: {found.positions:,} prefixes, worst {float(found.worst):.6f}", flush=True)
    positions, seconds = sum(c.positions for c in checked), sum(c.order_seconds for c in checked)
    arrays = order.to_arrays()
    begun = time.perf_counter()
    loaded = Order.from_arrays(plan.domains, plan.counts, arrays)
    load_seconds = time.perf_counter() - begun
    access = random_access(loaded.locate, len(loaded), accesses)
    return [
        Row("worst distance from a target at any prefix", float(max(c.worst for c in checked)), "seqs", 1.0, False),
        Row("prefixes checked", positions, "seqs"),
        Row("order, one core", positions / seconds / 1e6, "Mseq/s", 8.0),
        Row("checkpoints, size", arrays["checkpoints"].nbytes / 1e6, "MB"),
        Row("checkpoints, loading", load_seconds * 1e3, "ms"),
        *access_rows("place of a position", access, 5.0),
    ]


def random_access(get: Callable[[int], object], length: int, times: int) -> Access:
    """Time single accesses to random positions; a first one is not counted."""
    get(0)
    wall, processor = [], []
    for position in np.random.default_rng(0).integers(0, length, times).tolist():
        begun, worked = time.perf_counter(), time.process_time()
        get(position)
        processor.append((time.process_time() - worked) * 1e3)
        wall.append((time.perf_counter() - begun) * 1e3)
    last = times * 99 // 100
    return Access(statistics.median(wall), sorted(wall)[last], sorted(processor)[last])


def access_rows(what: str, access: Access, bar: float | None = None) -> list[Row]:
    """The rows of a random access, with the bar on the 99th percentile of the wall clock."""
    return [
        Row(f"{what}, 99th percentile", access.last, "ms", bar, False),
        Row(f"{what}, 99th percentile of processor time", access.processor_last, "ms"),
        Row(f"{what}, median", access.median, "ms"),
    ]


def built_demo() -> Path:
    """The folder of the demo mixture; builds what is missing of it."""
    command = [sys.executable, "-m", "mixer", "build", str(MIXTURES / "demo.yaml"), "--out", str(ROOT / "build")]
    watched.run(command)
    return ROOT / "build" / "latest" / "demo"


def reading_rows(demo: Path, source: Literal["store", "shards"], accesses: int) -> list[Row]:
    """Read all batches of the demo again and again on one thread, then single random sequences.

    Every pass opens the demo anew, so that it profits from the one before by the page cache alone. The fastest pass
    counts: whoever else uses the machine can only slow one down.
    """
    rates: list[float] = []
    begun = time.perf_counter()
    while len(rates) < 5 or time.perf_counter() - begun < READ_SECONDS:
        data = mixer.reader.open(demo, source)
        tokens, started = 0, time.perf_counter()
        for batch in data.batches(BATCH):
            tokens += batch["input_ids"].size
        rates.append(tokens / (time.perf_counter() - started) / 1e6)
    access = random_access(data.__getitem__, len(data), accesses)
    return [
        Row(f"demo from the {source}, one core", max(rates), "Mtok/s", 50.0),
        Row(f"demo from the {source}, median pass", statistics.median(rates), "Mtok/s"),
        *access_rows(f"sequence of the demo from the {source}", access),
    ]


def main() -> None:
    """Measure, and write `results/mixture.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=parse_amount, help="tokens of a shorter run, for a try")
    parser.add_argument("--accesses", type=int, default=5000, help="random positions")
    options = parser.parse_args()
    load = os.getloadavg()
    run = harrier(options.budget)
    demo = built_demo()
    rows = plan_process()
    for source in ("store", "shards"):
        rows += reading_rows(demo, source, options.accesses)
    rows += order_rows(run, options.accesses)
    facts: dict[str, Any] = {
        "domains": len(run.domains),
        "sequences": run.sequences,
        "batch": BATCH,
        "accesses": options.accesses,
        "load_before": [round(x, 2) for x in load],
        "load_after": [round(x, 2) for x in os.getloadavg()],
    }
    write("mixture" if options.budget is None else "mixture_sample", rows, **facts)


if __name__ == "__main__":
    main()
