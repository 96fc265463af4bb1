"""The line of a corpus: from the spec to the recipes of all its stages, and from the recipes to a token store.

Planning reads the spec, lists the sources and digests their bytes; nothing is computed from text. Every recipe, and
with it every folder, is known before a stage runs. Running then makes the artifacts that are not there yet.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from stages import exact_duplicates, ingest, store
from stages.artifact import Artifact, committed, find, finish
from stages.audit import check_ceilings, check_conservation
from stages.columns import ColumnPass, ColumnStage, DocumentShard
from stages.corpus import CorpusSpec, SourceSpec
from stages.documents import document_shards, shard_name
from stages.exact_duplicates import FindDuplicates, ScatterDuplicates, SortIds, SourceShard
from stages.filtering import Filtering
from stages.ingest import Ingest
from stages.metrics import Metrics, measure_configs
from stages.recipe import Recipe
from stages.sources.identity import Identity, identity
from stages.sources.listing import Listing, list_files
from stages.sources.units import plan_units
from stages.store import Assemble, Select, StoreShard, plan_parts
from stages.task import Task
from stages.tokenizer_file import locate_tokenizer
from stages.tokenizing import Tokenize, TokenizerFile

STAGES = ("ingest", "metrics", "filters", "tokenize", "exact_duplicates", "store")
SAMPLE_BYTES = 1 << 20


class Engine(Protocol):
    """What runs tasks; see `stages.engine`."""

    def run(self, stage: str, log: str, tasks: Sequence[Task]) -> None: ...


@dataclass(frozen=True)
class SourcePlan:
    """One source: its files, their identity, and the recipes of the stages that need no other source."""

    name: str
    spec: SourceSpec
    listing: Listing
    identity: Identity
    ingest: Recipe
    metrics: Metrics
    filters: Filtering
    tokenize: Tokenize

    @property
    def raw(self) -> dict[str, int]:
        """The source's files as they are stored, and their bytes."""
        return {"files": len(self.listing.files), "raw_bytes": sum(f.bytes for f in self.listing.files)}

    @property
    def columns(self) -> tuple[Metrics, Filtering, Tokenize]:
        """The column stages, in the order in which they see a document."""
        return (self.metrics, self.filters, self.tokenize)


@dataclass(frozen=True)
class CorpusPlan:
    """All recipes of a corpus, by source name where they belong to one. `sample` is the number of units read of each
    source, or None for all."""

    spec: CorpusSpec
    tokenizer: TokenizerFile
    sources: Mapping[str, SourcePlan]
    sample: int | None

    @cached_property
    def exact_duplicates(self) -> Recipe:
        inputs = {name: (s.spec.priority, s.ingest.digest, s.filters.recipe.digest) for name, s in self.sources.items()}
        return exact_duplicates.recipe(self.spec.corpus, inputs)

    @cached_property
    def store(self) -> Recipe:
        inputs = {"exact_duplicates": self.exact_duplicates.digest}
        tokens = {name: s.tokenize.recipe.digest for name, s in self.sources.items()}
        return store.recipe(self.spec.corpus, self.tokenizer.dtype.str, self.spec.cells, inputs | {"tokenize": tokens})

    def recipes(self) -> list[Recipe]:
        """Every recipe, in the order in which a build makes them."""
        plans = self.sources.values()
        own = [s.ingest for s in plans] + [c.recipe for i in range(3) for c in (s.columns[i] for s in plans)]
        return [*own, self.exact_duplicates, self.store]


def plan_corpus(
    spec: CorpusSpec, base: Path, cache: Path, sample: int | None = None, rehash: bool = False
) -> CorpusPlan:
    """Resolve a corpus spec into recipes. `base` is the folder of the spec file, `cache` holds fetched packages and the
    remembered digests of files.

    Raises UserError for what is missing or unreadable.
    """
    tokenizer = locate_tokenizer(spec.tokenizer, base, cache)
    plans = {}
    for name in sorted(spec.sources):
        source = spec.sources[name]
        listing = list_files(source.read, base, cache / "packages", name)
        identified = identity(listing, cache / "files.json", rehash=rehash)
        plans[name] = plan_source(name, source, spec.shard_bytes, tokenizer, listing, identified, sample)
    return CorpusPlan(spec, tokenizer, plans, sample)


def plan_source(
    name: str,
    spec: SourceSpec,
    shard_bytes: int,
    tokenizer: TokenizerFile,
    listing: Listing,
    identified: Identity,
    sample: int | None,
) -> SourcePlan:
    """The recipes of one source; of its files only the identity plays a part."""
    limits = {"units": sample, "bytes": SAMPLE_BYTES} if sample else None
    first = ingest.recipe(name, identified.digest, spec.normalize, spec.max_document, shard_bytes, limits)
    metrics = Metrics(name, first.digest, measure_configs(spec.filters))
    filters = Filtering(name, metrics.recipe.digest, spec.filters)
    tokens = Tokenize(name, first.digest, filters.recipe.digest, tokenizer)
    return SourcePlan(name, spec, listing, identified, first, metrics, filters, tokens)


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
        last = STAGES.index(until)
        self._ingest(artifacts)
        if last >= 1:
            self._columns(artifacts, STAGES[1 : min(last, 3) + 1])
        if last >= 4:
            self._exact_duplicates(artifacts)
            check_conservation(self.plan, artifacts)
            check_ceilings(self.plan, artifacts)
        if last >= 5:
            self._store(artifacts)
            check_conservation(self.plan, artifacts)
        return artifacts

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
            limit = SAMPLE_BYTES if self.plan.sample else None
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
        check_conservation(self.plan, artifacts)
        check_ceilings(self.plan, artifacts)

    def _unit_bytes(self) -> int:
        return SAMPLE_BYTES if self.plan.sample else self.plan.spec.shard_bytes

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
        folder, shards = self.root / recipe.folder, self.source_shards(artifacts)
        count = exact_duplicates.ranges(sum(s.rows for s in shards))
        sizes = {s.rank: 16 * s.rows for s in shards}
        sort, find_, scatter = (
            SortIds(folder),
            FindDuplicates(folder, shards, count),
            ScatterDuplicates(folder, shards, count),
        )
        steps = [
            [Task(exact_duplicates.sorted_task(s), sort, s, sizes[s.rank]) for s in shards],
            [Task(exact_duplicates.found_task(n), find_, n, sum(sizes.values()) // count) for n in range(count)],
            [Task(f"{s.source}/{s.name}", scatter, s, sizes[s.rank]) for s in shards],
        ]
        for tasks in steps:
            done = committed(folder)
            self._engine("exact_duplicates", recipe, [t for t in tasks if t.name not in done])
        artifacts[recipe.digest] = finish(self.root, recipe, [t.name for t in steps[-1]])

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
        duplicates = artifacts[self.plan.exact_duplicates.digest].folder
        shards = []
        for base in self.source_shards(artifacts):
            encoded = artifacts[self.plan.sources[base.source].tokenize.recipe.digest].folder
            shards.append(
                StoreShard(
                    base,
                    duplicates / base.source / f"{base.name}.parquet",
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
