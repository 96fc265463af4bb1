"""One pass of column stages: zipped row for row, checked, and resumed."""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from stages.artifact import ParquetShard, committed, finish
from stages.columns import ColumnPass, Columns, DocumentShard
from stages.content import content_digest
from stages.documents import SCHEMA as DOCUMENTS
from stages.errors import UserError
from stages.funnel import Funnel, count_causes
from stages.recipe import Recipe
from stages.task import Task

GROUPS = (("one", "two", "three"), ("four",), ("five", "six"))


@dataclass(frozen=True)
class Size:
    """A stage that measures."""

    calls: tuple = ()
    reads: tuple = ("documents",)
    has_data: bool = False
    schema: pa.Schema = pa.schema([pa.field("size", pa.int64(), nullable=False)])
    recipe: Recipe = Recipe("size", 1, "web")
    lose: int = 0

    def columns(self, inputs):
        sizes = pc.binary_length(inputs["documents"].column("text"))
        sizes = sizes.slice(0, len(sizes) - self.lose)
        return Columns(pa.RecordBatch.from_arrays([sizes], schema=self.schema), counters={"rows": len(sizes)})


@dataclass(frozen=True)
class Decide(Size):
    """A stage that decides by what another measured, and writes bytes."""

    reads: tuple = ("documents", "size")
    has_data: bool = True
    schema: pa.Schema = pa.schema([pa.field("long", pa.bool_(), nullable=False)])
    recipe: Recipe = Recipe("decide", 1, "web")

    def columns(self, inputs):
        long = inputs["size"].column("size").to_numpy() > 3
        funnel, _ = count_causes({"long": long}, inputs["documents"].column("bytes").to_numpy())
        return Columns(
            pa.RecordBatch.from_arrays([pa.array(long)], schema=self.schema), np.arange(len(long), dtype="<u2"), funnel
        )


def documents(folder, name="00000-000", groups=GROUPS):
    with ParquetShard(folder, f"{name}.parquet", DOCUMENTS) as parquet:
        for texts in groups:
            rows = [
                {"id": bytes(16), "text": t, "bytes": len(t), "source_id": None, "file": "f", "row": i}
                for i, t in enumerate(texts)
            ]
            parquet.write(pa.RecordBatch.from_pylist(rows, schema=DOCUMENTS))
    return DocumentShard(name, folder / f"{name}.parquet", parquet.rows)


@pytest.fixture
def run(tmp_path):
    """run(stages, finished=()) runs one pass over the documents; the folder of a stage is its name."""
    shard = documents(tmp_path / "documents")

    def start(*stages, finished=()):
        folders = {s.recipe.stage: tmp_path / s.recipe.folder for s in stages}
        ColumnPass("web", stages, folders, frozenset(finished))(Task("web/00000-000", None, shard, 1))
        return {name: committed(folder).get("00000-000") for name, folder in folders.items()}

    start.root, start.shard = tmp_path, shard
    return start


def read(run, stage):
    return pq.read_table(run.root / stage.recipe.folder / "00000-000.parquet")


def test_a_pass_hands_columns_from_stage_to_stage(run):
    made = run(Size(), Decide())
    assert read(run, Size()).column(0).to_pylist() == [3, 3, 5, 4, 4, 3]
    assert read(run, Decide()).column(0).to_pylist() == [False, False, True, True, True, False]
    (size,), (decide,) = made["size"], made["decide"]
    assert size.counters == {"counts": {"rows": 6}}
    funnel = Funnel.from_json(decide.counters["funnel"])
    assert (funnel.entered.documents, funnel.kept.documents, funnel.first["long"].bytes) == (6, 3, 13)
    assert [f.path for f in decide.files] == ["00000-000.parquet", "00000-000.bin"]
    data = np.fromfile(run.root / Decide().recipe.folder / "00000-000.bin", "<u2")
    assert data.tolist() == [0, 1, 2, 0, 0, 1]
    with pq.ParquetFile(run.root / Size().recipe.folder / "00000-000.parquet") as file:
        assert [file.metadata.row_group(i).num_rows for i in range(3)] == [3, 1, 2]


