"""What a build may not depend on: workers, folders, the order of keys, file cuts, hash seeds, kills, other builds."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from mixer.verify import verify
from stages.specfile import read_yaml

KILLS = (
    "ingest:2",
    "metrics:2",
    "filters:1",
    "tokenize:3",
    "exact_duplicates:5",
    "exact_duplicates:7",
    "near_duplicates:4",
    "near_duplicates:11",
    "store:2",
    "store:6",
    "split:1",
    "stream:2",
    "order:1",
    "mixture:1",
    "write:150",
    "artifact:2",
    "artifact:18",
)


def load(path: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(path.read_bytes())
    return manifest


def start(spec: Path, out: Path, *, workers: int, seed: int) -> subprocess.Popen[str]:
    """`python -m mixer build` on its way."""
    command = [sys.executable, "-m", "mixer", "build", str(spec), "--out", str(out), "--workers", str(workers)]
    env = os.environ | {"PYTHONHASHSEED": str(seed), "PYTHONPATH": str(Path(__file__).parents[1])}
    return subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def folders(root: Path) -> set[str]:
    """The artifacts of a build folder, as STAGE/NAME-DIGEST."""
    found = {f"{p.parent.parent.name}/{p.parent.name}" for p in root.glob("*/*/artifact.json")}
    return {folder for folder in found if not folder.startswith("latest/")}


def contents(manifest: dict[str, Any], *stages: str) -> dict[str, str]:
    return {f"{s['stage']}/{s['name']}": s["content"] for s in manifest["stages"] if s["stage"] in stages}


def test_one_worker_and_two_another_folder_and_another_hash_seed(
    tiny_build: Path, tiny_specs: Path, tmp_path: Path
) -> None:
    root = tmp_path / "deeper" / "out"
    run = start(tiny_specs, root, workers=2, seed=4242)
    out, err = run.communicate(timeout=300)
    assert run.returncode == 0, err
    manifest = load(root / "latest" / "tiny" / "manifest.json")
    assert manifest == load(tiny_build)
    assert f"root {manifest['root']}\n" in out
    assert out.rstrip().endswith("manifest.json")
    assert folders(root) == folders(tiny_build.parents[2])


def test_two_builds_in_one_folder_take_turns(tiny_build: Path, tiny_specs: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_build.parents[2], tmp_path / "build", symlinks=True)
    for stage in ("stream", "order", "mixture"):
        shutil.rmtree(folder / stage)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        runs = [start(tiny_specs, folder, workers=1, seed=n) for n in (0, 1)]
        for run in runs:
            assert run.stderr is not None
            assert run.stderr.readline() == f"another build works in {folder}; waiting for it\n"
        assert not list(folder.glob("stream/*/artifact.json"))
    outputs = [run.communicate(timeout=300)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert sorted("nothing to do: every stage is built" in out for out in outputs) == [False, True]
    root = load(tiny_build)["root"]
    assert all(f"root {root}\n" in out for out in outputs)


@pytest.fixture(scope="module")
def killed(tiny_specs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a killed build for each of `KILLS`."""
    out = tmp_path_factory.mktemp("killed")
    command = [sys.executable, str(Path(__file__).with_name("kill_builds.py")), str(tiny_specs), str(out), *KILLS]
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.parametrize("kill", KILLS)
def test_a_killed_build_goes_on_where_it_stopped_and_ends_the_same(
    kill: str, killed: Path, tiny_build: Path, tiny_specs: Path, build_mixture: Callable[..., Path], tmp_path: Path
) -> None:
    root = shutil.copytree(killed / kill, tmp_path / "build", symlinks=True)
    before, whole = folders(root), folders(tiny_build.parents[2])
    assert before < whole
    made: list[str] = []
    path = build_mixture(tiny_specs, root, made=made)
    assert load(path) == load(tiny_build)
    assert folders(root) == whole
    stages = [
        "ingest",
        "columns",
        "exact_duplicates",
        "near_duplicates",
        "store",
        "split",
        "stream",
        "order",
        "mixture",
    ]
    again = list(dict.fromkeys(made))
    assert again == stages[len(stages) - len(again) :]
    left = [p for p in root.rglob("*") if p.is_file() and (".tmp-" in p.name or "commits" in p.parent.name)]
    assert left == []
    assert verify(path)[1] == []


