"""`mixer plan`: integers before and after there is a store, from a table of cells, and of the ladder."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from mixer.cli import cli
from stages.errors import UserError


def run(*args: str | Path, fails: bool = False) -> Result:
    result = CliRunner().invoke(cli, [*map(str, args)], env={"COLUMNS": "200"})
    assert result.exception is None or fails, result.output
    return result


def plan(*args: str | Path) -> Any:
    return json.loads(run("plan", *args, "--json").stdout)


@pytest.fixture
def table(tmp_path: Path) -> Callable[..., Path]:
    """`table(**spec)` writes a spec that is planned from a table of cells."""

    def write(**spec: Any) -> Path:
        (tmp_path / "cells.csv").write_text("cell,tokens,kind\nbooks,1M,text\ncode,2M,code\nweb,90M,text\n", "utf-8")
        domains = {
            "books": {"cells": "books", "epochs": "2"},
            "code": {"cells": [{"kind": "code"}], "weight": "0.3"},
            "web": {"cells": "w*", "rest": True},
        }
        base = {"mixture": "t", "cells": "cells.csv", "sequence_length": 1000, "budget": "10M", "domains": domains}
        (tmp_path / "t.yaml").write_text(yaml.safe_dump(base | spec, sort_keys=False), encoding="utf-8")
        return tmp_path / "t.yaml"

    return write


def test_a_plan_from_a_table_of_cells(table: Callable[..., Path], tmp_path: Path) -> None:
    found = plan(table(), "--out", tmp_path / "out")
    (phase,) = found["phases"]
    assert phase["domains"] == {"books": 2000, "code": 3000, "web": 5000}
    assert phase["asked"] == phase["given"] == {"books": "1/5", "code": "3/10", "web": "1/2"}
    assert found["epochs"] == {"books": "2", "code": "3/2", "web": "1/18"}
    assert found["unique_tokens"] == {"books": 10**6, "code": 2 * 10**6, "web": 9 * 10**7}
    assert (found["sequences"], found["unused_tokens"], found["stages"]) == (10_000, 0, [])
    assert not (tmp_path / "out").exists()
    text = run("plan", tmp_path / "t.yaml").stdout
    assert "10,000 sequences of 1,000 tokens; 0 tokens of the budget are left" in text
    row = next(line for line in text.splitlines() if "code" in line)
    for cell in ("30.000%", "3,000", "3.00M", "2.00M", "1.500"):
        assert cell in row
    assert "fresh tokens" in text
    assert "stages" not in text


def test_a_table_that_falls_short_and_one_that_cannot_be_built(table: Callable[..., Path], tmp_path: Path) -> None:
    result = run("plan", table(budget="40M"), fails=True)
    assert isinstance(result.exception, UserError)
    assert "domain code: needs 12000000 tokens and has 2000000, that is 6.000 epochs" in str(result.exception)
    found = plan(table(budget="40M", on_shortfall="redistribute"))
    assert found["phases"][0]["domains"]["code"] == 8000
    assert found["phases"][0]["asked"]["code"] == "3/10"
    assert found["phases"][0]["given"]["code"] == "1/5"
    result = run("build", table(), "--out", tmp_path / "out", "--workers", "1", fails=True)
    assert "has `cells` instead of a corpus, so it can be planned (`mixer plan`) but not built" in str(result.exception)


def test_before_the_store_sequences_are_known_and_epochs_are_not(tiny_specs: Path, tmp_path: Path) -> None:
    found = plan(tiny_specs, "--out", tmp_path)
    assert found["epochs"] is found["unique_tokens"] is None
    assert [p["domains"] for p in found["phases"]] == [
        {"docstrings": 540, "manual": 1261},
        {"docstrings": 450, "manual": 150},
    ]
    assert {s["built"] for s in found["stages"]} == {False}
    text = run("plan", tiny_specs, "--out", tmp_path).stdout
    assert "epochs are known when the token store is built: mixer build SPEC --until store" in text
    row = next(line for line in text.splitlines() if "manual" in line)
    assert row.count("?") == 3
    assert list(tmp_path.glob("*/*/artifact.json")) == []


def test_after_a_build_epochs_are_known_and_nothing_is_left_to_run(tiny_specs: Path, workshop: Path) -> None:
    found = plan(tiny_specs, "--out", workshop)
    assert found["unique_tokens"] == {"docstrings": 39_702, "manual": 63_156}
    assert found["epochs"] == {"docstrings": "10560/6617", "manual": "22576/15789"}
    assert {s["built"] for s in found["stages"]} == {True}
    assert found["unused_tokens"] == 36
    text = run("plan", tiny_specs, "--out", workshop).stdout
    assert "1.596" in text
    assert "?" not in text


def test_what_needs_the_store_says_so(write_specs: Callable[..., Path], tmp_path: Path, workshop: Path) -> None:
    domains = {
        "docstrings": {"cells": ["docstrings"], "epochs": "1", "weight": None},
        "manual": {"rest": True, "weight": None},
    }
    spec = write_specs(tmp_path / "specs", domains=domains, validation="5%", budget=153_700)
    result = run("plan", spec, "--out", tmp_path / "out", fails=True)
    assert isinstance(result.exception, UserError)
    assert "domains.docstrings.epochs: needs the token counts of the store" in str(result.exception)
    found = plan(spec, "--out", workshop)
    assert found["phases"][0]["domains"]["docstrings"] == round(39_702 / 64 * 2401 * 64 / 153_700)


def test_the_rungs_of_the_ladder(ladder_specs: Path, rungs: dict[str, Path], workshop: Path, tmp_path: Path) -> None:
    found = plan(ladder_specs, "--ladder", "--out", workshop)
    assert [r["rung"] for r in found] == ["small", "middle", "large"]
    for rung in found:
        manifest = json.loads(rungs[rung["rung"]].read_bytes())
        assert rung["pools"] == {d: record["pool"] for d, record in manifest["domains"].items()}
        assert [p["domains"] for p in rung["phases"]] == [
            {d: r["sequences"] for d, r in p["domains"].items()} for p in manifest["phases"]
        ]
    text = run("plan", ladder_specs, "--ladder", "--out", workshop).stdout
    assert all(name in text for name in ("small", "middle", "large", "pool", "docstrings"))
    unknown = plan(ladder_specs, "--ladder", "--out", tmp_path)
    assert [r["pools"] for r in unknown] == [None] * 3
    assert [r["phases"] for r in unknown] == [r["phases"] for r in found]
    assert "?" in run("plan", ladder_specs, "--ladder", "--out", tmp_path).stdout


def test_a_spec_without_a_ladder(tiny_specs: Path, workshop: Path) -> None:
    assert run("plan", tiny_specs, "--ladder", "--out", workshop).stdout == "the spec has no `ladder:`\n"
    assert plan(tiny_specs, "--ladder", "--out", workshop) == []


def test_a_rung_is_built_by_its_name(ladder_specs: Path, rungs: dict[str, Path], workshop: Path) -> None:
    result = run("build", ladder_specs, "--rung", "small", "--out", workshop, "--workers", "1")
    assert result.stdout.splitlines()[-1] == str(rungs["small"].resolve())
    assert "nothing to do" in result.stdout
    result = run("build", ladder_specs, "--rung", "tall", "--out", workshop, "--workers", "1", fails=True)
    assert "there is no rung 'tall'; the rungs are large, middle, small" in str(result.exception)
