"""`python -m benchmarks.orders`: training orders side by side; writes docs/orders.md and results/orders.json."""

from collections.abc import Callable, Iterable
from fractions import Fraction
from pathlib import Path

import numpy as np
from numba import njit
from numpy.typing import NDArray

from benchmarks.orders_page import Rounding, page
from benchmarks.published import SEQUENCE_LENGTH, exact, marin_counts, phase_sequences, read_cells
from benchmarks.report import Row, write
from mixer.apportion import apportion
from mixer.order import Order

PAGE = Path(__file__).parent.parent / "docs" / "orders.md"
# Sequences in a block of the Marin run, and Levanter's default.
BLOCK = 49_152
DEFAULT_BLOCK = 2_048
DRAWS = 10 * DEFAULT_BLOCK
DOMAINS = (2, 10, 100, 200)
REPETITIONS = 30
BLOCK_ENDS = (1, 10, 100, 1000)


def naive_sum(values: Iterable[float]) -> float:
    """What `sum` does up to Python 3.11: add in turn, round every time."""
    total = 0.0
    for value in values:
        total += value
    return total


def compensated_sum(values: Iterable[float]) -> float:
    """What `sum` does since Python 3.12: the rounding errors are added up too (Neumaier 1974)."""
    total = error = 0.0
    for value in values:
        new = total + value
        error += (total - new) + value if abs(total) >= abs(value) else (value - new) + total
        total = new
    return total + error


SUMS: dict[str, Callable[[Iterable[float]], float]] = {"3.11": naive_sum, "3.12": compensated_sum}


def block_quotas(weights: dict[str, float], total: float, block: int = BLOCK) -> tuple[dict[str, int], str, int]:
    """Sequences of every domain in a block as Levanter plans them, and who gets the rest, how many.

    Models marin-community/marin lib/levanter/src/levanter/data/mixture.py at 071105ad
    (`_normalize_weights`, `_compute_expected_counts_per_block`): weight / total * block in floats, cut to an integer;
    what is missing from the block goes to the largest, the first of equals.
    """
    counts = {name: int(weight / total * block) for name, weight in weights.items() if weight > 0}
    largest = max(counts, key=lambda name: counts[name])
    rest = block - sum(counts.values())
    counts[largest] += rest
    return counts, largest, rest


def distance(counts: dict[str, int], shares: dict[str, Fraction]) -> float:
    """L1 distance of achieved shares from planned ones."""
    total = sum(counts.values())
    return float(sum(abs(Fraction(counts.get(name, 0), total) - share) for name, share in shares.items()))


