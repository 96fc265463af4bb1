"""A tiny tokenizer, a tiny corpus of real text, and the specs that read them."""

import inspect
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import pytest
import yaml

from stages.artifact import Artifact
from stages.corpus import CorpusSpec
from stages.corpus_plan import CorpusPlan, plan_corpus
from stages.line import Line
from stages.specfile import load_spec
from stages.task import Task

GOLDEN = Path(__file__).parent / "golden"
MODULES = ("argparse", "calendar", "csv", "difflib", "fractions", "heapq", "json", "pathlib", "random", "textwrap")


@pytest.fixture(scope="session")
def tiny_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level BPE of 500 ids: 0 `<|endoftext|>` (special), 498 `<|user|>` (not special), 499 eight spaces."""
    return Path(shutil.copy(GOLDEN / "tokenizer.json", tmp_path_factory.mktemp("tokenizer")))


def reference_texts() -> list[str]:
    """Entries of the language reference that every Python carries, the short ones, by name."""
    return [text for _, text in sorted(topics.items()) if 200 < len(text) < 5000]


def docstrings() -> list[str]:
    """Docstrings of some modules of the library and of what they export; some are the same text."""
    found = []
    for name in MODULES:
        module = import_module(name)
        found.append(inspect.getdoc(module))
        for attribute in sorted(module.__all__):
            entry = getattr(module, attribute)
            found.append(inspect.getdoc(entry))
            if inspect.isclass(entry):
                found += [inspect.getdoc(getattr(entry, m)) for m in sorted(vars(entry)) if not m.startswith("_")]
    return [text for text in found if text]


def write_jsonl(path: Path, texts: list[str], first: int = 0) -> None:
    """One row a text, with ids that count from `first`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.dumps({"id": f"{path.stem}-{first + i}", "text": text}) for i, text in enumerate(texts)]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


@pytest.fixture(scope="session")
def tiny_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three sources of JSONL, about 250 KB: `reference/` (two files), `docstrings.jsonl` (duplicates
    within), and `copies.jsonl`, which repeats every third entry of the reference and every fourth docstring, some of
    them twice, and ends with two bad rows. Other tests must not write here."""
    folder = tmp_path_factory.mktemp("corpus")
    reference, strings = reference_texts(), docstrings()
    half = len(reference) // 2
    write_jsonl(folder / "reference" / "a.jsonl", reference[:half])
    write_jsonl(folder / "reference" / "b.jsonl", reference[half:])
    write_jsonl(folder / "docstrings.jsonl", strings)
    own = [text.upper() for text in reference[1::2]]
    copies = [*reference[::3], *own, *strings[::4], *reference[:6]]
    write_jsonl(folder / "copies.jsonl", copies)
    with (folder / "copies.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"id": "broken", "text": \n{"id": "no text"}\n')
    return folder


def _merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`base` with `changes`; mappings are merged, None removes a key."""
    merged = dict(base)
    for key, value in changes.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = _merge(merged[key], value)
        else:
            merged[key] = value
    return merged


@pytest.fixture(scope="session")
def write_specs(tiny_corpus: Path, tiny_tokenizer: Path) -> Callable[..., Path]:
    """`write_specs(folder, **overrides)` writes `folder/corpus.yaml` and `folder/mixture.yaml` and returns the latter.

    Overrides are keys of the mixture; `corpus={...}` holds those of the corpus. Mappings are merged into what is
    there, None removes a key. Numbers that are not whole are given as text.
    """

    def write(folder: Path, **overrides: Any) -> Path:
        def jsonl(path: str, **more: Any) -> dict[str, Any]:
            read = {"format": "jsonl", "path": str(tiny_corpus / path)}
            return {"read": read, "licence": "PSF-2.0", "near_duplicates": {"shingle": "none"}, **more}

        corpus = {
            "corpus": "tiny",
            "tokenizer": {"file": str(tiny_tokenizer), "end_of_text": "<|endoftext|>"},
            "shard_bytes": 65536,
            "sources": {
                "reference": jsonl("reference", filters=["gopher_repetition"]),
                "docstrings": jsonl("docstrings.jsonl", filters=[{"length": {"min_words": 8}}], priority=1),
                "copies": jsonl("copies.jsonl", ceiling={"bad_rows": "5%"}),
            },
        }
        mixture = {
            "mixture": "tiny",
            "corpus": "corpus.yaml",
            "seed": 7,
            "sequence_length": 64,
            "budget": 51200,
            "validation": "2%",
            "domains": {
                "manual": {"cells": ["reference", "copies"], "weight": "0.7"},
                "docstrings": {"cells": ["docstrings"], "weight": "0.3"},
            },
        }
        folder.mkdir(parents=True, exist_ok=True)
        changed = _merge(corpus, overrides.pop("corpus", {}))
        (folder / "corpus.yaml").write_text(yaml.safe_dump(changed, sort_keys=False), encoding="utf-8")
        path = folder / "mixture.yaml"
        path.write_text(yaml.safe_dump(_merge(mixture, overrides), sort_keys=False), encoding="utf-8")
        return path

    return write


