"""A tiny tokenizer, a tiny corpus of real text, and the specs that read them."""

import inspect
import json
import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import pytest
import yaml

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
            return {"read": {"format": "jsonl", "path": str(tiny_corpus / path)}, "licence": "PSF-2.0", **more}

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
