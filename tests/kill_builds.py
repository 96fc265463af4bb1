"""Builds that are killed: `python kill_builds.py SPEC OUT CASE...` where a case is `WHAT:COUNT`.

For each case a child builds SPEC into OUT/CASE and ends itself with SIGKILL at the COUNT-th event of a kind: the commit
of a stage's task (WHAT is the stage), `write` (a piece of any file), or `artifact` (just before an artifact.json).
One build is made first, so that the children find everything loaded, and so that one that is to die in a stage after
the columns starts with a copy of what comes before it.
"""

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mixer.build
import stages.engine
from mixer.cli.progress import PlainProgress
from stages import artifact

STAGES = ("exact_duplicates", "near_duplicates", "store", "split", "stream", "order", "mixture")


def _after(count: int, counts: Callable[..., bool], real: Callable[..., Any], first: bool) -> Callable[..., Any]:
    """`real`, but the process dies at the `count`-th call that counts: before it when `first`, otherwise after it."""
    seen = 0

    def call(*args: Any, **options: Any) -> Any:
        nonlocal seen
        seen += counts(*args)
        if first and seen == count and counts(*args):
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*args, **options)
        if seen == count and counts(*args):
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return call


def _replace(name: str, changed: Callable[..., Any]) -> None:
    real = getattr(artifact, name)
    for module in list(sys.modules.values()):
        if getattr(module, name, None) is real:
            setattr(module, name, changed)


def _build(spec: Path, out: Path, what: str, count: int) -> None:
    if what == "write":
        artifact.HashingFile.write = _after(count, lambda *_: True, artifact.HashingFile.write, False)  # type: ignore[method-assign]
    elif what == "artifact":
        _replace("write_json", _after(count, lambda p, _: p.name == "artifact.json", artifact.write_json, True))
    elif what:
        _replace("commit", _after(count, lambda folder, *_: folder.parent.name == what, artifact.commit, False))
    with stages.engine.LocalEngine(out / "logs", 1, PlainProgress()) as engine:
        mixer.build.Build(spec, out, out / "cache", lambda: engine).run()


def _begin(whole: Path, out: Path, what: str) -> None:
    """What a build has before it comes to a stage."""
    if what in STAGES:
        later = STAGES[STAGES.index(what) :]
        for folder in whole.iterdir():
            if folder.is_dir() and folder.name not in (*later, "latest", "logs"):
                shutil.copytree(folder, out / folder.name)


def main() -> None:
    spec, out, *cases = sys.argv[1:]
    whole = Path(out) / "whole"
    _build(Path(spec), whole, "", 0)
    for case in cases:
        what, _, count = case.partition(":")
        _begin(whole, Path(out) / case, what)
        child = os.fork()
        if not child:
            _build(Path(spec), Path(out) / case, what, int(count))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            sys.exit(f"{case}: the build was not killed: {status}")


if __name__ == "__main__":
    main()
