"""Column stages: documents in, columns out, row for row.

All column stages of a source go over its text in one pass: a row group is read once and handed from stage to stage,
each seeing the columns of those before it. A stage whose artifact exists is not run again; when a later one needs its
columns, they are read back from its shards. Artifacts and identities stay apart.
"""

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from stages.artifact import File, HashingFile, ParquetShard, Shard, commit, committed, new_file
from stages.documents import read_groups
from stages.errors import UserError
from stages.funnel import Funnel
from stages.recipe import Recipe, digest_of
from stages.task import Task


@dataclass
class Columns:
    """What a stage says about one row group: its columns, optionally raw bytes (one array, appended to the shard's
    `.bin` file), a funnel when the stage decides about documents, and plain integer counters."""

    batch: pa.RecordBatch
    data: np.ndarray | None = None
    funnel: Funnel | None = None
    counters: Mapping[str, int] = field(default_factory=dict)


class ColumnStage(Protocol):
    """A stage that adds columns. Instances are picklable and hold configuration only."""

    @property
    def recipe(self) -> Recipe:
        """What its artifact is a function of."""

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""

    @property
    def has_data(self) -> bool:
        """Whether it also writes a `.bin` file."""

    @property
    def reads(self) -> Sequence[str]:
        """The stages whose columns it wants: `documents` and names of earlier column stages."""

    def columns(self, inputs: Mapping[str, pa.RecordBatch]) -> Columns:
        """One row group's columns, in the order of `schema`."""


@dataclass(frozen=True)
class DocumentShard:
    """The payload of a pass's task: a document shard's common name, file, and rows."""

    name: str
    path: Path
    rows: int


@dataclass(frozen=True)
class ColumnPass:
    """Work: run the unfinished stages of one source over a document shard.

    `stages` are in order; `folders` gives each one's artifact folder; `finished` names those that are only read from.
    """

    source: str
    stages: Sequence[ColumnStage]
    folders: Mapping[str, Path]
    finished: frozenset[str]

    def __call__(self, task: Task) -> None:
        shard: DocumentShard = task.payload
        todo = [s for s in self.stages if s.recipe.stage not in self.finished and shard.name not in self._done(s)]
        if not todo:
            return
        wanted = self._wanted(todo)
        with contextlib.ExitStack() as stack:
            writers = {
                s.recipe.stage: stack.enter_context(_Writer(self.folders[s.recipe.stage], shard, s)) for s in todo
            }
            for inputs in self._row_groups(shard, wanted, set(writers)):
                for stage in todo:
                    made = stage.columns(inputs)
                    self._check_rows(stage, made.batch, inputs["documents"], shard)
                    inputs[stage.recipe.stage] = made.batch
                    writers[stage.recipe.stage].write(made)
        for stage in todo:
            commit(self.folders[stage.recipe.stage], shard.name, [writers[stage.recipe.stage].shard])

    def _check_rows(
        self, stage: ColumnStage, made: pa.RecordBatch, documents: pa.RecordBatch, shard: DocumentShard
    ) -> None:
        if made.num_rows != documents.num_rows:
            raise UserError(
                f"{self.source}: {stage.recipe.stage} made {made.num_rows} rows of {documents.num_rows} documents in "
                f"{shard.name}; the build stops here, because its rows cannot be trusted"
            )

    def _done(self, stage: ColumnStage) -> set[str]:
        return set(committed(self.folders[stage.recipe.stage]))

    def _wanted(self, todo: Sequence[ColumnStage]) -> list[str]:
        """What the unfinished stages read and do not make themselves; the documents always lead."""
        made = {s.recipe.stage for s in todo}
        return ["documents", *sorted({r for s in todo for r in s.reads} - made - {"documents"})]

    def _row_groups(
        self, shard: DocumentShard, wanted: list[str], making: set[str]
    ) -> Iterator[dict[str, pa.RecordBatch]]:
        paths = {w: self.folders[w] / f"{shard.name}.parquet" for w in wanted if w != "documents"}
        readers = [read_groups(shard.path), *(read_groups(p) for p in paths.values())]
        rows = 0
        for batches in itertools.zip_longest(*readers):
            found = [0 if b is None else b.num_rows for b in batches]
            if None in batches or len(set(found)) != 1:
                raise UserError(
                    f"{self.source}: the shards {shard.name} of {', '.join(wanted)} have different rows in one row "
                    f"group ({found}); remove {', '.join(map(str, paths.values()))} and build "
                    "again"
                )
            rows += batches[0].num_rows
            yield dict(zip(wanted, batches, strict=True))
        if rows != shard.rows:
            raise UserError(
                f"{shard.path}: has {rows} rows where its record says {shard.rows}; remove it and build again"
            )


class _Writer:
    """One stage's shard in the making: the Parquet file, the optional `.bin` beside it, and the counters."""

    def __init__(self, folder: Path, shard: DocumentShard, stage: ColumnStage) -> None:
        self._name, self._schema = shard.name, stage.schema
        self._parquet = ParquetShard(folder, f"{shard.name}.parquet", stage.schema)
        self._data = new_file(folder, f"{shard.name}.bin") if stage.has_data else None
        self._sink: HashingFile | None = None
        self._data_files: list[File] = []
        self._funnel: Funnel | None = None
        self._counters: dict[str, int] = {}

    def __enter__(self) -> "_Writer":
        self._parquet.__enter__()
        if self._data is not None:
            self._sink, self._data_files = self._data.__enter__()
        return self

    def write(self, made: Columns) -> None:
        if made.batch.schema != self._schema:
            raise TypeError(f"{self._name}: columns {made.batch.schema} are not the stage's {self._schema}")
        self._parquet.write(made.batch)
        if self._sink is not None and made.data is not None:
            self._sink.write(np.ascontiguousarray(made.data))
        if made.funnel is not None:
            self._funnel = made.funnel if self._funnel is None else self._funnel + made.funnel
        for key, value in made.counters.items():
            self._counters[key] = self._counters.get(key, 0) + value

    def __exit__(self, *failure: Any) -> None:
        try:
            if self._data is not None:
                self._data.__exit__(*failure)
        finally:
            self._parquet.__exit__(*failure)

    @property
    def shard(self) -> Shard:
        content = self._parquet.content
        if self._data_files:
            content = digest_of([content, self._data_files[0].sha256])
        counters: dict[str, Any] = {"counts": self._counters}
        if self._funnel is not None:
            counters["funnel"] = self._funnel.to_json()
        return Shard(self._name, self._parquet.rows, content, (self._parquet.file, *self._data_files), counters)