def marin_rounding(rows: list[dict[str, str]], order: Order) -> list[Rounding]:
    """What block rounding and our order make of each phase of the Marin run."""
    found = []
    start = 0
    for phase, (name, sequences) in enumerate(phase_sequences().items()):
        weights = {row["cell"]: float(row[name]) for row in rows}
        whole = sum(exact(row[name]) for row in rows)
        shares = {row["cell"]: exact(row[name]) / whole for row in rows}
        tokens = sequences * SEQUENCE_LENGTH
        totals = {version: add(weights.values()) for version, add in SUMS.items()}
        quotas = {version: block_quotas(weights, total) for version, total in totals.items()}
        dropped = {v: [c for c in shares if shares[c] and not q[0][c]] for v, q in quotas.items()}
        ends = {}
        emitted = np.zeros(len(rows), np.int64)
        for position, domains, _ in order.blocks(BLOCK, start, start + max(BLOCK_ENDS) * BLOCK):
            emitted += np.bincount(domains, minlength=len(rows))
            block = (position - start) // BLOCK + 1
            if block in BLOCK_ENDS:
                ends[block] = distance(dict(zip(order.names, emitted.tolist(), strict=True)), shares)
        planned = dict(zip(order.names, order.counts[phase].tolist(), strict=True))
        found.append(
            Rounding(
                name=name,
                sequences=sequences,
                shares=shares,
                totals=totals,
                quotas={v: q[0] for v, q in quotas.items()},
                rest={v: (q[1], q[2]) for v, q in quotas.items()},
                dropped=dropped,
                dropped_tokens={v: float(sum(shares[c] for c in cells) * tokens) for v, cells in dropped.items()},
                distance={v: distance(q[0], shares) for v, q in quotas.items()},
                our_distance={**ends, sequences // BLOCK: distance(planned, shares)},
                planned=planned,
            )
        )
        start += sequences
    return found


def key_orders(rows: list[dict[str, str]]) -> list[tuple[str, str, float, int]]:
    """Quotas of Python 3.11 that differ from those of 3.12, by order of the keys: (keys, phase, total, quotas)."""

    def path(cell: str) -> str:
        return f"cluster={int(cell[1:3])}/quality={cell[4]}"

    found = []
    for name in phase_sequences():
        weights = {row["cell"]: float(row[name]) for row in rows}
        keys = {
            "by cell": sorted(weights),
            "by cell, reversed": sorted(weights, reverse=True),
            "by path in the store": sorted(weights, key=path),
            "by falling weight": sorted(weights, key=lambda cell: -weights[cell]),
        }
        for label, cells in keys.items():
            ordered = {cell: weights[cell] for cell in cells}
            total = naive_sum(ordered.values())
            old, _, _ = block_quotas(ordered, total)
            new, _, _ = block_quotas(ordered, compensated_sum(ordered.values()))
            found.append((label, name, total, sum(old[cell] != new[cell] for cell in old)))
    return found


@njit(cache=True)
def greedy(weights, draws):  # type: ignore[no-untyped-def]
    """Megatron-LM, megatron/core/datasets/helpers.cpp: always the largest deficit, ties to the first."""
    out = np.empty(draws, np.int16)
    emitted = np.zeros(len(weights), np.int64)
    for i in range(draws):
        best, chosen = -np.inf, 0
        for d in range(len(weights)):
            deficit = weights[d] * max(i, 1) - emitted[d]
            if deficit > best:
                best, chosen = deficit, d
        out[i] = chosen
        emitted[chosen] += 1
    return out


@njit(cache=True)
def nested_floors(proportions, draws):  # type: ignore[no-untyped-def]
    """Grain, transformations/mix.py: a position is peeled, domain by domain, by floors of integer proportions.

    Of the positions left, a domain of proportion p out of r still to place takes those at which
    floor(k * (r - p) / r) stands still.
    """
    out = np.empty(draws, np.int16)
    for position in range(draws):
        left = proportions.sum()
        at, following = position, position + 1
        for d in range(len(proportions)):
            rest = left - proportions[d]
            next_at, next_following = at * rest // left, following * rest // left
            if next_at == next_following:
                out[position] = d
                break
            left, at, following = rest, next_at, next_following
    return out


@njit(cache=True)
def worst_lag(domains, parts):  # type: ignore[no-untyped-def]
    """Greatest |emitted * whole - part * t| of any domain at any prefix t; `parts` (int64) sum to the whole.

    All products stay below 64 bits for 20,480 positions and parts up to 2^31.
    """
    whole = parts.sum()
    emitted = np.zeros(len(parts), np.int64)
    worst = np.int64(0)
    for i in range(len(domains)):
        emitted[domains[i]] += 1
        for d in range(len(parts)):
            worst = max(worst, abs(emitted[d] * whole - parts[d] * (i + 1)))
    return worst


def peer_distances(counts: NDArray[np.int64], rng: np.random.Generator) -> dict[str, float]:
    """Worst distance from target of each system, for domains that are planned `counts` (positive, int64) sequences."""
    draws = int(counts.sum())
    weights = counts / draws
    names = [f"d{i:05}" for i in range(len(counts))]
    quotas, _, _ = block_quotas(dict(zip(names, weights.tolist(), strict=True)), 1.0, DEFAULT_BLOCK)
    block = np.repeat(np.arange(len(counts), dtype=np.int16), list(quotas.values()))
    # Grain scales the smallest weight to 100 and cuts the others to integers.
    proportions = (weights * (100 / weights.min())).astype(np.int64)
    floors = nested_floors(proportions, draws)
    orders = {
        "mixer": Order(names, counts[None, :]).domains(0, draws),
        "Megatron": greedy(weights, draws),
        "Grain": floors,
        "Levanter": np.concatenate([rng.permutation(block) for _ in range(draws // DEFAULT_BLOCK)]),
        "multinomial": rng.choice(len(counts), size=draws, p=weights).astype(np.int16),
    }
    found = {name: int(worst_lag(order, counts)) / draws for name, order in orders.items()}
    found["Grain, of its integers"] = int(worst_lag(floors, proportions)) / int(proportions.sum())
    return found


def compare_peers() -> dict[str, dict[int, float]]:
    """Worst distance from a target at any prefix, in sequences, of each order by number of domains."""
    found: dict[str, dict[int, float]] = {}
    for domains in DOMAINS:
        rng = np.random.default_rng(domains)
        for _ in range(REPETITIONS):
            weights = {f"d{i:05}": Fraction(w) for i, w in enumerate(rng.dirichlet(np.ones(domains)).tolist())}
            counts = 1 + np.array(list(apportion(DRAWS - domains, weights).values()), np.int64)
            for name, worst in peer_distances(counts, rng).items():
                by_domains = found.setdefault(name, {})
                by_domains[domains] = max(by_domains.get(domains, 0.0), worst)
    return found


def main() -> None:
    """Measure, and write the page and the results."""
    rows = read_cells("harrier")
    counts = marin_counts(rows)
    order = Order([row["cell"] for row in rows], counts)
    phases = marin_rounding(rows, order)
    peers = compare_peers()
    keys = key_orders(rows)
    PAGE.write_text(page(phases, keys, peers, BLOCK, DRAWS, REPETITIONS))
    result = []
    for phase in phases:
        missing = sum(1 for cell, share in phase.shares.items() if share and not phase.planned[cell])
        result += [
            Row(f"{phase.name}: cells dropped by mixer", missing, "cells", 0, False),
            Row(
                f"{phase.name}: L1 from target at the end, mixer",
                phase.our_distance[phase.sequences // BLOCK] * 1e6,
                "1e-6",
            ),
        ]
        for version in SUMS:
            result += [
                Row(f"{phase.name}: cells dropped by blocks, Python {version}", len(phase.dropped[version]), "cells"),
                Row(f"{phase.name}: planned for them, Python {version}", phase.dropped_tokens[version] / 1e6, "Mtok"),
                Row(f"{phase.name}: unasked in a block, Python {version}", phase.rest[version][1], "seqs"),
                Row(f"{phase.name}: L1 from target, blocks, Python {version}", phase.distance[version] * 1e6, "1e-6"),
            ]
        changed = sum(phase.quotas["3.11"][c] != q for c, q in phase.quotas["3.12"].items())
        result.append(Row(f"{phase.name}: quotas that depend on the Python version", changed, "cells"))
    for name, by_domains in peers.items():
        bar = 1.0 if name == "mixer" else None
        result += [Row(f"{d} domains: {name}, worst at a prefix", v, "seqs", bar, False) for d, v in by_domains.items()]
    write("orders", result, block=BLOCK, draws=DRAWS, repetitions=REPETITIONS)
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
