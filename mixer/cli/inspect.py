"""`mixer inspect`."""

import json
from pathlib import Path

import click

from mixer.cli.options import json_option, manifest_argument


@click.command()
@manifest_argument
@json_option
def inspect(manifest: Path, as_json: bool) -> None:
    """Show what a mixture is made of: domains, phases, sources and what they lost, cells, shards.

    MANIFEST is a manifest.json or the folder that holds it.

    \b
    Example:
      mixer inspect build/latest/demo
    """
    from mixer.cli.tables import print_manifest
    from mixer.manifest import read_manifest

    data = read_manifest(manifest)
    if as_json:
        click.echo(json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False))
    else:
        print_manifest(data)
