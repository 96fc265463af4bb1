"""Real documents for the filter tests: the first of every shared corpus, in file order."""

import gzip
import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[4] / "shared" / "corpora"


def documents(count: int, longest: int = 200_000) -> list[str]:
    """About `count` texts of at most `longest` characters, equally many a corpus; skips without the corpora."""
    files = sorted(FOLDER.glob("*.jsonl.gz"))
    if not files:
        pytest.skip(f"no corpora in {FOLDER}")
    each = -(-count // len(files))
    found: list[str] = []
    for path in files:
        own: list[str] = []
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                text = json.loads(line)["text"]
                if len(text) <= longest:
                    own.append(text)
                if len(own) == each:
                    break
        found += own
    return found
