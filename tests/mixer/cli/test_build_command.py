"""`mixer build` and `mixer sample`: in this process, and as a user starts them."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import stages.corpus_plan
from mixer.cli import cli, main
from mixer.verify import verify
from stages.errors import UserError

REPOSITORY = Path(__file__).parents[3]


def run(*args: str | Path, fails: bool = False) -> Result:
    result = CliRunner().invoke(cli, [*map(str, args), "--workers", "1"])
    assert result.exception is None or fails, result.output
    return result


def mixer(*args: str | Path) -> subprocess.CompletedProcess[str]:
    """`python -m mixer`."""
    env = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "mixer", *map(str, args)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)


@pytest.fixture
def out(tiny_build: Path, tmp_path: Path) -> Path:
    """A copy of the build folder of `tiny_build`."""
    return Path(shutil.copytree(tiny_build.parents[2], tmp_path / "out", symlinks=True))


def test_a_build_ends_with_a_table_the_root_and_the_path(tiny_build: Path, tiny_specs: Path, out: Path) -> None:
    shutil.rmtree(out / "mixture")
    result = run("build", tiny_specs, "--out", out)
    manifest = json.loads(tiny_build.read_bytes())
    path = out / tiny_build.relative_to(tiny_build.parents[2])
    assert result.stdout.splitlines()[-2:] == [f"root {manifest['root']}", str(path)]
    assert "tiny: 2,401 sequences of 64 tokens" in result.stdout
    assert "nothing to do" not in result.stdout
    assert json.loads(path.read_bytes()) == manifest
    assert (out / "latest" / "tiny").resolve() == path.parent.resolve()
    assert json.loads((path.parent / "run.json").read_bytes())["stages"] == ["mixture"]


def test_a_second_build_says_that_there_is_nothing_to_do(tiny_specs: Path, out: Path) -> None:
    assert run("build", tiny_specs, "--out", out).stdout.startswith("nothing to do: every stage is built\n")
    text = run("build", tiny_specs, "--out", out, "--until", "store").stdout
    assert text == "nothing to do: every stage until store is built\n"


def test_a_build_until_a_stage_stops_there_and_can_go_on(tiny_build: Path, tiny_specs: Path, tmp_path: Path) -> None:
    assert run("build", tiny_specs, "--out", tmp_path, "--until", "filters").stdout == "built until filters\n"
    assert {p.name for p in tmp_path.iterdir() if not p.name.startswith(".")} == {
        "cache",
        "filters",
        "ingest",
        "logs",
        "metrics",
    }
    run("build", tiny_specs, "--out", tmp_path)
    manifest = json.loads((tmp_path / "latest" / "tiny" / "manifest.json").read_bytes())
    assert manifest == json.loads(tiny_build.read_bytes())


def test_a_failed_expectation_is_named_and_the_mixture_is_there_to_look_at(
    write_specs: Callable[..., Path],
    tmp_path: Path,
    out: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    expect = [
        {"domain": "manual", "share": "70% +- 1%"},
        {"name": "copies survive", "source": "copies", "kept": ">= 90%"},
    ]
    spec = write_specs(tmp_path / "specs", expect=expect)
    monkeypatch.setattr("sys.argv", ["mixer", "build", str(spec), "--out", str(out), "--workers", "1"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    told = capsys.readouterr().err
    assert "error: expectation failed: copies survive: it is " in told
    assert "share" not in told.rpartition("error:")[2]
    assert "Traceback" not in told
    assert verify(out / "latest" / "tiny")[1] == []
    again = run("build", spec, "--out", out, fails=True)
    assert isinstance(again.exception, UserError)


def test_a_sample_is_built_beside_the_build_and_checked(
    write_specs: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages.corpus_plan, "SAMPLE_BYTES", 12_000)
    expect = [{"domain": "manual", "share": "70% +- 5%"}, {"source": "reference", "documents": ">= 1"}]
    spec = write_specs(tmp_path / "specs", budget="20M", expect=expect)
    result = run("sample", spec, "--shards", "1", "--out", tmp_path / "out")
    assert "tiny (sample):" in result.stdout
    assert [p.name for p in (tmp_path / "out").iterdir() if p.is_dir()] in (["sample", "cache"], ["cache", "sample"])
    path = tmp_path / "out" / "sample" / "latest" / "tiny"
    manifest = json.loads((path / "manifest.json").read_bytes())
    assert manifest["sample"] == 1
    assert 0 < manifest["totals"]["budget"] < 20_000_000
    read = {name: source["documents"] for name, source in manifest["sources"].items()}
    assert all(read.values())
    for domain in manifest["domains"].values():
        assert Fraction(domain["realized"]["epochs"]) <= 4
    assert verify(path)[1] == []
    twice = run("sample", spec, "--shards", "2", "--out", tmp_path / "out")
    larger = json.loads((path / "manifest.json").read_bytes())
    assert "tiny (sample):" in twice.stdout
    assert larger["sample"] == 2
    assert larger["sources"]["reference"]["documents"] > read["reference"]
    assert larger["root"] != manifest["root"]


def test_a_sample_with_a_failed_expectation(
    write_specs: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages.corpus_plan, "SAMPLE_BYTES", 12_000)
    spec = write_specs(tmp_path / "specs", expect=[{"domain": "docstrings", "share": ">= 80%"}])
    result = run("sample", spec, "--out", tmp_path / "out", fails=True)
    assert isinstance(result.exception, UserError)
    assert str(result.exception) == "expectation failed: domain docstrings: share >= 80%: it is 30%"


def test_what_stops_a_build_is_said_in_words(write_specs: Callable[..., Path], tmp_path: Path, out: Path) -> None:
    spec = write_specs(tmp_path / "a", corpus={"sources": {"copies": {"ceiling": {"bad_rows": "1%"}}}})
    result = run("build", spec, "--out", out, fails=True)
    assert "copies: 2 of 134 rows are bad (1.49%), over its ceiling.bad_rows of 1%" in str(result.exception)
    spec = write_specs(tmp_path / "b", corpus={"sources": {"copies": {"ceiling": {"removed": "10%"}}}})
    result = run("build", spec, "--out", out, fails=True)
    assert "over its ceiling.removed of 10%; first causes: exact_duplicates" in str(result.exception)
    spec = write_specs(tmp_path / "c", budget="9M")
    result = run("build", spec, "--out", out, fails=True)
    assert "domain manual: needs 62999" in str(result.exception)
    assert isinstance(result.exception, UserError)


def test_a_damaged_artifact_stops_the_next_build_with_what_to_do(tiny_specs: Path, out: Path) -> None:
    path = next(iter(out.glob("store/*/reference/00000.bin")))
    path.write_bytes(path.read_bytes()[:-2])
    result = run("build", tiny_specs, "--out", out, fails=True)
    assert isinstance(result.exception, UserError)
    assert f"{path}: is missing or has changed since it was written" in str(result.exception)
    assert f"remove {path.parents[1]} and build again" in str(result.exception)
    shutil.rmtree(path.parents[1])
    run("build", tiny_specs, "--out", out)
    assert verify(out / "latest" / "tiny")[1] == []


@pytest.mark.parametrize("args", [["--workers", "0"], ["--engine", "cloud"], ["--until", "nowhere"], ["--what"]])
def test_wrong_options_are_usage_errors(tiny_specs: Path, args: list[str]) -> None:
    result = CliRunner().invoke(cli, ["build", str(tiny_specs), *args])
    assert result.exit_code == 2
    assert "Usage: " in result.output


def test_a_spec_that_is_not_there_as_a_user_sees_it(tmp_path: Path) -> None:
    result = mixer("build", tmp_path / "nowhere.yaml", "--out", tmp_path / "out")
    assert result.returncode == 1
    assert result.stderr == f"error: {tmp_path / 'nowhere.yaml'}: no such spec file\n"
    assert result.stdout == ""


def test_until_offers_every_stage_of_the_line() -> None:
    """The command names the stages itself, so that its help imports nothing."""
    from mixer.cli.build import STAGES

    assert (*stages.corpus_plan.STAGES, "mixture") == STAGES
