"""What is published about real training mixtures, recomputed with exact fractions from the tables in mixtures/cells."""

import json
import re
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks import orders, published
from benchmarks.published import CELLS, exact, read_cells
from mixer.apportion import apportion
from mixer.order import Order

SHARED = Path(__file__).parents[3] / "shared" / "data"
HARRIER = read_cells("harrier")
FIT = read_cells("harrier_2026_08_17_1")
PHASES = tuple(published.STEPS)
MILLION, BILLION, TRILLION = 10**6, 10**9, 10**12

# Epochs are in the unit of the print. Budgets are the stated ones.
BUDGETS = {
    "gpt3": 300 * BILLION,
    "mpt_7b": TRILLION,
    "mpt_7b_first_card": TRILLION,
    "mpt_30b": TRILLION,
    "sea_lion_v1": 980 * BILLION,
    "olmo2_dolmino_50b": 50 * BILLION,
    "olmo2_dolmino_100b": 100 * BILLION,
    "olmo2_dolmino_300b": 300 * BILLION,
    "k2_65b": 1300 * BILLION,
    "k2_65b_stage2_partial": 69_400 * MILLION,
    "phi4": 10 * TRILLION,
    "lucie_7b": 3 * TRILLION,
}
DRAWS = {"olmo3_dolma3_mix": 5_930 * BILLION, "olmo3_dolmino_mix": 99_950 * MILLION}

# Rows whose printed epochs differ from weight * budget / tokens, although some value that rounds to the printed
# inputs gives the print: computed, printed.
WITHIN_INPUTS = {
    "gpt3": {"books1": ("2.000", "1.9"), "books2": ("0.436", "0.43"), "wikipedia": ("3.000", "3.4")},
}
# Rows that no rounding of the printed inputs explains: computed, printed.
MISPRINTS = {
    # 22% of 300B is 66B; 2.9 passes over 19B are 55B.
    "gpt3": {"webtext2": ("3.474", "2.9")},
    # The size is printed as 417.99B; the card of MPT-30B prints 2417.99B, which gives 0.136.
    "mpt_7b": {"mc4-3.1.0-english": ("0.789", "0.14")},
    "mpt_7b_first_card": {"mc4-3.1.0-english": ("0.789", "0.14")},
    # The row repeats a multiplier and a draw of stage 1; 2.9% of 69.4B is one pass over 2B.
    "k2_65b_stage2_partial": {"pile-of-law": ("1.006", "0.5")},
    # 200% and 400% of Dolmino Math are more than the printed share of the mix holds.
    "olmo2_dolmino_100b": {"dolmino-math": ("1.636", "2.00")},
    "olmo2_dolmino_300b": {"dolmino-math": ("3.028", "4.00")},
}
# The names of these mixes round their budgets: with the budget on the right, in tokens, the other rows hold.
NOMINAL = {
    "olmo2_dolmino_50b": 51_500 * MILLION,
    "olmo2_dolmino_100b": 102_650 * MILLION,
    "olmo2_dolmino_300b": 301 * BILLION,
}

# Percent of each phase of the Marin run by quality, from 0 to 4.
QUALITY_SHARES = {
    "initial": ("2.35", "11.64", "28.85", "34.52", "22.63"),
    "main": ("3.33", "14.26", "26.87", "32.68", "22.85"),
    "cooldown": ("2.94", "14.68", "22.90", "31.51", "27.97"),
}


def half_unit(printed: str) -> Fraction:
    """Half a unit of the last printed digit."""
    return Fraction(1, 2 * 10 ** len(printed.partition(".")[2]))


def quantity(printed: str) -> tuple[Fraction, Fraction]:
    """Value and half a unit of the last digit of a printed size such as 417.99B."""
    scale = {"M": MILLION, "B": BILLION, "T": TRILLION}.get(printed[-1], 1)
    number = printed.rstrip("MBT")
    return exact(number) * scale, half_unit(number) * scale


def epochs(row: dict[str, str], budget: int | Fraction) -> Fraction:
    return exact(row["weight"]) * budget / int(row["tokens"])


def rounds_to(value: Fraction, printed: str) -> bool:
    return abs(value - exact(printed)) <= half_unit(printed)


