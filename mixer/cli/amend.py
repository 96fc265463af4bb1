"""`mixer amend`."""

from pathlib import Path

import click

from mixer.cli.options import engine_option, manifest_argument, workers_option


@click.command()
@manifest_argument
@click.option("--at", type=click.IntRange(1), required=True, help="First sequence that follows the new phases.")
@click.option("--phases", type=click.Path(path_type=Path), required=True, help="YAML with the new `phases`.")
@click.option("--reason", required=True, help="Why, for the log.")
@workers_option
@engine_option
def amend(manifest: Path, at: int, phases: Path, reason: str, workers: int | None, engine: str) -> None:
    """Change the mixture of a run that is under way: a new manifest, equal to MANIFEST before sequence AT.

    The file of phases may also give a new `sequence_length` and a `budget` for what is left. Domains keep their place
    in their streams. The log in the new manifest tells position, reason, parent and how far the weights moved.

    \b
    Example:
      mixer amend build/latest/demo --at 2000 --phases mixtures/more-code.yaml --reason "code loss is flat"
    """
    from mixer.amend import amend as change
    from mixer.cli.build import running
    from mixer.cli.tables import print_summary
    from mixer.manifest import read_manifest

    read_manifest(manifest)
    root = (manifest if manifest.is_dir() else manifest.parent).resolve().parent.parent
    with running(root, workers, engine) as start_engine:
        path = change(manifest, at, phases, reason, start_engine)
    print_summary(path, ["mixture"])
