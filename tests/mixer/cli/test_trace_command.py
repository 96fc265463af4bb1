"""`mixer trace`."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from mixer.cli import cli
from mixer.trace import text_of, trace_document, trace_step
from stages.errors import UserError


def run(*args: str | Path | int, fails: bool = False) -> Result:
    result = CliRunner().invoke(cli, ["trace", *map(str, args)], env={"COLUMNS": "200"})
    assert result.exception is None or fails, result.output
    return result


def as_json(*args: str | Path | int) -> Any:
    return json.loads(run(*args, "--json").stdout)


def test_a_step_as_json_is_what_the_function_gives(parent: Path) -> None:
    assert as_json(parent, "--step", 500, "--batch-size", 4) == trace_step(parent, 500, 4)
    assert as_json(parent.parent, "--step", 0, "--batch-size", 9) == trace_step(parent, 0, 9)


def test_a_step_as_tables(parent: Path) -> None:
    found = trace_step(parent, 30, 64)
    text = run(parent, "--step", 30, "--batch-size", 64).stdout
    assert "step 30: sequences 1,920 to 1,983, 4,096 tokens, phase late" in text
    for name, record in found["domains"].items():
        row = next(line for line in text.splitlines() if line.strip().startswith(name) and "%" in line)
        assert f"{record['tokens']:,}" in row
        low, high = found["epochs"][name]
        assert (str(low) if low == high else f"{low} to {high}") in row
    for piece in found["pieces"][:20]:
        assert piece["id"] in text
    assert f"and {len(found['pieces']) - 20} more pieces; --json lists all" in text
    assert "---" not in text


def test_a_step_with_the_text_of_some_pieces(parent: Path) -> None:
    found = trace_step(parent, 3, 4)
    text = run(parent, "--step", 3, "--batch-size", 4, "--show", 2).stdout
    assert text.count("--- ") == 2
    for piece in found["pieces"][:2]:
        assert f"--- {piece['id']} of {piece['source']}, its tokens {piece['start']} to {piece['end']}" in text
        assert text_of(parent, piece) in text


def test_a_document(parent: Path) -> None:
    document = trace_step(parent, 0, 1)["pieces"][0]["id"]
    found = trace_document(parent, document, 4)
    assert as_json(parent, "--document", document, "--batch-size", 4) == found
    assert as_json(parent, "--document", document) == trace_document(parent, document)
    text = run(parent, "--document", document, "--batch-size", 4).stdout
    assert f"{document} of {found['source']}, domain {found['domain']}, {found['tokens']:,} tokens" in text
    rows = [line.split() for line in text.splitlines() if line.strip() and line.split()[0].replace(",", "").isdigit()]
    assert [int(r[0].replace(",", "")) for r in rows] == [s["position"] for s in found["seen"]]
    assert [int(r[1].replace(",", "")) for r in rows] == [s["step"] for s in found["seen"]]


def test_a_document_that_is_not_seen(parent: Path) -> None:
    rows = pq.read_table(parent.parent / "validation" / "manual.parquet").to_pylist()
    text = run(parent, "--document", rows[0]["pieces"][0]["id"]).stdout
    assert "it is in the store and in no training sequence: held out" in text


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "say --step with --batch-size, or --document"),
        (["--step", "1", "--document", "0" * 32], "say --step with --batch-size, or --document"),
        (["--step", "1"], "--step needs --batch-size: how many sequences the trainer takes in a step"),
        (["--step", "600", "--batch-size", "4"], "step 600: the run has the steps 0 to 599 at 4 sequences a step"),
        (["--document", "xyz"], "'xyz' is no document id; give 8 to 32 of its hex digits"),
        (["--document", "0" * 32], "the store has no document 00000000000000000000000000000000; `mixer explain`"),
    ],
)
def test_mistakes_are_said_in_words(args: list[str], words: str, parent: Path) -> None:
    result = run(parent, *args, fails=True)
    assert isinstance(result.exception, UserError)
    assert words in str(result.exception)


def test_a_manifest_that_is_not_there(tmp_path: Path) -> None:
    result = run(tmp_path / "nowhere", "--step", 1, "--batch-size", 1, fails=True)
    assert "there is no manifest; build it with `mixer build SPEC`" in str(result.exception)
