"""`mixer amend`."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mixer.cli import cli
from mixer.verify import verify
from stages.errors import UserError

PHASES = "sequence_length: 32\nphases:\n  - {name: more, share: 100%, weights: {docstrings: 0.6, manual: 0.4}}\n"


def run(*args: str | Path | int, fails: bool = False) -> Result:
    result = CliRunner().invoke(cli, [*map(str, args)], env={"COLUMNS": "200"})
    assert result.exception is None or fails, result.output
    return result


@pytest.fixture
def phases(tmp_path: Path) -> Path:
    (tmp_path / "more.yaml").write_text(PHASES, encoding="utf-8")
    return tmp_path / "more.yaml"


def load(path: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(path.read_bytes())
    return manifest


def test_an_amendment_ends_with_a_table_and_the_path_of_the_new_manifest(
    parent: Path, workshop: Path, phases: Path
) -> None:
    latest = (workshop / "latest" / "tiny").readlink()
    link = workshop / "by-link"
    link.symlink_to(parent.parent)
    args = ("--at", 2000, "--phases", phases, "--reason", "code is flat", "--workers", 1)
    result = run("amend", link, *args)
    link.unlink()
    path = Path(result.stdout.splitlines()[-1])
    manifest = load(path)
    assert f"root {manifest['root']}" in result.stdout
    assert manifest["log"][0] | {"distance": ""} == {
        "parent": load(parent)["root"],
        "at": 2000,
        "reason": "code is flat",
        "distance": "",
    }
    assert manifest["segments"][1]["sequence_length"] == 32
    assert path.parent.parent == workshop / "mixture"
    assert (workshop / "latest" / "tiny").readlink() == latest
    assert verify(path)[1] == []
    assert Path(run("amend", parent, *args).stdout.splitlines()[-1]) == path


@pytest.mark.parametrize(
    ("left_out", "words"), [("--at", "'--at'"), ("--phases", "'--phases'"), ("--reason", "'--reason'")]
)
def test_position_phases_and_reason_are_needed(left_out: str, words: str, parent: Path, phases: Path) -> None:
    options = {"--at": "9", "--phases": str(phases), "--reason": "r"}
    args = [w for k, v in options.items() if k != left_out for w in (k, v)]
    result = run("amend", parent, *args, fails=True)
    assert result.exit_code == 2
    assert f"Missing option {words}" in result.output


def test_a_position_below_one_is_a_usage_error(parent: Path, phases: Path) -> None:
    result = run("amend", parent, "--at", 0, "--phases", phases, "--reason", "r", fails=True)
    assert result.exit_code == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"--at": "2401"}, "cannot amend at sequence 2401: the run has the sequences 0 to 2400"),
        ({"--phases": "nowhere.yaml"}, "nowhere.yaml: no such spec file"),
        ({"--reason": ""}, "at least 1 character"),
    ],
)
def test_mistakes_are_said_in_words(change: dict[str, str], words: str, parent: Path, phases: Path) -> None:
    options = {"--at": "9", "--phases": str(phases), "--reason": "r", "--workers": "1"} | change
    result = run("amend", parent, *(w for pair in options.items() for w in pair), fails=True)
    assert isinstance(result.exception, UserError)
    assert words in str(result.exception)


def test_a_manifest_that_is_not_there_leaves_no_trace(tmp_path: Path, phases: Path) -> None:
    deep = tmp_path / "a" / "b" / "c"
    deep.mkdir(parents=True)
    for path in (deep / "manifest.json", deep):
        result = run("amend", path, "--at", 9, "--phases", phases, "--reason", "r", fails=True)
        assert "there is no manifest; build it with `mixer build SPEC`" in str(result.exception)
    assert not list(tmp_path.rglob(".lock"))


def test_a_copy_away_from_its_build_folder_cannot_be_amended(parent: Path, phases: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(parent.parent, tmp_path / "x" / "y" / "z"))
    result = run("amend", copy, "--at", 9, "--phases", phases, "--reason", "r", "--workers", 1, fails=True)
    assert isinstance(result.exception, UserError)
    assert "the artifact is not here; build again in the folder of the manifest" in str(result.exception)