def test_the_content_covers_the_data_file(run, monkeypatch):
    (before,) = run(Size(), Decide())["decide"]
    assert before.content != content_digest(read(run, Decide()))
    whole = Decide.columns
    monkeypatch.setattr(Decide, "columns", lambda self, i: replace(whole(self, i), data=np.zeros(1, "<u2")))
    other = replace(Decide(), recipe=Recipe("decide", 2, "web"))
    (after,) = run(Size(), other)["decide"]
    assert after.content != before.content


def test_a_finished_stage_is_read_back(run, monkeypatch):
    run(Size())
    finish(run.root, Size().recipe, ["00000-000"])
    monkeypatch.setattr(Size, "columns", None)
    made = run(Size(), Decide(), finished=["size"])
    assert made["decide"][0].rows == 6
    assert made["size"] is None


def test_a_committed_shard_is_not_made_again(run, monkeypatch):
    run(Size(), Decide())
    monkeypatch.setattr(Size, "columns", None)
    monkeypatch.setattr(Decide, "columns", None)
    run(Size(), Decide())


def test_a_pass_that_stopped_between_two_commits_goes_on(run, monkeypatch):
    run(Size())
    monkeypatch.setattr(Size, "columns", None)
    assert run(Size(), Decide())["decide"][0].rows == 6


def test_a_failing_stage_commits_nothing(run, monkeypatch):
    def fail(self, inputs):
        raise UserError("out of luck")

    monkeypatch.setattr(Decide, "columns", fail)
    with pytest.raises(UserError, match="out of luck"):
        run(Size(), Decide())
    assert not [p for p in run.root.rglob("*") if p.is_file() and p.parent.name != "documents"]


def test_a_lost_row_names_source_and_stage(run):
    with pytest.raises(UserError, match="web: size made 2 rows of 3 documents in 00000-000"):
        run(Size(lose=1), Decide())


def test_other_columns_than_announced_are_a_mistake(run, monkeypatch):
    whole = Size.columns
    monkeypatch.setattr(Size, "columns", lambda self, i: Columns(whole(self, i).batch.rename_columns(["sizes"])))
    with pytest.raises(TypeError, match="are not the stage's"):
        run(Size())


def rewrite(run, sizes):
    """Another shard in the place of the finished `size` columns."""
    with ParquetShard(run.root / Size().recipe.folder, "00000-000.parquet", Size().schema) as parquet:
        for group in sizes:
            parquet.write(pa.RecordBatch.from_arrays([pa.array(group, pa.int64())], schema=Size().schema))


@pytest.mark.parametrize(
    "sizes",
    [
        [[3, 3, 5], [4], [4]],
        [[3, 3, 5], [4]],
        [[3, 3, 5], [4], [4, 3], [1]],
        [[3, 3, 5], [4], [4, 3], []],
        [[3, 3], [5, 4], [4, 3]],
        [[3, 3, 5, 4, 4, 3]],
        [],
    ],
    ids=str,
)
def test_columns_of_other_rows_are_an_error(run, sizes):
    run(Size())
    rewrite(run, sizes)
    with pytest.raises(UserError, match="web: the shards 00000-000 of documents, size have different rows"):
        run(Size(), Decide(), finished=["size"])


def test_a_missing_attribute_shard_is_an_error(run):
    run(Size())
    (run.root / Size().recipe.folder / "00000-000.parquet").unlink()
    with pytest.raises(UserError, match=r"size/web-.*00000-000\.parquet: cannot be read"):
        run(Size(), Decide(), finished=["size"])


def test_documents_that_are_not_all_there(run):
    shard = replace(run.shard, rows=7)
    work = ColumnPass("web", (Size(),), {"size": run.root / Size().recipe.folder}, frozenset())
    with pytest.raises(UserError, match="has 6 rows where its record says 7"):
        work(Task("web/00000-000", work, shard, 1))
    assert committed(run.root / Size().recipe.folder) == {}


def test_a_shard_without_documents_has_counts_all_the_same(tmp_path):
    shard = documents(tmp_path / "documents", groups=((),))
    folders = {"size": tmp_path / "size", "decide": tmp_path / "decide"}
    ColumnPass("web", (Size(), Decide()), folders, frozenset())(Task("t", None, shard, 0))
    (made,) = committed(tmp_path / "decide")["00000-000"]
    assert made.rows == 0
    assert made.counters["funnel"]["dropped"] == {"long": {"documents": 0, "bytes": 0}}
    assert committed(tmp_path / "size")["00000-000"][0].counters == {"counts": {"rows": 0}}
