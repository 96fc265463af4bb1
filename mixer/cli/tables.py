"""Tables for the terminal, all made from the manifest."""

import sys
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from mixer.manifest import read_manifest
from stages.quantity import format_amount, format_share


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> None:
    """Print a table; the first `left` columns are words, the others numbers."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, box=box.SIMPLE, title_justify="left", title_style="bold", pad_edge=False)
    for i, name in enumerate(columns):
        table.add_column(name, justify="left" if i < left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 160, markup=False, highlight=False).print(table)


def domain_rows(manifest: Mapping[str, Any]) -> list[list[str]]:
    """One row a domain: asked, planned and realized shares, sequences, tokens, unique tokens, epochs."""
    rows = []
    for name, domain in manifest["domains"].items():
        real = domain["realized"]
        rows.append(
            [
                name,
                format_share(Fraction(domain["asked"]["weight"]), 3),
                format_share(Fraction(domain["planned"]["weight"]), 3),
                format_share(Fraction(real["weight"]), 3),
                f"{real['sequences']:,}",
                format_amount(real["tokens"]),
                format_amount(real["unique_tokens"]),
                f"{float(Fraction(real['epochs'])):.2f}",
            ]
        )
    return rows


DOMAIN_COLUMNS = ("domain", "asked", "planned", "realized", "sequences", "tokens", "unique", "epochs")


def print_summary(path: Path, made: Sequence[str]) -> None:
    """The end of a build."""
    manifest = read_manifest(path)
    totals = manifest["totals"]
    if not made:
        print("nothing to do: every stage is built")
    title = (
        f"{manifest['mixture']}{' (sample)' if manifest['sample'] else ''}: {totals['sequences']:,} sequences of "
        f"{totals['sequence_length']:,} tokens, {format_amount(totals['tokens'])} tokens"
    )
    show_table(title, DOMAIN_COLUMNS, domain_rows(manifest))
    print(f"root {manifest['root']}")
    print(f"{path}")
