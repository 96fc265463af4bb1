"""The specs that ship for published runs: what the spec layer plans from them is what is published of the runs."""

import json
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.published import BATCH, CELLS, STEPS, exact, read_cells
from mixer.build import load_table_plan
from mixer.cli import cli
from mixer.domains import Domains
from mixer.plan import Run, Supply
from stages.errors import UserError
from tests.mixer import test_published as published
from tests.mixer.test_published import can_round_to, half_unit, over, quantity, rounds_to

MIXTURES = CELLS.parent
SPECS = sorted(path for path in MIXTURES.glob("*.yaml") if "\ncells: " in path.read_text())
HARRIER = MIXTURES / "harrier.yaml"
FIT = MIXTURES / "harrier-2026-08-17-1.yaml"

# Rows whose planned epochs differ from the print, although some value that rounds to the printed weight gives it.
# Scaled weights put other rows there than those of `test_published`.
WITHIN_INPUTS = {
    "gpt3": {"common-crawl-filtered", "books1", "wikipedia"},
    "olmo2_dolmino_50b": {"decontam-flan", "pes2o", "wikipedia.wikibooks"},
    "olmo2_dolmino_100b": {"decontam-flan", "filtered-dclm", "stackexchange-q-a", "wikipedia.wikibooks"},
    "olmo2_dolmino_300b": {"filtered-dclm", "stackexchange-q-a", "wikipedia.wikibooks"},
}
# Of these runs the table has a part; the budget of the spec is that of the part.
PARTS = {"k2_65b_stage2_partial": Fraction("0.942")}
EPOCHS = sorted(published.BUDGETS)


@cache
def plan(path: Path) -> tuple[Domains, Run, dict[str, Supply]]:
    return load_table_plan(path)


def spec_of(table: str) -> Path:
    return MIXTURES / f"{table.replace('_', '-')}.yaml"


def passes(path: Path) -> dict[str, Fraction]:
    _, run, supply = plan(path)
    return {name: run.epochs(name, supply[name]) for name in run.domains}


def changed(folder: Path, path: Path, changes: Mapping[str, str]) -> Path:
    """A spec with parts of its text changed, in another folder."""
    text = path.read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (folder / "cells").symlink_to(CELLS)
    (folder / path.name).write_text(text)
    return folder / path.name


def test_every_published_table_has_a_spec_of_its_name() -> None:
    assert {path.stem for path in SPECS} == {table.stem.replace("_", "-") for table in CELLS.glob("*.csv")}


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_a_shipped_spec_cites_its_source_and_plans(path: Path) -> None:
    head = path.read_text().split("\nmixture: ")[0].splitlines()
    assert all(line.startswith("# ") for line in head)
    assert any(line.startswith("# Source: ") for line in head)
    domains, run, supply = plan(path)
    assert domains.spec.mixture == path.stem
    assert domains.spec.cells == f"cells/{path.stem.replace('-', '_')}.csv"
    assert run.sequences == domains.spec.budget // domains.spec.sequence_length
    assert sum(run.sequences_of(name) for name in run.domains) == run.sequences
    assert set(run.domains) == {row["cell"] for row in read_cells(Path(domains.spec.cells).stem)}
    assert all(run.epochs(leaf.name, supply[leaf.name]) <= leaf.max_epochs for leaf in domains.leaves)


@pytest.mark.parametrize("table", EPOCHS)
def test_the_budget_of_a_spec_is_the_published_one(table: str) -> None:
    domains, _, _ = plan(spec_of(table))
    budget = published.NOMINAL.get(table, published.BUDGETS[table])
    assert domains.spec.budget == budget * PARTS.get(table, 1)


@pytest.mark.parametrize("table", EPOCHS)
def test_a_spec_plans_the_published_epochs(table: str) -> None:
    rows = {row["cell"]: row for row in read_cells(table)}
    domains, _, supply = plan(spec_of(table))
    # What one whole sequence more or less is worth: nothing, but for the smallest sources.
    step = {cell: Fraction(domains.spec.sequence_length, supply[cell].tokens) for cell in rows}
    total = sum(exact(row["weight"]) for row in rows.values())
    budget = Fraction(domains.spec.budget) / total
    planned = passes(spec_of(table))
    missed = set()
    for cell, row in rows.items():
        assert abs(planned[cell] - published.epochs(row, budget)) <= step[cell], cell
        if abs(planned[cell] - exact(row["epochs"])) > half_unit(row["epochs"]) + step[cell]:
            missed.add(cell)
    explained = {cell for cell in missed if can_round_to(rows[cell], budget, rows[cell]["epochs"])}
    assert explained == WITHIN_INPUTS.get(table, set())
    assert missed - explained == published.MISPRINTS.get(table, {}).keys()


@pytest.mark.parametrize("table", published.DRAWS)
def test_a_spec_plans_the_published_draws(table: str) -> None:
    rows = read_cells(table)
    domains, run, _ = plan(spec_of(table))
    assert domains.spec.budget == published.DRAWS[table]
    total = sum(exact(row["weight"]) for row in rows)
    for row in rows:
        drawn, half = quantity(row["drawn"])
        # The weights are scaled by their sum, whose rounding is that of the row as well.
        scaling = abs(1 - 1 / total) * exact(row["weight"])
        slack = (half_unit(row["weight"]) + scaling) * domains.spec.budget + domains.spec.sequence_length
        assert abs(run.tokens_of(row["cell"]) - drawn) <= half + slack, row["cell"]


