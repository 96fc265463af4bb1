"""`mixer explain`."""

import json
from pathlib import Path
from typing import Any

import click

from mixer.cli.options import json_option, manifest_argument


@click.command()
@manifest_argument
@click.argument("document")
@json_option
def explain(manifest: Path, document: str, as_json: bool) -> None:
    """Tell why a document is in or out: each stage's columns, and where its tokens are.

    DOCUMENT is an id as it stands in the pieces of a shard, or its first 8 or more digits.

    \b
    Example:
      mixer explain build/latest/demo 3f2a91c07b5d4e68
    """
    from mixer.explain import explain as find

    found = find(manifest, document)
    if as_json:
        click.echo(json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False))
    else:
        _show(found)


def _show(found: dict[str, Any]) -> None:
    click.echo(f"document {found['id']}")
    for occurrence in found["occurrences"]:
        state = "kept" if occurrence["kept"] else f"dropped: {', '.join(occurrence['causes'])}"
        click.echo(f"\n{occurrence['source']}, position {occurrence['position']}: {state}")
        click.echo(f"  from {occurrence['file']}, row {occurrence['row']}, id {occurrence['source_id']}")
        click.echo(f"  {occurrence['bytes']} bytes: {json.dumps(occurrence['text'][:100], ensure_ascii=False)}")
        for stage in ("exact_duplicates", "near_duplicates"):
            kept = occurrence["columns"][stage]
            if kept["kept_source"] is not None:
                near = f", similarity {kept['similarity']:.4f}" if "similarity" in kept else ""
                click.echo(f"  the kept copy is in {kept['kept_source']}, position {kept['kept_position']}{near}")
        for stage, columns in occurrence["columns"].items():
            shown = {k: v for k, v in columns.items() if v is not None and v is not False}
            for key, value in shown.items():
                text = f"{value:.4g}" if isinstance(value, float) else str(value)
                click.echo(f"  {stage:<17} {key:<45} {text}")
    stored = found["store"]
    if stored is None:
        click.echo("\nnot in the store")
        return
    span = f"tokens {stored['offset']} to {stored['offset'] + stored['length']}"
    click.echo(f"\nin the store: cell {stored['cell']}, {span} of {stored['file']}")
    if found["domain"] is None:
        click.echo("no domain of this mixture has that cell")
        return
    click.echo(f"in the {found['split']} split of domain {found['domain']}: {len(found['sequences'])} pieces")
    for piece in found["sequences"]:
        where = "" if piece["shard"] is None else f", in {piece['shard']}"
        click.echo(f"  sequence {piece['position']}, its tokens {piece['start']} to {piece['end']}{where}")
