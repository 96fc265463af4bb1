"""Building a mixture: the corpus' line, the plan, the streams, the shards, and the manifest at the end."""

import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mixer import manifest as manifests
from mixer.expect import check_expectations
from mixer.order import ORDER_VERSION
from mixer.plan import Plan, Supply, check_supply, feasible_budget, plan_mixture
from mixer.shards import Mixture, WriteTrain, WriteValidation, mixture_recipe, plan_shards
from mixer.spec import MixtureSpec, load_mixture
from mixer.streams import Domain, Split, WriteStream, split_recipe, stream_recipe, stream_tasks, supply_of, whole_epochs
from stages.artifact import Artifact, committed, find, finish, write_json
from stages.corpus import CorpusSpec
from stages.line import STAGES, CorpusPlan, Engine, Line, plan_corpus
from stages.recipe import Recipe
from stages.task import Task

ALL_STAGES = (*STAGES, "mixture")


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

    spec: MixtureSpec = field(init=False)
    corpus: CorpusSpec = field(init=False)
    plan_of_corpus: CorpusPlan = field(init=False)

    def __post_init__(self) -> None:
        self.spec, self.corpus, base = load_mixture(self.path)
        self.plan_of_corpus = plan_corpus(self.corpus, base, self.cache, self.sample, self.rehash)

    @property
    def domains(self) -> tuple[Domain, ...]:
        return tuple(Domain(name, tuple(sorted(d.cells))) for name, d in sorted(self.spec.domains.items()))

    def run(self, until: str = "mixture") -> Path | None:
        """Make what is missing; return the manifest's path, or None when `until` stops before the mixture.

        Raises UserError for anything the user can mend.
        """
        begun = time.time()
        artifacts = Line(self.plan_of_corpus, self.root, self._engine).run(until if until in STAGES else "store")
        if until != "mixture":
            return None
        store = artifacts[self.plan_of_corpus.store.digest]
        split = self._split(store)
        supply = supply_of(split, store, self.domains)
        plan = self.plan(supply)
        mixture = self._mixture(store, plan, supply)
        recipe = mixture_recipe(self.spec.mixture, mixture, ORDER_VERSION)
        written = find(self.root, recipe) or self._write(recipe, mixture)
        facts = manifests.Facts(
            self.spec, self.corpus, self.plan_of_corpus, artifacts, split, plan, supply, mixture, written
        )
        document = manifests.make_manifest(facts)
        path = written.folder / "manifest.json"
        manifests.write_manifest(path, document)
        self._point(written.folder)
        if self.made:
            write_json(written.folder / "run.json", self._run_facts(begun))
        check_expectations(self.spec, document)
        return path

    def plan(self, supply: dict[str, Supply] | None) -> Plan:
        """The plan; with a supply it is checked against the caps, and a sample's budget is scaled to it."""
        if supply is None:
            return plan_mixture(self.spec)
        if self.sample:
            return plan_mixture(self.spec, feasible_budget(self.spec, supply))
        plan = plan_mixture(self.spec)
        check_supply(self.spec, plan, supply)
        return plan

    def recipes(self) -> list[Recipe]:
        """The recipes that are known without running anything, in the order of the build."""
        corpus = self.plan_of_corpus
        return [*corpus.recipes(), split_recipe(self.spec.mixture, corpus.store.digest, self.spec.validation)]

    def states(self) -> list[dict[str, Any]]:
        """Each recipe that is known beforehand, with whether its artifact is there."""
        return [
            {"stage": r.stage, "name": r.name, "digest": r.digest, "built": find(self.root, r) is not None}
            for r in self.recipes()
        ]

    def supply(self) -> dict[str, Supply] | None:
        """What the store holds for each domain, or None while it is not built."""
        store = find(self.root, self.plan_of_corpus.store)
        split = find(self.root, self.recipes()[-1])
        return supply_of(split, store, self.domains) if store and split else None

    def _split(self, store: Artifact) -> Artifact:
        recipe = self.recipes()[-1]
        work = Split(self.root / recipe.folder, store, self.spec.validation)
        tasks = [Task(s.name, work, s, 16 * s.rows) for s in store.shards]
        return self._make("split", recipe, tasks)

    def _mixture(self, store: Artifact, plan: Plan, supply: dict[str, Supply]) -> Mixture:
        streams, todo, width = {}, [], store.recipe["config"]["dtype"]
        for domain in self.domains:
            epochs = whole_epochs(plan.planned(domain.name) * plan.sequence_length, supply[domain.name].tokens)
            recipe = stream_recipe(domain, store.digest, self.spec.seed, self.spec.validation, epochs)
            found = find(self.root, recipe)
            if found is None:
                folder = self.root / recipe.folder
                work = WriteStream(folder, store, domain, self.spec.seed, self.spec.validation, epochs)
                todo.append((domain.name, recipe, stream_tasks(work, 16 * supply[domain.name].documents * epochs)))
            else:
                streams[domain.name] = found
        self._run("stream", None, [t for _, recipe, tasks in todo for t in self._left(recipe, tasks)])
        for name, recipe, tasks in todo:
            streams[name] = finish(self.root, recipe, [t.name for t in tasks])
        return Mixture(self.domains, plan.counts, plan.sequence_length, width, store, dict(sorted(streams.items())))

    def _write(self, recipe: Recipe, mixture: Mixture) -> Artifact:
        folder = self.root / recipe.folder
        train, validation = WriteTrain(folder, mixture), WriteValidation(folder, mixture)
        width = 4 * mixture.sequence_length
        tasks = [Task(name, train, span, width * (span[1] - span[0])) for name, span in plan_shards(mixture)]
        tasks += [Task(f"validation/{d.name}", validation, i, 0) for i, d in enumerate(mixture.domains)]
        return self._make("mixture", recipe, tasks)

    def _make(self, stage: str, recipe: Recipe, tasks: list[Task]) -> Artifact:
        found = find(self.root, recipe)
        if found is None:
            self._run(stage, recipe.folder, self._left(recipe, tasks))
            found = finish(self.root, recipe, [t.name for t in tasks])
        return found

    def _left(self, recipe: Recipe, tasks: list[Task]) -> list[Task]:
        done = committed(self.root / recipe.folder)
        return [t for t in tasks if t.name not in done]

    def _run(self, stage: str, log: str | None, tasks: list[Task]) -> None:
        if tasks:
            self._engine().run(stage, log or stage, tasks)

    def _engine(self) -> Engine:
        return _Recording(self.start_engine(), self.made)

    def _point(self, folder: Path) -> None:
        """`latest/NAME` leads to the folder of the mixture's newest build."""
        link = self.root / "latest" / self.spec.mixture
        link.parent.mkdir(parents=True, exist_ok=True)
        target = os.path.relpath(folder, link.parent)
        if link.is_symlink() and str(link.readlink()) == target:
            return
        fresh = link.with_name(f".{link.name}.{os.getpid()}")
        fresh.symlink_to(target)
        fresh.replace(link)

    def _run_facts(self, begun: float) -> dict[str, Any]:
        """What differs from run to run."""
        libraries = ("datatrove", "numba", "numpy", "pyarrow", "tokenizers")
        return {
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(begun)),
            "seconds": round(time.time() - begun, 3),
            "host": platform.node(),
            "platform": platform.platform(),
            "python": sys.version.split()[0],
            "libraries": {name: version(name) for name in libraries},
            "stages": sorted(set(self.made), key=self.made.index),
        }


@dataclass
class _Recording:
    """An engine that notes which stages had work."""

    engine: Engine
    made: list[str]

    def run(self, stage: str, log: str, tasks: Sequence[Task]) -> None:
        self.made.append(stage)
        self.engine.run(stage, log, tasks)