def test_finished_tasks_are_not_done_again(
    killed: Path, tiny_specs: Path, build_mixture: Callable[..., Path], tmp_path: Path
) -> None:
    root = shutil.copytree(killed / "tokenize:3", tmp_path / "build", symlinks=True)
    committed = {p: p.stat().st_mtime_ns for p in root.glob("tokenize/*/*.bin") if ".tmp-" not in p.name}
    build_mixture(tiny_specs, root)
    assert len(committed) == 3
    assert {p: p.stat().st_mtime_ns for p in committed} == committed


def test_the_order_of_keys_in_the_specs(
    tiny_build: Path, tiny_specs: Path, build_mixture: Callable[..., Path], tmp_path: Path
) -> None:
    def turned(value: Any) -> Any:
        return {k: turned(v) for k, v in reversed(value.items())} if isinstance(value, dict) else value

    for name in ("corpus.yaml", "mixture.yaml"):
        content = turned(read_yaml(tiny_specs.parent / name)[0])
        (tmp_path / name).write_text(yaml.safe_dump(content, sort_keys=False))
    sources = list(read_yaml(tmp_path / "corpus.yaml")[0]["sources"])
    assert sources == list(reversed(list(read_yaml(tiny_specs.parent / "corpus.yaml")[0]["sources"])))
    assert load(build_mixture(tmp_path / "mixture.yaml", tmp_path / "build")) == load(tiny_build)


