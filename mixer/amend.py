"""Amending a mixture in mid-run: what was planned before a position stays, other phases hold from there on."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mixer.describe import make_manifest
from mixer.domains import Domains, cells_of_corpus, resolve_domains
from mixer.manifest import read_manifest, write_manifest
from mixer.plan import Run, Supply, cut, plan_run
from mixer.spec import MixtureSpec, load_phases
from mixer.writing import Writer
from stages.artifact import open_artifact
from stages.corpus import CorpusSpec
from stages.errors import UserError
from stages.line import Engine

MIXTURE_STAGES = ("stream", "order", "mixture")


def amend(path: Path, at: int, phases: Path, reason: str, engine: Callable[[], Engine]) -> Path:
    """Write a new manifest whose first `at` sequences are those of the old one, byte for byte, and return its path.

    Works in the build folder of the old manifest, whose store it reads; sources and corpus stay as they were. Raises
    UserError when the position is not inside the run, the phases cannot be planned, or the mixture is a rung or sample.
    """
    path = (path / "manifest.json" if path.is_dir() else path).resolve()
    old = read_manifest(path)
    if old["rung"] is not None or old["sample"] is not None:
        raise UserError(f"{path}: is a rung or a sample; amend the full run")
    root = path.parent.parent.parent
    record = next(r for r in old["stages"] if r["stage"] == "store")
    store = open_artifact(root, record["folder"], record["digest"])
    change = {"at": at, "reason": reason, "parent": old["root"], **load_phases(phases)}
    content = old["specs"]["mixture"]["spec"]
    try:
        spec = MixtureSpec.model_validate(content | {"amendments": [*content["amendments"], change]})
    except ValidationError as error:
        raise UserError(f"{phases}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
    corpus = CorpusSpec.model_validate(old["specs"]["corpus"]["spec"])
    domains = resolve_domains(spec, cells_of_corpus(corpus))
    supply = {name: _supply(d) for name, d in old["domains"].items()}
    run = plan_run(domains, supply)
    written = Writer(root, engine).write(domains, run, store, supply, old["materialized"])
    parts = {k: old[k] for k in ("sample", "tokenizer", "sources", "cells")}
    stages = [r for r in old["stages"] if r["stage"] not in MIXTURE_STAGES]
    described = parts | {"corpus": old["specs"]["corpus"], "stages": stages}
    document = make_manifest(described, written, log_of(domains, supply))
    write_manifest(written.artifact.folder / "manifest.json", document)
    return written.artifact.folder / "manifest.json"


def log_of(domains: Domains, supply: Mapping[str, Supply]) -> list[dict[str, Any]]:
    """The log of a spec with amendments: of each its parent, position, reason, and how far it moved the run that the
    amendments before it had led to. Raises UserError as `plan_run` does."""
    spec, log = domains.spec, []
    for i, change in enumerate(spec.amendments):
        old, new = (
            plan_run(replace(domains, spec=spec.model_copy(update={"amendments": spec.amendments[:n]})), supply)
            for n in (i, i + 1)
        )
        entry = {"parent": change.parent, "at": change.at, "reason": change.reason}
        log.append(entry | {"distance": str(distance(old, new))})
    return log


def distance(old: Run, new: Run) -> Fraction:
    """Half the L1 distance between the shares of the tokens that each run plans from the amended position on."""
    at = new.segments[-1].first
    shares = [_shares_from(run, at) for run in (old, new)]
    return sum((abs(shares[0][d] - shares[1][d]) for d in new.domains), Fraction(0)) / 2


def _shares_from(run: Run, at: int) -> dict[str, Fraction]:
    before = cut(run, at)
    tokens = run.tokens - before.tokens
    return {d: Fraction(run.tokens_of(d) - before.tokens_of(d), tokens) for d in run.domains}


def _supply(domain: dict[str, Any]) -> Supply:
    real, held = domain["realized"], domain["validation"]
    return Supply(real["documents"], domain["available_tokens"], held["documents"], held["tokens"])
