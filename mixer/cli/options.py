"""Arguments that several commands share."""

from pathlib import Path

import click

spec_argument = click.argument("spec", type=click.Path(path_type=Path))
manifest_argument = click.argument("manifest", type=click.Path(path_type=Path))
out_option = click.option(
    "--out", type=click.Path(path_type=Path), default=Path("build"), show_default=True, help="Build folder."
)
workers_option = click.option("--workers", type=click.IntRange(1), help="Worker processes.  [default: all cores]")
engine_option = click.option(
    "--engine", type=click.Choice(["local"]), default="local", show_default=True, help="What runs the tasks."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