def test_the_same_rows_cut_into_other_files(
    tiny_build: Path, tiny_corpus: Path, tiny_specs: Path, build_mixture: Callable[..., Path], tmp_path: Path
) -> None:
    cuts = {"reference": 5, "docstrings": 3, "copies": 7}
    spec = shutil.copytree(tiny_specs.parent, tmp_path / "specs") / "corpus.yaml"
    corpus = yaml.safe_load(spec.read_text())
    for name, count in cuts.items():
        paths = sorted((tiny_corpus / name).glob("*")) or [tiny_corpus / f"{name}.jsonl"]
        lines = [line for path in paths for line in path.read_text().splitlines()]
        for k in range(count):
            part = tmp_path / name / f"{k}.jsonl"
            part.parent.mkdir(exist_ok=True)
            part.write_text(
                "".join(f"{line}\n" for line in lines[len(lines) * k // count : len(lines) * (k + 1) // count])
            )
        corpus["sources"][name]["read"]["path"] = str(tmp_path / name)
    spec.write_text(yaml.safe_dump(corpus))
    cut, whole = load(build_mixture(spec.with_name("mixture.yaml"), tmp_path / "build")), load(tiny_build)
    assert [s["files"] for s in cut["sources"].values()] == [7, 3, 5]
    assert contents(cut, "store", "mixture") == contents(whole, "store", "mixture")
    assert [(s["path"], s["content"]) for s in cut["shards"]] == [(s["path"], s["content"]) for s in whole["shards"]]
    for name, source in cut["sources"].items():
        assert source["funnel"] == whole["sources"][name]["funnel"]
        assert source["identity"] != whole["sources"][name]["identity"]


def test_a_changed_threshold_runs_what_depends_on_it_and_nothing_else(
    tiny_build: Path, tiny_specs: Path, build_mixture: Callable[..., Path], tmp_path: Path
) -> None:
    root = shutil.copytree(tiny_build.parents[2], tmp_path / "build", symlinks=True)
    before = folders(root)
    written = {p: p.stat().st_mtime_ns for f in before for p in (root / f).rglob("*") if p.name != "run.json"}
    specs = shutil.copytree(tiny_specs.parent, tmp_path / "specs")
    text = (specs / "corpus.yaml").read_text()
    assert "min_words: 8" in text
    (specs / "corpus.yaml").write_text(text.replace("min_words: 8", "min_words: 12"))
    made: list[str] = []
    manifest = load(build_mixture(specs / "mixture.yaml", root, made=made))
    new = sorted(f.rpartition("-")[0] for f in folders(root) - before)
    assert new == [
        "exact_duplicates/tiny",
        "filters/docstrings",
        "mixture/tiny",
        "near_duplicates/tiny",
        "split/tiny",
        "store/tiny",
        "stream/docstrings",
        "stream/manual",
        "tokenize/docstrings",
    ]
    assert list(dict.fromkeys(made)) == [
        "columns",
        "exact_duplicates",
        "near_duplicates",
        "store",
        "split",
        "stream",
        "mixture",
    ]
    assert {p: p.stat().st_mtime_ns for p in written} == written
    fresh = load(build_mixture(specs / "mixture.yaml", tmp_path / "fresh"))
    assert fresh == manifest
    assert fresh["root"] != load(tiny_build)["root"]


def test_a_changed_weight_runs_no_stage_of_the_corpus(
    tiny_build: Path, tiny_specs: Path, build_mixture: Callable[..., Path], tmp_path: Path
) -> None:
    root = shutil.copytree(tiny_build.parents[2], tmp_path / "build", symlinks=True)
    specs = shutil.copytree(tiny_specs.parent, tmp_path / "specs")
    text = (specs / "mixture.yaml").read_text()
    (specs / "mixture.yaml").write_text(text.replace("'0.7'", "'0.69'").replace("'0.3'", "'0.31'"))
    made: list[str] = []
    build_mixture(specs / "mixture.yaml", root, made=made)
    assert made == ["order", "mixture"]


def test_a_changed_seed_is_another_order_of_the_same_documents(
    tiny_build: Path, tiny_specs: Path, build_mixture: Callable[..., Path], tmp_path: Path
) -> None:
    root = shutil.copytree(tiny_build.parents[2], tmp_path / "build", symlinks=True)
    specs = shutil.copytree(tiny_specs.parent, tmp_path / "specs")
    text = (specs / "mixture.yaml").read_text()
    (specs / "mixture.yaml").write_text(text.replace("seed: 7", "seed: 8"))
    made: list[str] = []
    seeded, base = load(build_mixture(specs / "mixture.yaml", root, made=made)), load(tiny_build)
    assert made == ["stream", "mixture"]

    def shards(manifest: dict[str, Any], split: str) -> list[str]:
        return [s["content"] for s in manifest["shards"] if s["split"] == split]

    assert shards(seeded, "validation") == shards(base, "validation")
    assert shards(seeded, "train") != shards(base, "train")
    assert seeded["domains"] == base["domains"]


def test_a_second_build_does_nothing(
    tiny_build: Path, tiny_specs: Path, build_mixture: Callable[..., Path], tmp_path: Path
) -> None:
    def state() -> dict[Path, tuple[int, int]]:
        kept = [p for p in root.rglob("*") if p.relative_to(root).parts[0] not in ("cache", "logs")]
        return {p: (p.lstat().st_ino, p.lstat().st_mtime_ns) for p in kept}

    root = shutil.copytree(tiny_build.parents[2], tmp_path / "build", symlinks=True)
    before = state()
    made: list[str] = []
    path = build_mixture(tiny_specs, root, made=made)
    assert made == []
    assert state() == before
    assert path.relative_to(root) == tiny_build.relative_to(tiny_build.parents[2])


def test_a_removed_artifact_is_made_again(
    tiny_build: Path, tiny_specs: Path, build_mixture: Callable[..., Path], tmp_path: Path
) -> None:
    root = shutil.copytree(tiny_build.parents[2], tmp_path / "build", symlinks=True)
    for stage in ("filters", "store"):
        shutil.rmtree(root / stage)
    made: list[str] = []
    assert load(build_mixture(tiny_specs, root, made=made)) == load(tiny_build)
    assert list(dict.fromkeys(made)) == ["columns", "store"]
    assert verify(root / "latest" / "tiny")[1] == []


def test_a_changed_source_file_is_noticed(
    tiny_build: Path, tiny_corpus: Path, tiny_specs: Path, build_mixture: Callable[..., Path], tmp_path: Path
) -> None:
    """One byte of one row: its source is read again, the others are not."""
    folder = shutil.copytree(tiny_corpus, tmp_path / "corpus")
    specs = shutil.copytree(tiny_specs.parent, tmp_path / "specs")
    text = (specs / "corpus.yaml").read_text().replace(str(tiny_corpus), str(folder))
    (specs / "corpus.yaml").write_text(text)
    root = shutil.copytree(tiny_build.parents[2], tmp_path / "build", symlinks=True)
    made: list[str] = []
    moved = load(build_mixture(specs / "mixture.yaml", root, made=made))
    assert made == []
    rows = (folder / "docstrings.jsonl").read_text()
    (folder / "docstrings.jsonl").write_text(rows.replace("return", "retur_", 1))
    before = folders(root)
    changed = load(build_mixture(specs / "mixture.yaml", root, rehash=True))
    new = {f.rpartition("-")[0] for f in folders(root) - before}
    assert {f for f in new if f.split("/")[0] in ("ingest", "metrics", "filters", "tokenize")} == {
        f"{stage}/docstrings" for stage in ("ingest", "metrics", "filters", "tokenize")
    }
    assert changed["root"] != moved["root"]
