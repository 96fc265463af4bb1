"""`mixer verify`."""

import sys
from pathlib import Path

import click

from mixer.cli.options import manifest_argument


@click.command()
@manifest_argument
def verify(manifest: Path) -> None:
    """Re-hash every shard of MANIFEST and recount every number; exit 1 and name what differs.

    In its build folder the artifacts of all stages are checked too, and every number is counted again from the rows.

    \b
    Example:
      mixer verify build/latest/demo
    """
    from mixer.verify import verify as check

    checked, wrong = check(manifest)
    for line in wrong:
        click.echo(line)
    if wrong:
        click.echo(f"{len(wrong)} {'difference' if len(wrong) == 1 else 'differences'}")
        sys.exit(1)
    click.echo(f"verified: {', '.join(checked)}")