def test_the_plan_of_the_marin_run_has_the_published_sequences_phases_and_epochs() -> None:
    result = CliRunner().invoke(cli, ["plan", str(HARRIER), "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert (found["sequences"], found["unused_tokens"]) == (4_395_787_264, 0)
    stop = 0
    for phase, (first, last) in zip(found["phases"], STEPS.values(), strict=True):
        assert stop == first * BATCH
        stop += phase["sequences"]
        assert stop == last * BATCH
    assert [p["name"] for p in found["phases"]] == list(STEPS)
    epochs = {cell: Fraction(value) for cell, value in found["epochs"].items()}
    assert sorted(epochs, key=lambda cell: -epochs[cell])[:2] == ["c27q0", "c13q0"]
    assert rounds_to(epochs["c27q0"], "6.741")
    assert rounds_to(epochs["c13q0"], "6.737")
    assert rounds_to(epochs["c28q4"], "3.08")
    assert sum(found["unique_tokens"].values()) == 23_106_103_007_622


def test_the_plan_of_the_marin_run_is_that_of_the_exact_decimals() -> None:
    _, run, _ = plan(HARRIER)
    assert {cell: [p.planned[cell] for p in run.segments[0].plan.phases] for cell in run.domains} == (
        published.marin_sequences()
    )


@pytest.mark.parametrize(("phase", "percent"), published.QUALITY_SHARES.items())
def test_quality_shares_of_the_marin_plan(phase: str, percent: tuple[str, ...]) -> None:
    domains, run, _ = plan(HARRIER)
    (planned,) = [p for p in run.segments[0].plan.phases if p.name == phase]
    quality = domains.table.column("quality")
    for level, printed in enumerate(percent):
        share = sum(count for cell, count in planned.planned.items() if quality[cell] == str(level))
        assert rounds_to(Fraction(100 * share, planned.sequences), printed), level


def test_the_marin_mixture_fits_eight_passes_and_fails_at_six_for_two_cells(tmp_path: Path) -> None:
    assert "\nmax_epochs: 8 " in HARRIER.read_text()
    assert over(passes(HARRIER), 8) == set()
    assert over(passes(HARRIER), 6) == {"c27q0", "c13q0"}
    path = changed(tmp_path, HARRIER, {"max_epochs: 8": "max_epochs: 6"})
    with pytest.raises(UserError) as caught:
        load_table_plan(path)
    lines = str(caught.value).splitlines()
    assert [line.split(":")[1] for line in lines] == [" domain c13q0", " domain c27q0"]
    assert "6.737 epochs over its max_epochs of 6" in lines[0]
    assert "6.741 epochs over its max_epochs of 6" in lines[1]


@pytest.mark.parametrize(("table", "highest"), [("harrier_2026_08_17_1", "1.967"), ("harrier", "2.093")])
def test_exposure_of_the_earlier_marin_mixture_on_both_stores(tmp_path: Path, table: str, highest: str) -> None:
    path = changed(tmp_path, FIT, {"\ncells: cells/harrier_2026_08_17_1.csv": f"\ncells: cells/{table}.csv"})
    assert rounds_to(max(passes(path).values()), highest)
    _, run, _ = plan(path)
    assert [p.sequences for p in run.segments[0].plan.phases] == [3_662_109_374, 915_527_344]


BY_QUALITY = """\
mixture: by-quality
cells: cells/harrier.csv
sequence_length: 4096
budget: 1T
domains:
  maths: {cells: [{topic: Mathematics Problems and Proofs, quality: '>= 3'}], weight: 0.1}
  good: {cells: [{topic: [Law*, Natural Sciences Research], quality: '>= 3'}], weight: 0.6}
  worst: {cells: [{quality: 0}, {quality: '1', topic: 'Food*'}], weight: 0.3}
"""


def test_domains_chosen_by_the_columns_of_the_marin_cells(tmp_path: Path) -> None:
    (tmp_path / "cells").symlink_to(CELLS)
    (tmp_path / "by-quality.yaml").write_text(BY_QUALITY)
    domains, run, supply = load_table_plan(tmp_path / "by-quality.yaml")
    cells = {leaf.name: set(leaf.cells) for leaf in domains.leaves}
    assert cells == {
        "maths": {"c39q3", "c39q4"},
        "good": {"c30q3", "c30q4", "c37q3", "c37q4"},
        "worst": {f"c{topic:02}q0" for topic in range(40)} | {"c11q1"},
    }
    tokens = {row["cell"]: int(row["tokens"]) for row in read_cells("harrier")}
    assert {name: s.tokens for name, s in supply.items()} == {
        name: sum(tokens[cell] for cell in chosen) for name, chosen in cells.items()
    }
    assert run.asked("good") == Fraction(3, 5)


def test_a_predicate_keeps_its_order_of_numbers_over_all_marin_cells(tmp_path: Path) -> None:
    (tmp_path / "cells").symlink_to(CELLS)
    text = BY_QUALITY.split("domains:")[0]
    text += "domains:\n  high: {cells: {quality: '>= 3'}, rest: true}\n  low: {cells: {quality: '< 3'}, weight: 1/4}\n"
    (tmp_path / "by-quality.yaml").write_text(text)
    domains, run, _ = load_table_plan(tmp_path / "by-quality.yaml")
    assert {leaf.name: len(leaf.cells) for leaf in domains.leaves} == {"high": 80, "low": 120}
    assert run.asked("high") == Fraction(3, 4)
