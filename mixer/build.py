"""Building a mixture: the corpus' line, the plan, the streams, the shards, and the manifest at the end."""

import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mixer.amend import log_of
from mixer.cells import read_cells
from mixer.describe import describe_corpus, make_manifest
from mixer.domains import Domains, asked_shares, cells_of_corpus, needs_supply, resolve_domains
from mixer.expect import Expectation, check_expectations
from mixer.ladder import Rung, climb, find_rung
from mixer.manifest import write_manifest
from mixer.plan import Run, Supply, feasible_budget, plan_run
from mixer.spec import MixtureSpec, load_mixture_spec
from mixer.streams import Split, split_recipe, supply_of
from mixer.writing import Writer, domain_list
from stages.artifact import Artifact, find, write_json
from stages.corpus import CorpusSpec, resolve
from stages.corpus_plan import STAGES, CorpusPlan, plan_corpus
from stages.errors import UserError
from stages.line import Engine, Line
from stages.recipe import Recipe
from stages.specfile import load_spec
from stages.task import Task
from stages.tokenizing import keep_tokenizer


def load_mixture(path: Path) -> tuple[Domains, CorpusSpec, Path]:
    """A mixture's resolved domains, its corpus spec, and the folder of the corpus spec (its paths are relative to it).

    Raises UserError with file, line and key for every mistake, and when the mixture is planned from a table.
    """
    spec = load_mixture_spec(path)
    if spec.corpus is None:
        raise UserError(f"{path}: has `cells` instead of a corpus, so it can be planned (`mixer plan`) but not built")
    corpus_path = resolve(path.parent, spec.corpus)
    corpus = load_spec(corpus_path, CorpusSpec)
    domains = _resolve(path, spec, corpus)
    for expectation in spec.expect:
        _check_subject(path, expectation, domains, corpus)
    return domains, corpus, corpus_path.parent


def _resolve(path: Path, spec: MixtureSpec, corpus: CorpusSpec) -> Domains:
    try:
        domains = resolve_domains(spec, cells_of_corpus(corpus))
        if not needs_supply(spec):
            asked_shares(domains, spec.phases, spec.budget, None)
        return domains
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def load_table_plan(path: Path) -> tuple[Domains, Run, dict[str, Supply]]:
    """A mixture that is planned from a table of cells: its domains, run and supply."""
    spec = load_mixture_spec(path)
    table = read_cells(resolve(path.parent, spec.cells or ""))
    domains = resolve_domains(spec, table)
    supply = {leaf.name: Supply(0, sum(table.tokens[c] for c in leaf.cells)) for leaf in domains.leaves}
    return domains, plan_run(domains, supply), supply


def _check_subject(path: Path, expectation: Expectation, domains: Domains, corpus: CorpusSpec) -> None:
    known = list(corpus.sources) if expectation.source is not None else [leaf.name for leaf in domains.leaves]
    subject = expectation.source or expectation.domain
    if subject not in known:
        raise UserError(
            f"{path}: expect: {expectation.label}: there is no {subject!r}; there are {', '.join(sorted(known))}"
        )


