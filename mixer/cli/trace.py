"""`mixer trace`."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import click

from mixer.cli.options import json_option, manifest_argument
from stages.errors import UserError


@click.command()
@manifest_argument
@click.option("--step", type=click.IntRange(0), help="Tell what this training step saw.")
@click.option("--batch-size", type=click.IntRange(1), help="Sequences in a step.")
@click.option("--document", metavar="ID", help="Tell at which steps this document is seen.")
@click.option("--show", type=click.IntRange(0), default=0, help="Print the text of so many pieces of the step.")
@json_option
def trace(
    manifest: Path, step: int | None, batch_size: int | None, document: str | None, show: int, as_json: bool
) -> None:
    """Tell what the model saw at a step, or when it sees a document.

    For somebody who watches a loss curve: the domains, sources, documents and epochs behind one step.

    \b
    Example:
      mixer trace build/latest/demo --step 500 --batch-size 4 --show 3
      mixer trace build/latest/demo --document 4796c278 --batch-size 4
    """
    from mixer.trace import text_of, trace_document, trace_step

    if (step is None) == (document is None):
        raise UserError("say --step with --batch-size, or --document")
    if document is not None:
        found = trace_document(manifest, document, batch_size)
        click.echo(json.dumps(found, indent=1, ensure_ascii=False)) if as_json else _show_document(found)
        return
    if step is None or batch_size is None:
        raise UserError("--step needs --batch-size: how many sequences the trainer takes in a step")
    found = trace_step(manifest, step, batch_size)
    if as_json:
        click.echo(json.dumps(found, indent=1, ensure_ascii=False))
        return
    _show_step(found)
    for piece in found["pieces"][:show]:
        click.echo(f"--- {piece['id']} of {piece['source']}, its tokens {piece['start']} to {piece['end']}")
        click.echo(text_of(manifest, piece))


def _show_step(found: dict[str, Any]) -> None:
    from mixer.cli.tables import show_table
    from stages.quantity import format_share

    last = found["first"] + found["sequences"] - 1
    title = f"step {found['step']}: sequences {found['first']:,} to {last:,}, {found['tokens']:,} tokens, "
    title += f"phase {' and '.join(found['phases'])}"
    rows = []
    for name, row in found["domains"].items():
        low, high = found["epochs"].get(name, [None, None])
        epoch = "" if low is None else str(low) if low == high else f"{low} to {high}"
        share = format_share(Fraction(row["share"]))
        rows.append([name, f"{row['sequences']:,}", f"{row['tokens']:,}", share, f"{row['documents']:,}", epoch])
    show_table(title, ["domain", "sequences", "tokens", "share", "documents", "epoch"], rows)
    rows = [
        [name, f"{row['tokens']:,}", format_share(Fraction(row["share"])), f"{row['documents']:,}"]
        for name, row in found["sources"].items()
    ]
    show_table("sources", ["source", "tokens", "share", "documents"], rows)
    rows = [
        [p["id"], p["source"], p["domain"], f"{p['position']:,}", f"{p['start']:,}", f"{p['end']:,}", str(p["epoch"])]
        for p in found["pieces"][:20]
    ]
    show_table("documents", ["id", "source", "domain", "sequence", "from", "to", "epoch"], rows, left=3)
    if len(found["pieces"]) > 20:
        click.echo(f"and {len(found['pieces']) - 20:,} more pieces; --json lists all")


def _show_document(found: dict[str, Any]) -> None:
    from mixer.cli.tables import show_table

    rows = [
        [
            f"{s['position']:,}",
            f"{s['step']:,}" if s.get("step") is not None else "",
            str(s["epoch"]),
            f"{s['start']:,}",
            f"{s['end']:,}",
        ]
        for s in found["seen"]
    ]
    title = f"{found['id']} of {found['source']}, domain {found['domain']}, {found['tokens']:,} tokens"
    show_table(title, ["sequence", "step", "epoch", "from token", "to token"], rows, left=0)
    if not rows:
        click.echo("it is in the store and in no training sequence: held out, or its domain's stream ends before it")
