"""Small sources on disk, and reading them to plain lists."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pydantic
import pytest

from stages.sources.listing import Listing, list_files
from stages.sources.read import read_unit
from stages.sources.spec import Read
from stages.sources.units import plan_units


class Outcome(NamedTuple):
    """`good`: (file, row, source_id, text); `bad`: (file, row, reason)."""

    listing: Listing
    good: list[tuple[int, int, str | None, str]]
    bad: list[tuple[int, int, str]]

    @property
    def texts(self) -> list[str]:
        return [text for _, _, _, text in self.good]


@pytest.fixture
def parse() -> Callable[[dict[str, Any]], Any]:
    return pydantic.TypeAdapter(Read).validate_python


@pytest.fixture
def read_all(tmp_path: Path, parse: Callable[[dict[str, Any]], Any]) -> Callable[..., Outcome]:
    """read_all(mapping, target_bytes=..., **read_unit arguments) reads a whole source below tmp_path."""

    def run(mapping: dict[str, Any], target_bytes: int = 1 << 30, **arguments: int) -> Outcome:
        read = parse(mapping)
        listing = list_files(read, tmp_path, tmp_path / "cache", "demo")
        good, bad = [], []
        for unit in plan_units(listing, target_bytes):
            for batch in read_unit(read, unit, **arguments):
                batch.rows.validate(full=True)
                good += [tuple(row.values()) for row in batch.rows.to_pylist()]
                bad += [(b.file, b.row, str(b.reason)) for b in batch.bad]
                assert all(len(b.excerpt) <= 200 for b in batch.bad)
        return Outcome(listing, good, bad)

    return run