@dataclass
class Build:
    """A mixture on its way, with its artifacts below `root`. `cache` holds fetched packages and remembered digests.
    `sample` reads so many units of every source and scales the budget to what they hold."""

    path: Path
    root: Path
    cache: Path
    start_engine: Callable[[], Engine]
    sample: int | None = None
    rehash: bool = False
    made: list[str] = field(default_factory=list)

    domains: Domains = field(init=False)
    corpus: CorpusSpec = field(init=False)
    line: CorpusPlan = field(init=False)

    def __post_init__(self) -> None:
        self.domains, self.corpus, base = load_mixture(self.path)
        self.line = plan_corpus(self.corpus, base, self.cache, self.sample, self.rehash)

    @property
    def spec(self) -> MixtureSpec:
        return self.domains.spec

    @cached_property
    def writer(self) -> Writer:
        return Writer(self.root, self._engine)

    def run(self, until: str = "mixture", materialize: bool = True, rung: str | None = None) -> Path | None:
        """Make what is missing; return the manifest's path, or None when `until` stops before the mixture. Without
        `materialize` the mixture stays virtual; `rung` builds one of the ladder.

        Raises UserError for anything the user can mend.
        """
        begun = time.time()
        artifacts = Line(self.line, self.root, self._engine).run(until if until in STAGES else "store")
        if until != "mixture":
            return None
        keep_tokenizer(self.root, self.line.tokenizer)
        store = artifacts[self.line.store.digest]
        split = self._split(store)
        supply = supply_of(split, store, domain_list(self.domains))
        run = self.plan(supply)
        pools = None
        if rung is not None:
            found = find_rung(self.spec, run, supply, rung)
            run, pools = found.run, found.pools
        written = self.writer.write(self.domains, run, store, supply, materialize, rung, pools)
        described = describe_corpus(self.corpus, self.line, artifacts, split)
        document = make_manifest(described, written, log_of(self.domains, supply))
        folder = written.artifact.folder
        write_manifest(folder / "manifest.json", document)
        point(self.root, self.spec.mixture if rung is None else f"{self.spec.mixture}-{rung}", folder)
        if self.made:
            write_json(folder / "run.json", run_facts(begun, self.made))
        if rung is None:
            check_expectations(self.spec.expect, document)
        return folder / "manifest.json"

    def plan(self, supply: dict[str, Supply] | None) -> Run:
        """The run; with a supply it keeps to the caps, and a sample's budget is scaled to it."""
        if supply is not None and self.sample:
            return plan_run(self.domains, supply, feasible_budget(self.domains, supply))
        return plan_run(self.domains, supply)

    def ladder(self, supply: dict[str, Supply] | None) -> list[Rung]:
        """The rungs of the ladder, the smallest first."""
        return climb(self.spec, self.plan(supply), supply)

    def recipes(self) -> list[Recipe]:
        """The recipes that are known without running anything, in the order of the build."""
        return [*self.line.recipes(), split_recipe(self.spec.mixture, self.line.store.digest, self.spec.validation)]

    def states(self) -> list[dict[str, Any]]:
        """Each recipe that is known beforehand, with whether its artifact is there."""
        return [
            {"stage": r.stage, "name": r.name, "digest": r.digest, "built": find(self.root, r) is not None}
            for r in self.recipes()
        ]

    def supply(self) -> dict[str, Supply] | None:
        """What the store holds for each domain, or None while it is not built."""
        store = find(self.root, self.line.store)
        split = find(self.root, self.recipes()[-1])
        return supply_of(split, store, domain_list(self.domains)) if store and split else None

    def _split(self, store: Artifact) -> Artifact:
        recipe = self.recipes()[-1]
        work = Split(self.root / recipe.folder, store, self.spec.validation)
        return self.writer.make(recipe, [Task(s.name, work, s, 16 * s.rows) for s in store.shards])

    def _engine(self) -> Engine:
        return Recording(self.start_engine(), self.made)


def point(root: Path, name: str, folder: Path) -> None:
    """Let `latest/NAME` lead to the folder of the mixture's newest build."""
    link = root / "latest" / name
    link.parent.mkdir(parents=True, exist_ok=True)
    target = os.path.relpath(folder, link.parent)
    if link.is_symlink() and str(link.readlink()) == target:
        return
    fresh = link.with_name(f".{link.name}.{os.getpid()}")
    fresh.symlink_to(target)
    fresh.replace(link)


def run_facts(begun: float, made: list[str]) -> dict[str, Any]:
    """What differs from run to run."""
    libraries = ("datatrove", "numba", "numpy", "pyarrow", "tokenizers")
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(begun)),
        "seconds": round(time.time() - begun, 3),
        "host": platform.node(),
        "platform": platform.platform(),
        "python": sys.version.split()[0],
        "libraries": {name: version(name) for name in libraries},
        "stages": sorted(set(made), key=made.index),
    }


@dataclass
class Recording:
    """An engine that notes which stages had work."""

    engine: Engine
    made: list[str]

    def run(self, stage: str, log: str, tasks: Sequence[Task]) -> None:
        self.made.append(stage)
        self.engine.run(stage, log, tasks)
