"""Writing a planned run: its domains' streams, its order, and its shards."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mixer.describe import Written
from mixer.domains import Domains
from mixer.mixture import Mixture, WriteOrder, order_recipe, segment_name
from mixer.plan import Run, Supply
from mixer.shards import WriteTrain, WriteValidation, mixture_recipe, plan_shards
from mixer.spec import MixtureSpec
from mixer.streams import Domain, WriteStream, stream_recipe, stream_tasks, whole_epochs
from stages.artifact import Artifact, committed, find, finish
from stages.line import Engine
from stages.recipe import Recipe
from stages.task import Task


def domain_list(domains: Domains) -> tuple[Domain, ...]:
    """The leaves of the spec as the domains that streams are made of."""
    return tuple(Domain(leaf.name, tuple(sorted(leaf.cells))) for leaf in domains.leaves)


@dataclass
class Writer:
    """Makes what is missing of a mixture below `root`. `engine` is asked for when there is a task."""

    root: Path
    engine: Callable[[], Engine]

    def write(
        self,
        domains: Domains,
        run: Run,
        store: Artifact,
        supply: Mapping[str, Supply],
        materialize: bool = True,
        rung: str | None = None,
        pools: Mapping[str, int] | None = None,
    ) -> Written:
        """The streams, the order and, unless the mixture stays virtual, the shards of a run."""
        spec = domains.spec
        streams = self._streams(domains, run, store, supply, pools)
        recipe = order_recipe(spec.mixture, run.domains, run.segments)
        tasks = [
            Task(segment_name(i), WriteOrder(self.root / recipe.folder, s.plan), i, s.plan.sequences)
            for i, s in enumerate(run.segments)
        ]
        orders = self.make(recipe, tasks)
        dtype = store.recipe["config"]["dtype"]
        mixture = Mixture(domain_list(domains), run.segments, dtype, store, streams, orders)
        artifact = self._shards(spec, mixture, materialize)
        return Written(spec, domains, run, supply, mixture, artifact, materialize, rung, pools)

    def _streams(
        self,
        domains: Domains,
        run: Run,
        store: Artifact,
        supply: Mapping[str, Supply],
        pools: Mapping[str, int] | None,
    ) -> dict[str, Artifact]:
        streams, todo, spec = {}, [], domains.spec
        for domain in domain_list(domains):
            pool = None if pools is None else pools[domain.name]
            epochs = whole_epochs(run.tokens_of(domain.name), supply[domain.name].tokens if pool is None else pool)
            recipe = stream_recipe(domain, store.digest, spec.seed, spec.validation, epochs, pool)
            found = find(self.root, recipe)
            if found is None:
                folder = self.root / recipe.folder
                work = WriteStream(folder, store, domain, spec.seed, spec.validation, epochs, pool)
                todo.append((domain.name, recipe, stream_tasks(work, 16 * supply[domain.name].documents * epochs)))
            else:
                streams[domain.name] = found
        left = [t for _, recipe, tasks in todo for t in self._left(recipe, tasks)]
        if left:
            self.engine().run("stream", "stream", left)
        for name, recipe, tasks in todo:
            streams[name] = finish(self.root, recipe, [t.name for t in tasks])
        return dict(sorted(streams.items()))

    def _shards(self, spec: MixtureSpec, mixture: Mixture, materialize: bool) -> Artifact:
        amendments = [a.model_dump(mode="json") for a in spec.amendments]
        recipe = mixture_recipe(spec.mixture, mixture, materialize, amendments)
        tasks = []
        if materialize:
            folder = self.root / recipe.folder
            train, validation = WriteTrain(folder, mixture), WriteValidation(folder, mixture)
            lengths = [s.plan.sequence_length for s in mixture.segments]
            for shard, span in plan_shards(mixture):
                tasks.append(Task(shard, train, span, 4 * lengths[span.segment] * (span.stop - span.start)))
            tasks += [Task(f"validation/{n}", validation, i, 0) for i, n in enumerate(mixture.names)]
        return self.make(recipe, tasks)

    def make(self, recipe: Recipe, tasks: list[Task]) -> Artifact:
        """The artifact of a recipe, its missing tasks run first."""
        found = find(self.root, recipe)
        if found is None:
            left = self._left(recipe, tasks)
            if left:
                self.engine().run(recipe.stage, recipe.folder, left)
            found = finish(self.root, recipe, [t.name for t in tasks])
        return found

    def _left(self, recipe: Recipe, tasks: list[Task]) -> list[Task]:
        done = committed(self.root / recipe.folder)
        return [t for t in tasks if t.name not in done]
