"""The line of a corpus: from the recipes of a plan to a token store, making the artifacts that are not there yet."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from stages import corpus_plan, exact_duplicates, near_duplicates
from stages.artifact import Artifact, committed, find, finish
from stages.audit import check_ceilings, check_conservation
from stages.columns import ColumnPass, ColumnStage, DocumentShard
from stages.corpus_plan import STAGES, CorpusPlan
from stages.documents import document_shards, shard_name
from stages.exact_duplicates import SourceShard
from stages.ingest import Ingest
from stages.near_duplicates import NearShard
from stages.recipe import Recipe
from stages.sources.units import plan_units
from stages.store import Assemble, Select, StoreShard, plan_parts
from stages.task import Task


class Engine(Protocol):
    """What runs tasks; see `stages.engine`."""

    def run(self, stage: str, log: str, tasks: Sequence[Task]) -> None: ...


@dataclass
class Line:
    """Makes the artifacts of a plan that are not there yet. `engine` is started when the first task needs it."""

    plan: CorpusPlan
    root: Path
    start_engine: Callable[[], Engine]

    def run(self, until: str = "store") -> dict[str, Artifact]:
        """Run the stages up to and including `until`; return the artifacts by recipe digest.

        Raises UserError when a ceiling is passed, a count does not add up, or a shard cannot be written.
        """
        artifacts: dict[str, Artifact] = {}
        wanted = STAGES[: STAGES.index(until) + 1]
        self._ingest(artifacts)
        self._check(artifacts)
        self._columns(artifacts, wanted)
        for stage, make in (
            ("exact_duplicates", self._exact_duplicates),
            ("near_duplicates", self._near_duplicates),
            ("store", self._store),
        ):
            if stage in wanted:
                make(artifacts)
                self._check(artifacts)
        return artifacts

    def _check(self, artifacts: Mapping[str, Artifact]) -> None:
        check_conservation(self.plan, artifacts)
        check_ceilings(self.plan, artifacts)

    def _engine(self, stage: str, recipe: Recipe | None, tasks: Sequence[Task]) -> None:
        if tasks:
            log = recipe.folder if recipe else stage
            self.start_engine().run(stage, log, tasks)

    def _ingest(self, artifacts: dict[str, Artifact]) -> None:
        tasks, expected = [], {}
        for source in self.plan.sources.values():
            if self._found(source.ingest, artifacts):
                continue
            units = plan_units(source.listing, self._unit_bytes())[: self.plan.sample]
            folder = self.root / source.ingest.folder
            done = committed(folder)
            limit = corpus_plan.SAMPLE_BYTES if self.plan.sample else None
            work = Ingest(
                source.listing,
                source.spec.normalize,
                folder,
                source.spec.max_document,
                self.plan.spec.shard_bytes,
                limit,
            )
            expected[source.name] = [f"{i:05d}" for i in range(len(units))]
            tasks += [
                Task(name, work, unit, unit.bytes)
                for name, unit in zip(expected[source.name], units, strict=True)
                if name not in done
            ]
        self._engine("ingest", None, tasks)
        for name, units_done in expected.items():
            source = self.plan.sources[name]
            made = finish(self.root, source.ingest, units_done, source.raw)
            artifacts[made.digest] = made

    def _unit_bytes(self) -> int:
        return corpus_plan.SAMPLE_BYTES if self.plan.sample else self.plan.spec.shard_bytes

    def _columns(self, artifacts: dict[str, Artifact], stages: Sequence[str]) -> None:
        tasks, expected = [], []
        for source in self.plan.sources.values():
            columns: list[ColumnStage] = [c for c in source.columns if c.recipe.stage in stages]
            finished = frozenset(c.recipe.stage for c in columns if self._found(c.recipe, artifacts))
            if len(finished) == len(columns):
                continue
            documents = artifacts[source.ingest.digest]
            shards = document_shards(documents)
            folders = {c.recipe.stage: self.root / c.recipe.folder for c in columns}
            work = ColumnPass(source.name, columns, folders, finished)
            expected += [(c.recipe, [shard_name(s) for s in shards]) for c in columns if c.recipe.stage not in finished]
            for shard in shards:
                payload = DocumentShard(shard_name(shard), documents.path(shard, ".parquet"), shard.rows)
                tasks.append(Task(f"{source.name}/{payload.name}", work, payload, shard.counters["bytes"]))
        self._engine("columns", None, tasks)
        for recipe, names in expected:
            made = finish(self.root, recipe, names)
            artifacts[made.digest] = made

    def _exact_duplicates(self, artifacts: dict[str, Artifact]) -> None:
        recipe = self.plan.exact_duplicates
        if self._found(recipe, artifacts):
            return
        artifacts[recipe.digest] = self._steps(
            recipe, exact_duplicates.steps(self.root / recipe.folder, self.source_shards(artifacts))
        )

    def _near_duplicates(self, artifacts: dict[str, Artifact]) -> None:
        recipe = self.plan.near_duplicates
        if self._found(recipe, artifacts):
            return
        duplicates = artifacts[self.plan.exact_duplicates.digest].folder
        shards = []
        for base in self.source_shards(artifacts):
            source = self.plan.sources[base.source]
            signed = artifacts[source.signatures.recipe.digest].folder
            shards.append(
                NearShard(
                    base,
                    source.spec.priority,
                    duplicates / base.source / f"{base.name}.parquet",
                    signed / f"{base.name}.parquet",
                    signed / f"{base.name}.bin",
                    source.spec.near_duplicates,
                )
            )
        artifacts[recipe.digest] = self._steps(recipe, near_duplicates.steps(self.root / recipe.folder, shards))

    def _steps(self, recipe: Recipe, steps: Iterable[list[Task]]) -> Artifact:
        """Run a stage over all sources step by step; the tasks of the last step write the shards that stay."""
        last: list[Task] = []
        for last in steps:
            done = committed(self.root / recipe.folder)
            self._engine(recipe.stage, recipe, [t for t in last if t.name not in done])
        return finish(self.root, recipe, [t.name for t in last])

    def source_shards(self, artifacts: Mapping[str, Artifact]) -> list[SourceShard]:
        """All document shards in the order of survival: source priority, source name, shard."""
        shards: list[SourceShard] = []
        for source in sorted(self.plan.sources.values(), key=lambda s: (-s.spec.priority, s.name)):
            documents, filters = artifacts[source.ingest.digest], artifacts[source.filters.recipe.digest]
            position = 0
            for shard in document_shards(documents):
                name = shard_name(shard)
                path = filters.folder / f"{name}.parquet"
                shards.append(
                    SourceShard(
                        len(shards),
                        source.name,
                        name,
                        documents.path(shard, ".parquet"),
                        path,
                        shard.rows,
                        position,
                    )
                )
                position += shard.rows
        return shards

    def _store(self, artifacts: dict[str, Artifact]) -> None:
        recipe = self.plan.store
        if self._found(recipe, artifacts):
            return
        folder, cells = self.root / recipe.folder, sorted(self.plan.sources)
        exact, near = (artifacts[r.digest].folder for r in (self.plan.exact_duplicates, self.plan.near_duplicates))
        shards = []
        for base in self.source_shards(artifacts):
            encoded = artifacts[self.plan.sources[base.source].tokenize.recipe.digest].folder
            shards.append(
                StoreShard(
                    base,
                    exact / base.source / f"{base.name}.parquet",
                    near / base.source / f"{base.name}.parquet",
                    encoded / f"{base.name}.parquet",
                    encoded / f"{base.name}.bin",
                    base.source,
                )
            )
        done = committed(folder)
        select = Select(folder, cells)
        tasks = [Task(s.name, select, s, 64 * s.base.rows) for s in shards if s.name not in done]
        self._engine("store", recipe, tasks)
        totals = dict.fromkeys(cells, 0)
        dropped: dict[str, dict[str, int]] = {}
        selections = committed(folder)
        for selected in (made for shard in shards for made in selections[shard.name]):
            for cell, tokens in selected.counters["tokens"].items():
                totals[cell] += tokens
            causes = dropped.setdefault(selected.counters["source"], {})
            for cause, tokens in selected.counters["dropped_tokens"].items():
                causes[cause] = causes.get(cause, 0) + tokens
        parts = plan_parts(totals)
        assemble = Assemble(folder, shards, self.plan.tokenizer.dtype.str)
        parts_left = [p for p in parts if p.name not in done]
        width = self.plan.tokenizer.dtype.itemsize
        tasks = [Task(p.name, assemble, p, width * totals[p.cell] // p.count) for p in parts_left]
        self._engine("store", recipe, tasks)
        artifacts[recipe.digest] = finish(self.root, recipe, [p.name for p in parts], {"dropped_tokens": dropped})

    def _found(self, recipe: Recipe, artifacts: dict[str, Artifact]) -> bool:
        found = find(self.root, recipe)
        if found is not None:
            artifacts[recipe.digest] = found
        return found is not None
