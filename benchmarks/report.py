"""Results of a benchmark: rows of figures with the bar they have to reach, as JSON and as a table."""

import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

RESULTS = Path(__file__).parent / "results"


class Row(NamedTuple):
    """One figure. `bar` is what it has to reach (`>=` when `at_least`, else `<=`), None when it is for comparison."""

    name: str
    value: float
    unit: str
    bar: float | None = None
    at_least: bool = True

    @property
    def holds(self) -> bool | None:
        if self.bar is None:
            return None
        return self.value >= self.bar if self.at_least else self.value <= self.bar


def write(name: str, rows: list[Row], **facts: Any) -> None:
    """Write `results/NAME.json` and print the rows."""
    libraries = ("datatrove", "numba", "numpy", "pyarrow", "tokenizers")
    data = {
        "machine": {"cores": os.cpu_count(), "system": platform.system(), "python": platform.python_version()},
        "versions": {"mixer": version("mixer"), **{lib: version(lib) for lib in libraries}},
        **facts,
        "rows": [
            {"name": r.name, "value": round(r.value, 4), "unit": r.unit, "bar": r.bar, "holds": r.holds} for r in rows
        ],
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")
    width = max(len(r.name) for r in rows)
    for row in rows:
        bar = (
            ""
            if row.bar is None
            else f"  bar {'>=' if row.at_least else '<='} {row.bar:g}: {'ok' if row.holds else 'MISSED'}"
        )
        print(f"{row.name:<{width}}  {row.value:>10.3f} {row.unit:<8}{bar}")
