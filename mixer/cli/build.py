"""`mixer build` and `mixer sample`."""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from mixer.cli.options import engine_option, out_option, spec_argument, workers_option
from stages.errors import UserError

STAGES = (
    "ingest",
    "metrics",
    "filters",
    "tokenize",
    "signatures",
    "exact_duplicates",
    "near_duplicates",
    "store",
    "mixture",
)


@click.command()
@spec_argument
@out_option
@workers_option
@engine_option
@click.option("--until", type=click.Choice(STAGES), default="mixture", show_default=True, help="Last stage to run.")
@click.option("--no-materialize", is_flag=True, help="Stop at the virtual mixture: order and streams, no shards.")
@click.option("--rung", metavar="NAME", help="Build this rung of the spec's ladder instead of the full run.")
@click.option("--rehash", is_flag=True, help="Read the sources' files again instead of trusting size and time.")
def build(
    spec: Path,
    out: Path,
    workers: int | None,
    engine: str,
    until: str,
    no_materialize: bool,
    rung: str | None,
    rehash: bool,
) -> None:
    """Build the mixture of SPEC into the build folder.

    Stages whose recipe has an artifact are not run again, and a build that was killed goes on where it stopped. Ends
    with a table of the domains and the path of manifest.json.

    \b
    Example:
      mixer build mixtures/demo.yaml --workers 2
    """
    how = {"until": until, "materialize": not no_materialize, "rung": rung}
    _run(spec, out, out / "cache", workers, engine, how, rehash=rehash)


@click.command()
@spec_argument
@click.option("--shards", type=click.IntRange(1), default=1, show_default=True, help="Shards of 1 MB of every source.")
@out_option
@workers_option
@engine_option
def sample(spec: Path, shards: int, out: Path, workers: int | None, engine: str) -> None:
    """Build SPEC from the first shards of every source, in OUT/sample.

    Runs every stage and every check of `mixer build`. The budget is cut to the largest one at which no domain passes
    its max_epochs, so shares are those of the real run and totals are not.

    \b
    Example:
      mixer sample mixtures/demo.yaml --shards 1
    """
    _run(spec, out / "sample", out / "cache", workers, engine, {}, sample=shards)


def _run(
    spec: Path, root: Path, cache: Path, workers: int | None, engine: str, how: dict[str, Any], **what: Any
) -> None:
    from mixer.build import Build
    from mixer.cli.tables import print_summary

    with running(root, workers, engine) as start_engine:
        job = Build(spec, root, cache, start_engine, **what)
        manifest = job.run(**how)
    if manifest is None:
        until = how["until"]
        click.echo(f"built until {until}" if job.made else f"nothing to do: every stage until {until} is built")
    else:
        print_summary(manifest, job.made)


@contextlib.contextmanager
def running(root: Path, workers: int | None, engine: str) -> Iterator[Callable[[], Any]]:
    """The build folder to oneself, and an engine that starts when the first task needs it."""
    with _only_build_in(root), contextlib.ExitStack() as stack:
        started: list[Any] = []

        def start_engine() -> Any:
            if not started:
                from mixer.cli.progress import progress
                from stages.engine import ENGINES

                made = ENGINES[engine](root / "logs", workers or os.cpu_count() or 1, progress())
                started.append(stack.enter_context(made))
            return started[0]

        yield start_engine


@contextlib.contextmanager
def _only_build_in(root: Path) -> Iterator[None]:
    """Two builds in one folder take turns; the lock goes with the process, however it ends."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = (root / ".lock").open("w")
    except OSError as error:
        raise UserError(f"{root}: cannot be a build folder: {error.strerror}; choose another with --out") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            click.echo(f"another build works in {root}; waiting for it", err=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