def can_round_to(row: dict[str, str], budget: int | Fraction, printed: str) -> bool:
    """Whether some weight and size that round to the printed ones give the printed epochs."""
    weight, weight_half = exact(row["weight"]), half_unit(row["weight"])
    size, size_half = quantity(row["tokens_printed"]) if "tokens_printed" in row else (Fraction(row["tokens"]), 0)
    low = (weight - weight_half) * budget / (size + size_half)
    high = (weight + weight_half) * budget / (size - size_half)
    return low <= exact(printed) + half_unit(printed) and exact(printed) - half_unit(printed) <= high


def marin_sequences() -> dict[str, list[int]]:
    counts = published.marin_counts(HARRIER).T.tolist()
    return {row["cell"]: planned for row, planned in zip(HARRIER, counts, strict=True)}


def marin_epochs() -> dict[str, Fraction]:
    planned = marin_sequences()
    return {
        row["cell"]: Fraction(sum(planned[row["cell"]]) * published.SEQUENCE_LENGTH, int(row["tokens"]))
        for row in HARRIER
    }


def over(passes: dict[str, Fraction], cap: int) -> set[str]:
    return {cell for cell, value in passes.items() if value > cap}


def test_marin_phases_hold_the_published_tokens() -> None:
    sequences = published.phase_sequences()
    assert sum(sequences.values()) == 390_251 * 11_264
    assert {p: n * 4096 for p, n in sequences.items()} == {
        "initial": 4_982_833_152_000,
        "main": 9_420_876_546_048,
        "cooldown": 3_601_434_935_296,
    }
    assert sum(int(row["tokens"]) for row in HARRIER) == 23_106_103_007_622


def test_marin_highest_planned_epochs() -> None:
    passes = marin_epochs()
    highest = sorted(passes, key=lambda cell: -passes[cell])
    assert highest[:2] == ["c27q0", "c13q0"]
    assert rounds_to(passes["c27q0"], "6.741")
    assert rounds_to(passes["c13q0"], "6.737")
    assert rounds_to(passes["c28q4"], "3.08")


def test_marin_mixture_fits_eight_passes_and_two_cells_exceed_six() -> None:
    passes = marin_epochs()
    assert over(passes, 8) == set()
    assert over(passes, 6) == {"c27q0", "c13q0"}


@pytest.mark.parametrize(("phase", "percent"), QUALITY_SHARES.items())
def test_marin_quality_shares_of_a_phase(phase: str, percent: tuple[str, ...]) -> None:
    planned = marin_sequences()
    index = PHASES.index(phase)
    total = sum(counts[index] for counts in planned.values())
    for quality, printed in enumerate(percent):
        share = sum(planned[row["cell"]][index] for row in HARRIER if row["quality"] == str(quality))
        assert rounds_to(Fraction(100 * share, total), printed), (quality, float(Fraction(100 * share, total)))


def test_marin_zero_weights_and_small_cells() -> None:
    planned = marin_sequences()
    for row in HARRIER:
        for phase, count in zip(PHASES, planned[row["cell"]], strict=True):
            assert (count > 0) == (exact(row[phase]) > 0), (row["cell"], phase)
    assert [row["cell"] for row in HARRIER if exact(row["main"]) == 0] == ["c22q0"]
    # Its share of the initial phase is 3e-7: below 1/49152, and still planned in full.
    assert planned["c02q0"][0] == round(exact("0.0000003030303853678395") * 1_216_512_000)


def test_marin_weights_of_main_and_cooldown_stand_for_multiples_of_a_block() -> None:
    for phase in ("main", "cooldown"):
        blocks = [exact(row[phase]) * 49_152 for row in HARRIER]
        assert sum(round(b) for b in blocks) == 49_152
        assert max(abs(b - round(b)) for b in blocks) < Fraction(1, 10**12)