@pytest.fixture(scope="session")
def build_mixture() -> Callable[..., Path]:
    """`build_mixture(spec, out, **options)` builds in this process, without datatrove's executor, and returns the path
    of the manifest; the options are those of `mixer.build.Build`, and `until`. `made` in the options is a list that
    receives the stages that had work."""
    from mixer.build import Build

    def build(spec: Path, out: Path, *, until: str = "mixture", made: list[str] | None = None, **options: Any) -> Path:
        engine = InlineEngine()
        job = Build(spec, out, out / "cache", lambda: engine, **options)
        path = job.run(until)
        if made is not None:
            made += job.made
        return path if path is not None else out

    return build


@pytest.fixture(scope="session")
def tiny_specs(tmp_path_factory: pytest.TempPathFactory, write_specs: Callable[..., Path]) -> Path:
    """The mixture spec that `tiny_build` is made from: two phases, more than one epoch of the docstrings."""
    phases = [
        {"name": "early", "share": "75%"},
        {"name": "late", "share": "25%", "weights": {"manual": "0.25", "docstrings": "0.75"}},
    ]
    return write_specs(tmp_path_factory.mktemp("specs"), phases=phases, budget=153_700, validation="5%")


@pytest.fixture(scope="session")
def tiny_build(tmp_path_factory: pytest.TempPathFactory, tiny_specs: Path, build_mixture: Callable[..., Path]) -> Path:
    """The manifest of a built mixture. Other tests must not write here; `shutil.copytree` its `parents[2]`, the build
    folder, first."""
    return build_mixture(tiny_specs, tmp_path_factory.mktemp("build"))


@dataclass
class InlineEngine:
    """Runs tasks at once in this process, and notes their stages and names."""

    ran: list[tuple[str, str]] = field(default_factory=list)

    def run(self, stage: str, log: str, tasks: Sequence[Task]) -> None:
        for task in tasks:
            task.work(task)
            self.ran.append((stage, task.name))


@dataclass
class Built:
    """What a line made: below `root`, by its plan, with an engine that tells what it ran."""

    root: Path
    plan: CorpusPlan
    artifacts: dict[str, Artifact]
    engine: InlineEngine

    @property
    def store(self) -> Artifact:
        return self.artifacts[self.plan.store.digest]

    @property
    def exact_duplicates(self) -> Artifact:
        return self.artifacts[self.plan.exact_duplicates.digest]

    def of(self, source: str, stage: str) -> Artifact:
        """The artifact of a source's own stage."""
        plan = self.plan.sources[source]
        recipes = {"ingest": plan.ingest} | {c.recipe.stage: c.recipe for c in plan.columns}
        return self.artifacts[recipes[stage].digest]


@pytest.fixture(scope="session")
def run_line(write_specs: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Built]:
    """`run_line(folder, until="store", sample=None, **corpus)` runs the line of the tiny corpus below `folder`; keys
    of `corpus` are merged into the corpus spec as `write_specs` does."""
    cache = tmp_path_factory.mktemp("cache")

    def run(folder: Path, until: str = "store", sample: int | None = None, **corpus: Any) -> Built:
        write_specs(folder, corpus=corpus)
        plan = plan_corpus(load_spec(folder / "corpus.yaml", CorpusSpec), folder, cache, sample)
        engine = InlineEngine()
        return Built(folder / "build", plan, Line(plan, folder / "build", lambda: engine).run(until), engine)

    return run


@pytest.fixture(scope="session")
def tiny_line(run_line: Callable[..., Built], tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The tiny corpus, built once; other tests must not write there."""
    return run_line(tmp_path_factory.mktemp("line"))
