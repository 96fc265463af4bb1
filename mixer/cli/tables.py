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

    table = Table(box=box.SIMPLE, pad_edge=False)
    for i, name in enumerate(columns):
        table.add_column(name, justify="left" if i < left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console = Console(width=None if sys.stdout.isatty() else 160, markup=False, highlight=False)
    console.print(title, style="bold", soft_wrap=True)
    console.print(table)


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


def print_manifest(manifest: Mapping[str, Any]) -> None:
    """Everything that a manifest says, as tables."""
    totals = manifest["totals"]
    show_table(
        f"{manifest['mixture']}: {totals['sequences']:,} sequences of {totals['sequence_length']:,} tokens",
        DOMAIN_COLUMNS,
        domain_rows(manifest),
    )
    phases = manifest["phases"]
    names = list(manifest["domains"])
    show_table(
        "phases (sequences)",
        ["phase", "first", "sequences", *names],
        [
            [p["name"], f"{p['first']:,}", f"{p['sequences']:,}", *(f"{p['domains'][n]['sequences']:,}" for n in names)]
            for p in phases
        ],
    )
    show_table("sources (documents)", SOURCE_COLUMNS, source_rows(manifest), left=2)
    show_table(
        "what was dropped, by first cause", ("source", "cause", "documents", "bytes"), drop_rows(manifest), left=2
    )
    show_table("cells", ("cell", "source", "documents", "tokens", "bytes"), cell_rows(manifest), left=2)
    held = [
        [n, f"{v['documents']:,}", format_amount(v["tokens"]), f"{v['sequences']:,}", f"{v['tail_tokens']:,}"]
        for n, v in ((n, d["validation"]) for n, d in manifest["domains"].items())
    ]
    show_table("validation", ("domain", "documents", "tokens", "sequences", "tail tokens"), held)
    train = [s for s in manifest["shards"] if s["split"] == "train"]
    size = format_amount(sum(s["bytes"] for s in manifest["shards"]))
    print(f"{len(train)} training shards and {len(manifest['shards']) - len(train)} validation shards, {size} bytes")
    print(f"tokenizer {manifest['tokenizer']['sha256'][:12]}, {manifest['tokenizer']['vocabulary']:,} ids, ", end="")
    print(f"{manifest['tokenizer']['dtype']}; {manifest['software']['name']} {manifest['software']['version']}")
    print(f"root {manifest['root']}")


SOURCE_COLUMNS = ("source", "licence", "read", "bad", "filtered", "exact", "near", "kept", "kept %", "tokens")


def source_rows(manifest: Mapping[str, Any]) -> list[list[str]]:
    """One row a source: documents read, lost at each stage, and kept."""
    rows = []
    for name, source in manifest["sources"].items():
        stages = {s["stage"]: s for s in source["funnel"]}
        lost = [s["entered"]["documents"] - s["kept"]["documents"] for s in stages.values()]
        kept = source["funnel"][-1]["kept"]
        share = Fraction(kept["documents"], source["documents"]) if source["documents"] else Fraction(0)
        rows.append(
            [
                name,
                source["licence"],
                f"{source['documents']:,}",
                *(f"{n:,}" for n in lost),
                f"{kept['documents']:,}",
                format_share(share, 1),
                format_amount(kept["tokens"]),
            ]
        )
    return rows


def drop_rows(manifest: Mapping[str, Any]) -> list[list[str]]:
    """One row a source and cause that dropped something, the most first."""
    rows = []
    for name, source in manifest["sources"].items():
        causes = [(c, n) for stage in source["funnel"] for c, n in stage["dropped"].items() if n["documents"]]
        for cause, lost in sorted(causes, key=lambda item: (-item[1]["documents"], item[0])):
            rows.append([name, cause, f"{lost['documents']:,}", format_amount(lost["bytes"])])
    return rows


def cell_rows(manifest: Mapping[str, Any]) -> list[list[str]]:
    """One row a cell and source."""
    return [
        [cell, source, f"{n['documents']:,}", format_amount(n["tokens"]), format_amount(n["bytes"])]
        for cell, sources in manifest["cells"].items()
        for source, n in sources.items()
    ]