@pytest.mark.parametrize(
    ("column", "total", "highest"),
    [("tokens", 24_917_216_684_457, "1.967"), ("tokens_store_4d2e363d", 23_106_103_007_622, "2.093")],
)
def test_marin_fit_exposure(column: str, total: int, highest: str) -> None:
    sequences = {"pretrain": 15 * TRILLION // 4096, "cooldown": 3_750 * BILLION // 4096}
    planned = {p: apportion(n, {row["cell"]: exact(row[p]) for row in FIT}) for p, n in sequences.items()}
    passes = {
        row["cell"]: Fraction(sum(planned[p][row["cell"]] for p in planned) * 4096, int(row[column])) for row in FIT
    }
    assert sum(int(row[column]) for row in FIT) == total
    assert rounds_to(max(passes.values()), highest)
    assert over(passes, 8) == set()


def test_the_store_of_the_fit_and_of_the_run_agree_between_the_tables() -> None:
    assert [(r["cell"], r["tokens_store_4d2e363d"]) for r in FIT] == [(r["cell"], r["tokens"]) for r in HARRIER]


@pytest.mark.parametrize("name", [n for n in BUDGETS if n not in NOMINAL])
def test_published_epochs(name: str) -> None:
    missed = {row["cell"]: row for row in read_cells(name) if not rounds_to(epochs(row, BUDGETS[name]), row["epochs"])}
    explained = {cell for cell, row in missed.items() if can_round_to(row, BUDGETS[name], row["epochs"])}
    assert explained == WITHIN_INPUTS.get(name, {}).keys()
    assert missed.keys() - explained == MISPRINTS.get(name, {}).keys()
    for cell, (computed, print_) in (WITHIN_INPUTS.get(name, {}) | MISPRINTS.get(name, {})).items():
        assert rounds_to(epochs(missed[cell], BUDGETS[name]), computed)
        assert missed[cell]["epochs"] == print_


@pytest.mark.parametrize("name", NOMINAL)
def test_published_epochs_of_a_mix_with_a_rounded_name(name: str) -> None:
    rows = read_cells(name)
    nominal = {row["cell"] for row in rows if can_round_to(row, BUDGETS[name], row["epochs"])}
    real = {row["cell"] for row in rows if can_round_to(row, NOMINAL[name], row["epochs"])}
    assert {row["cell"] for row in rows} - real == MISPRINTS.get(name, {}).keys()
    assert nominal < real
    for cell, (computed, print_) in MISPRINTS.get(name, {}).items():
        (row,) = [r for r in rows if r["cell"] == cell]
        assert rounds_to(epochs(row, BUDGETS[name]), computed)
        assert row["epochs"] == print_


@pytest.mark.parametrize(("name", "budget"), DRAWS.items())
def test_published_draws_of_a_table_without_epochs(name: str, budget: int) -> None:
    for row in read_cells(name):
        drawn, half = quantity(row["drawn"])
        slack = half_unit(row["weight"]) * budget
        assert abs(exact(row["weight"]) * budget - drawn) <= half + slack, row["cell"]


def test_lucie_epochs_follow_from_its_two_levels_of_weights() -> None:
    # epochs = language_weight * additional_weight * k, with one k for all 138 sources.
    for row in read_cells("lucie_7b"):
        factor = exact(row["language_weight"]) * exact(row["additional_weight"])
        low = (exact(row["epochs"]) - half_unit(row["epochs"])) / factor
        high = (exact(row["epochs"]) + half_unit(row["epochs"])) / factor
        assert low <= Fraction("1.2016") and high >= Fraction("1.2014"), row["cell"]


def test_marin_8b_web_is_read_nearly_once() -> None:
    planned = {"kestrel": 2_700 * BILLION, "ocelot": 1_080 * BILLION}
    (web,) = [row for row in read_cells("marin_8b") if row["cell"] == "dclm-baseline"]
    drawn = sum((exact(web[phase]) * tokens for phase, tokens in planned.items()), Fraction(0))
    assert rounds_to(drawn / int(web["tokens"]), "0.92")


@pytest.mark.parametrize("path", sorted(CELLS.glob("*.csv")), ids=lambda p: p.stem)
def test_every_table_cites_its_source_and_has_well_formed_rows(path: Path) -> None:
    head = [line for line in path.read_text().splitlines() if line.startswith("#")]
    rows = read_cells(path.stem)
    assert any(word in " ".join(head) for word in ("Source: ", "marin 4da809fb"))
    assert list(rows[0])[:2] == ["cell", "tokens"]
    assert len({row["cell"] for row in rows}) == len(rows)
    for row in rows:
        assert None not in row and None not in row.values()
        assert re.fullmatch(r"[a-z0-9][a-z0-9._-]*", row["cell"])
        assert int(row["tokens"]) > 0


@pytest.mark.skipif(not SHARED.is_dir(), reason="the collected originals are not here")
def test_marin_tables_hold_the_decimals_of_the_collected_originals() -> None:
    data = json.loads((SHARED / "harrier_mix.json").read_text(), parse_float=Decimal)
    run, fit = data["hero_production"]["buckets"], data["harrier_2026_08_17_1"]["buckets"]
    assert [row["cell"] for row in HARRIER] == list(run)
    for row in HARRIER:
        of = run[row["cell"]]
        assert [Decimal(row[p]) for p in PHASES] == [of["phase0"], of["phase1"], of["phase2"]]
        assert int(row["tokens"]) == of["tokens"]
    for row in FIT:
        of = fit[row["cell"]]
        assert [Decimal(row["pretrain"]), Decimal(row["cooldown"])] == [of["phase0"], of["phase1"]]


def test_marin_blocks_drop_seventeen_cells_and_feed_the_largest() -> None:
    weights = {row["cell"]: float(row["initial"]) for row in HARRIER}
    shares = {row["cell"]: exact(row["initial"]) for row in HARRIER}
    for add in orders.SUMS.values():
        quotas, largest, rest = orders.block_quotas(weights, add(weights.values()))
        dropped = [cell for cell, quota in quotas.items() if quota == 0]
        assert (len(dropped), largest, rest) == (17, "c30q4", 98)
        planned = sum(shares[cell] for cell in dropped) * published.phase_sequences()["initial"] * 4096
        assert rounds_to(Fraction(planned, MILLION), "356.3")
        assert rounds_to(Fraction(orders.distance(quotas, shares)), "0.00395")


def test_marin_cooldown_blocks_depend_on_how_floats_are_summed() -> None:
    weights = {row["cell"]: float(row["cooldown"]) for row in HARRIER}
    totals = {version: add(weights.values()) for version, add in orders.SUMS.items()}
    assert totals == {"3.11": 1.0000000000000002, "3.12": 1.0}
    old, new = (orders.block_quotas(weights, total)[0] for total in totals.values())
    assert all(
        new[row["cell"]] == round(exact(row["cooldown"]) * orders.BLOCK) for row in HARRIER if row["cell"] in new
    )
    assert sum(old[cell] != new[cell] for cell in new) == 190


def brute_worst(order: Order, phase: int, positions: int) -> Fraction:
    counts = [int(c) for c in order.counts[phase]]
    length, first = sum(counts), int(order.counts[:phase].sum())
    seen, worst = [0] * len(counts), Fraction(0)
    for slot, domain in enumerate(order.domains(first, first + positions).tolist(), 1):
        seen[domain] += 1
        worst = max(worst, *(abs(Fraction(c * slot, length) - s) for c, s in zip(counts, seen, strict=True)))
    return worst


@pytest.mark.parametrize("positions", [1, 7, 400, 1009])
def test_check_of_prefixes_agrees_with_looking_at_every_domain_at_every_prefix(positions: int) -> None:
    counts = np.array([[1, 30, 300, 678, 0], [500, 9, 0, 400, 100]], np.int64)
    order = Order(list("abcde"), counts)
    for phase in (0, 1):
        found = published.check_phase(order, phase, positions)
        assert found.positions == positions
        assert found.worst == brute_worst(order, phase, positions)


def test_check_of_prefixes_sees_an_order_that_lags() -> None:
    class Sorted(Order):
        def domains(self, start: int, stop: int) -> NDArray[np.int16]:
            return np.sort(super().domains(0, len(self)))[start:stop]

    found = published.check_phase(Sorted(list("ab"), np.array([[50, 50]], np.int64)), 0)
    assert found.worst == 25


def test_check_of_prefixes_refuses_what_64_bits_cannot_hold() -> None:
    with pytest.raises(ValueError, match="exact up to 3037000499"):
        published.check_phase(Order(["a", "b"], np.array([[1, 3_037_000_499]], np.int64)), 0)


def test_start_of_every_phase_of_the_marin_order_keeps_to_its_targets() -> None:
    order = Order([row["cell"] for row in HARRIER], published.marin_counts(HARRIER))
    domains = (np.array(order.counts) > 0).sum(axis=1)
    for phase, n in enumerate(domains.tolist()):
        assert published.check_phase(order, phase, 300_000).worst <= 1 - Fraction(1, 2 * n - 2)
