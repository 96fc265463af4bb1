"""The commands but `build` and `sample`, called in this process."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner, Result

from mixer.cli import COMMANDS, SUMMARIES, cli, main
from stages.errors import UserError


def run(*args: str | Path, fails: bool = False) -> Result:
    result = CliRunner().invoke(cli, [str(a) for a in args])
    assert result.exception is None or fails, result.output
    return result


def test_help_has_an_example_and_every_command_a_line() -> None:
    text = run("--help").output
    assert "Example:\n    mixer build" in text
    assert COMMANDS.keys() == SUMMARIES.keys()
    for name in COMMANDS:
        assert f"  {name} " in text


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_shows_an_example(command: str) -> None:
    text = run(command, "--help").output
    assert f"Example:\n    mixer {command} " in text
    assert run(command, "-h").output == text


def test_a_mistyped_command_gets_the_nearest_one() -> None:
    result = run("biuld", fails=True)
    assert result.exit_code == 2
    assert "there is no command 'biuld'; did you mean 'build'?" in result.output
    assert run("frobnicate", fails=True).exit_code == 2
    assert "mixer, version" in run("--version").output or "0." in run("--version").output


def test_inspect_shows_every_domain_source_and_cell(tiny_build: Path) -> None:
    text = run("inspect", tiny_build.parent).output
    manifest = json.loads(tiny_build.read_bytes())
    for name in [*manifest["domains"], *manifest["sources"], *manifest["cells"], "early", "late"]:
        assert f"\n {name} " in text
    assert manifest["root"] in text
    assert "exact_duplicates" in text
    assert "2,401" in text
    assert json.loads(run("inspect", tiny_build, "--json").output) == manifest


def test_plan_before_and_after_a_build(tiny_build: Path, tiny_specs: Path, tmp_path: Path) -> None:
    text = run("plan", tiny_specs, "--out", tmp_path / "none").output
    assert "2,401 sequences of 64 tokens; 36 tokens of the budget are left" in text
    assert "epochs are known when the token store is built" in text
    assert not list((tmp_path / "none").glob("ingest*"))
    before = json.loads(run("plan", tiny_specs, "--out", tmp_path / "none", "--json").output)
    after = json.loads(run("plan", tiny_specs, "--out", tiny_build.parents[2], "--json").output)
    assert (before["sequences"], before["unique_tokens"]) == (2401, None)
    assert {d: n for p in after["phases"] for d, n in p["domains"].items()} == {"docstrings": 450, "manual": 150}
    manifest = json.loads(tiny_build.read_bytes())
    unique = {n: d["realized"]["unique_tokens"] for n, d in manifest["domains"].items()}
    assert after["unique_tokens"] == unique
    assert not any(s["built"] for s in before["stages"])
    assert all(s["built"] for s in after["stages"])
    assert [s["digest"] for s in before["stages"]] == [s["digest"] for s in manifest["stages"]][: len(before["stages"])]


def test_verify_says_what_it_checked_and_fails_with_what_differs(tiny_build: Path, tmp_path: Path) -> None:
    result = run("verify", tiny_build)
    assert result.output.startswith("verified: 3 shard files")
    copied = shutil.copytree(tiny_build.parent, tmp_path / "a" / "b" / "c")
    (copied / "train" / "00000.parquet").unlink()
    result = run("verify", copied, fails=True)
    assert result.exit_code == 1
    assert "train/00000.parquet: the shard is missing\n" in result.output
    assert result.output.endswith("1 difference\n")


def test_explain_as_words_and_as_json(tiny_build: Path) -> None:
    import pyarrow.parquet as pq

    row = pq.read_table(tiny_build.parent / "train" / "00000.parquet").to_pylist()[17]
    document = row["pieces"][0]["id"]
    found = json.loads(run("explain", tiny_build, document, "--json").output)
    assert 17 in [p["position"] for p in found["sequences"]]
    text = run("explain", tiny_build, document[:12]).output
    assert f"document {document}" in text
    assert "kept" in text
    assert f"in the train split of domain {row['domain']}" in text
    assert "sequence 17, its tokens" in text


@pytest.mark.parametrize("kind", ["corpus", "mixture", "manifest"])
def test_schemas_are_schemas(kind: str) -> None:
    schema = json.loads(run("schema", kind).output)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"].endswith("2020-12/schema")


def test_the_schemas_accept_what_the_readers_accept(tiny_build: Path, tiny_specs: Path) -> None:
    def validator(kind: str) -> jsonschema.Draft202012Validator:
        return jsonschema.Draft202012Validator(json.loads(run("schema", kind).output))

    mixture = yaml.safe_load(tiny_specs.read_text())
    corpus = yaml.safe_load((tiny_specs.parent / "corpus.yaml").read_text())
    validator("mixture").validate(mixture)
    validator("corpus").validate(corpus)
    validator("manifest").validate(json.loads(tiny_build.read_bytes()))
    assert not validator("mixture").is_valid(mixture | {"sequence_lenght": 5})
    assert not validator("corpus").is_valid(corpus | {"cells": "topic"})


USER_MISTAKES: dict[str, Callable[[Path], list[str]]] = {
    "no spec": lambda p: ["build", str(p / "nowhere.yaml"), "--out", str(p / "out")],
    "a folder as a spec": lambda p: ["build", str(p), "--out", str(p / "out")],
    "no manifest": lambda p: ["verify", str(p)],
    "nothing to inspect": lambda p: ["inspect", str(p / "manifest.json")],
    "nothing to explain": lambda p: ["explain", str(p), "0123456789abcdef"],
    "a binary spec": lambda p: ["plan", str(p / "binary.yaml"), "--out", str(p / "out")],
    "an empty spec": lambda p: ["plan", str(p / "empty.yaml"), "--out", str(p / "out")],
    "a list as a spec": lambda p: ["plan", str(p / "list.yaml"), "--out", str(p / "out")],
    "a file as the build folder": lambda p: ["build", str(p / "ok.yaml"), "--out", str(p / "binary.yaml")],
}


@pytest.mark.parametrize("mistake", USER_MISTAKES)
def test_a_mistake_ends_in_words_and_exit_code_1(
    mistake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty.yaml").write_text("")
    (tmp_path / "list.yaml").write_text("- a\n")
    monkeypatch.setattr("sys.argv", ["mixer", *USER_MISTAKES[mistake](tmp_path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    text = capsys.readouterr().err
    assert text.startswith("error: ")
    assert str(tmp_path) in text
    assert "Traceback" not in text


def edit(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    data = yaml.safe_load(path.read_text())
    change(data)
    path.write_text(yaml.safe_dump(data))


SPEC_MISTAKES: dict[str, tuple[str, Callable[[dict[str, Any]], Any], str]] = {
    "no such file": ("corpus", lambda c: c["sources"]["copies"]["read"].update(path="gone.jsonl"), "source copies"),
    "an empty path": ("corpus", lambda c: c["sources"]["copies"]["read"].update(path=""), "copies"),
    "a filter that is none": ("corpus", lambda c: c["sources"]["copies"].update(filters=["gofer"]), "gofer"),
    "a format that is none": ("corpus", lambda c: c["sources"]["copies"]["read"].update(format="json"), "format"),
    "no tokenizer": ("corpus", lambda c: c["tokenizer"].update(file="gone.json"), "tokenizer"),
    "no such token": ("corpus", lambda c: c["tokenizer"].update(end_of_text="<end>"), "<end>"),
    "another tokenizer": ("corpus", lambda c: c["tokenizer"].update(sha256="0" * 64), "sha256"),
    "no such package": ("corpus", lambda c: c["tokenizer"].update(package="no-such-package"), "not installed"),
    "sources as a list": ("corpus", lambda c: c.update(sources=[1]), "sources"),
    "cells as a number": ("mixture", lambda m: m["domains"]["manual"].update(cells=5), "cells"),
    "a domain as a word": ("mixture", lambda m: m["domains"].update(manual="0.7"), "manual"),
    "a corpus in a folder": ("mixture", lambda m: m.update(corpus="."), "spec"),
    "a weight in words": ("mixture", lambda m: m["domains"]["manual"].update(weight="most"), "weight"),
    "too small a budget": ("mixture", lambda m: m.update(budget=64), "leave it none"),
    "an expectation of nothing": ("mixture", lambda m: m.update(expect=[{"source": "copies"}]), "exactly one"),
}


@pytest.mark.parametrize("mistake", SPEC_MISTAKES)
def test_a_mistake_in_a_spec_is_a_user_error(mistake: str, tmp_path: Path, write_specs: Callable[..., Path]) -> None:
    which, change, words = SPEC_MISTAKES[mistake]
    path = write_specs(tmp_path)
    edit(tmp_path / f"{which}.yaml", change)
    result = run("plan", path, "--out", tmp_path / "out", fails=True)
    assert isinstance(result.exception, UserError), result.exception
    assert words in str(result.exception)
