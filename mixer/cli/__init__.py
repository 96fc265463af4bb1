"""The `mixer` command: a thin layer over the packages, one module a group of commands.

Nothing heavy is imported until a command runs, so that `mixer --help` answers at once.
"""

import importlib
import sys
from typing import Any

import click

COMMANDS = {
    "build": "mixer.cli.build",
    "sample": "mixer.cli.build",
    "plan": "mixer.cli.plan",
    "inspect": "mixer.cli.inspect",
    "verify": "mixer.cli.verify",
    "explain": "mixer.cli.explain",
    "trace": "mixer.cli.trace",
    "amend": "mixer.cli.amend",
    "schema": "mixer.cli.schema",
}
SUMMARIES = {
    "build": "Build a mixture: stages, plan, shards, manifest.",
    "sample": "The same line on the first shards of every source, with every check.",
    "plan": "The integers of a mixture, and which stages a build would run.",
    "inspect": "What is in a mixture, as tables.",
    "verify": "Re-hash every shard and recount every number of a manifest.",
    "explain": "Why a document is in or out, and where its tokens are.",
    "trace": "What a training step saw, or when a document is seen.",
    "amend": "Change the mixture of a run that is under way.",
    "schema": "JSON Schema of a spec or of the manifest.",
}


class _Lazy(click.Group):
    """A group that imports a command's module when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(COMMANDS[name]), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(SUMMARIES.items()))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        import difflib

        near = difflib.get_close_matches(args[0], list(COMMANDS), n=1) if args else []
        if args and args[0] not in COMMANDS and near:
            ctx.fail(f"there is no command {args[0]!r}; did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="mixer", message="%(prog)s %(version)s")
def cli() -> None:
    """Raw text sources in; filtered, deduplicated, tokenized and mixed training data out, with a manifest.

    \b
    Example:
      mixer build mixtures/demo.yaml
      mixer inspect build/latest/demo
    """


def main() -> None:
    """Entry point: a mistake of the user ends in its words and exit code 1, without a traceback."""
    from stages.errors import UserError

    try:
        cli(prog_name="mixer")
    except UserError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
