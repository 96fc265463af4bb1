"""Exact duplicates: one of every id survives, and which one follows from priority, name and position alone."""

import random
from collections import defaultdict
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages import exact_duplicates
from stages.artifact import ParquetShard, finish
from stages.documents import SCHEMA as DOCUMENTS
from stages.documents import words_to_ids
from stages.errors import UserError
from stages.exact_duplicates import (
    CAUSE,
    FOUND,
    FindDuplicates,
    ScatterDuplicates,
    SortIds,
    SourceShard,
    find_duplicates,
    found_task,
    ranges,
    recipe,
    sorted_task,
)
from stages.funnel import Funnel
from stages.task import Task

KEPT = pa.schema([pa.field("kept", pa.bool_(), nullable=False)])
RECIPE = recipe("demo", {"web": (0, "d", "f")})
# Small spreads make equal ids, equal high words, and ids at both ends of the range.
WORDS = st.sampled_from([0, 1, 2**63 - 1, 2**63, 2**64 - 1])
DOCUMENT = st.tuples(WORDS, st.integers(0, 1), st.booleans())
SOURCES = st.dictionaries(
    st.sampled_from(["a", "b", "c"]), st.tuples(st.integers(0, 1), st.lists(DOCUMENT, max_size=12)), min_size=1
)


def oracle(sources):
    """(source, position) -> (source, position) of the survivor, for `sources`: name -> (priority, documents)."""
    order = sorted(sources, key=lambda n: (-sources[n][0], n))
    groups = defaultdict(list)
    for name in order:
        for position, (hi, lo, kept) in enumerate(sources[name][1]):
            groups[hi, lo].append((name, position, kept))
    lost = {}
    for members in groups.values():
        survivor = next(((n, p) for n, p, kept in members if kept), None)
        if survivor:
            lost |= {(n, p): survivor for n, p, _ in members if (n, p) != survivor}
    return lost


def write_shards(root, sources, cuts):
    """The sources as document shards with a filters shard each, in the order of survival."""
    shards = []
    for name in sorted(sources, key=lambda n: (-sources[n][0], n)):
        documents = sources[name][1]
        edges = sorted({0, *(c for c in cuts if c < len(documents)), len(documents)})
        pairs = list(pairwise(edges)) or [(0, 0)]
        for part, (start, stop) in enumerate(pairs):
            rows = documents[start:stop]
            hi, lo = (np.array([r[i] for r in rows], np.uint64) for i in (0, 1))
            text = pa.array([""] * len(rows), pa.large_string())
            sizes = pa.array(range(start + 1, stop + 1), pa.int64())
            numbers = pa.array(range(start, stop), pa.int64())
            files = pa.array(["f"] * len(rows))
            batch = [words_to_ids(hi, lo), text, sizes, pa.nulls(len(rows), pa.string()), files, numbers]
            with ParquetShard(root / name, f"{part}.parquet", DOCUMENTS) as parquet:
                parquet.write(pa.RecordBatch.from_arrays(batch, schema=DOCUMENTS))
            with ParquetShard(root / name, f"{part}.kept.parquet", KEPT) as parquet:
                parquet.write(pa.RecordBatch.from_arrays([pa.array([r[2] for r in rows], pa.bool_())], schema=KEPT))
            paths = root / name / f"{part}.parquet", root / name / f"{part}.kept.parquet"
            shards.append(SourceShard(len(shards), name, f"{part:03d}", *paths, len(rows), start))
    return shards


def run(root, shards, count, shuffle=None):
    """All three steps; returns the artifact."""
    folder = root / RECIPE.folder
    steps = [
        [Task(sorted_task(s), SortIds(folder), s, 0) for s in shards],
        [Task(found_task(n), FindDuplicates(folder, shards, count), n, 0) for n in range(count)],
        [Task(f"{s.source}/{s.name}", ScatterDuplicates(folder, shards, count), s, 0) for s in shards],
    ]
    for tasks in steps:
        for task in shuffle.sample(tasks, len(tasks)) if shuffle else tasks:
            task.work(task)
    return finish(root, RECIPE, [t.name for t in steps[-1]])


def read(artifact, shards):
    """(source, position) -> survivor, or None where there is no duplicate."""
    found = {}
    for shard in shards:
        table = pq.read_table(artifact.folder / shard.source / f"{shard.name}.parquet")
        assert table.num_rows == shard.rows
        for i, row in enumerate(table.to_pylist()):
            assert row["is_exact_duplicate"] == (row["kept_source"] is not None) == (row["kept_position"] is not None)
            if row["is_exact_duplicate"]:
                found[shard.source, shard.position + i] = (row["kept_source"], row["kept_position"])
    return found


@settings(deadline=None, max_examples=30)
@given(sources=SOURCES, cuts=st.sets(st.integers(1, 11), max_size=3), count=st.integers(1, 5))
def test_against_plain_python(tmp_path_factory, sources, cuts, count):
    root = tmp_path_factory.mktemp("exact")
    shards = write_shards(root, sources, cuts)
    artifact = run(root, shards, count)
    expected = oracle(sources)
    assert read(artifact, shards) == expected
    total = sum((Funnel.from_json(s.counters["funnel"]) for s in artifact.shards), Funnel())
    total.check("exact_duplicates")
    kept = {(n, p) for n, (_, rows) in sources.items() for p, row in enumerate(rows) if row[2]}
    assert total.entered.documents == len(kept)
    assert (
        total.kept.documents
        == len(kept - set(expected))
        == len({r[:2] for _, d in sources.values() for r in d if r[2]})
    )
    assert total.first[CAUSE].bytes == sum(position + 1 for _, position in kept & set(expected))
    assert not (artifact.folder / "sorted").exists() or not any((artifact.folder / "sorted").iterdir())


def some_sources(seed=0):
    """Three sources of 400 documents over 300 ids."""
    draw = random.Random(seed)
    ids = [(draw.getrandbits(64), draw.getrandbits(64)) for _ in range(300)]
    return {
        name: (priority, [(*draw.choice(ids), draw.random() < 0.7) for _ in range(400)])
        for name, priority in (("web", 0), ("books", 1), ("code", 0))
    }


def test_ranges_cuts_and_order_of_tasks_leave_no_trace(tmp_path):
    sources = some_sources()
    contents, columns = set(), []
    for i, (count, cuts) in enumerate([(1, ()), (7, ()), (3, (1, 399)), (16, range(60, 400, 60))]):
        shards = write_shards(tmp_path / str(i), sources, cuts)
        artifact = run(tmp_path / str(i), shards, count, random.Random(i))
        columns.append(read(artifact, shards))
        if not cuts:
            contents.add(artifact.content)
    assert columns[0] == oracle(sources)
    assert columns == [columns[0]] * 4
    assert len(contents) == 1


def test_ranges_follow_the_documents(monkeypatch):
    assert [ranges(n) for n in (0, 1, 8_000_000, 8_000_001)] == [1, 1, 1, 2]
    monkeypatch.setattr(exact_duplicates, "DOCUMENTS_PER_RANGE", 10)
    assert ranges(101) == 11


@pytest.mark.parametrize(
    ("sources", "lost"),
    [
        ({"a": (0, [(1, 1, True)] * 3)}, {("a", 1): ("a", 0), ("a", 2): ("a", 0)}),
        ({"b": (0, [(1, 1, True)]), "a": (0, [(1, 1, True)])}, {("b", 0): ("a", 0)}),
        ({"b": (1, [(1, 1, True)]), "a": (0, [(1, 1, True)])}, {("a", 0): ("b", 0)}),
        ({"a": (0, [(1, 1, False), (1, 1, True), (1, 1, True)])}, {("a", 0): ("a", 1), ("a", 2): ("a", 1)}),
        ({"b": (1, [(1, 1, False)]), "a": (0, [(1, 1, True)])}, {("b", 0): ("a", 0)}),
        ({"a": (0, [(1, 1, False)] * 2)}, {}),
        ({"a": (0, [(1, 2, True), (2, 1, True), (1, 1, True)])}, {}),
        ({"a": (0, []), "b": (0, [])}, {}),
    ],
    ids=["position", "name", "priority", "kept first", "kept beats priority", "none kept", "other ids", "nothing"],
)
def test_who_survives(tmp_path, sources, lost):
    assert oracle(sources) == lost
    shards = write_shards(tmp_path, sources, ())
    assert read(run(tmp_path, shards, 2), shards) == lost


def test_a_filtered_document_is_recorded_but_not_counted(tmp_path):
    shards = write_shards(tmp_path, {"a": (0, [(1, 1, True), (1, 1, False)])}, ())
    artifact = run(tmp_path, shards, 1)
    assert read(artifact, shards) == {("a", 1): ("a", 0)}
    funnel = Funnel.from_json(artifact.shards[0].counters["funnel"])
    assert (funnel.entered.documents, funnel.kept.documents, funnel.every[CAUSE].documents) == (1, 1, 0)


def test_no_documents():
    none = np.zeros(0, np.uint64)
    found = find_duplicates(none, none, none.astype(bool), none.astype(np.uint32), none.astype(np.uint32))
    assert found.dtype == FOUND
    assert len(found) == 0


@pytest.mark.parametrize("rows", [1, 3])
def test_a_filters_shard_of_other_rows_is_an_error(tmp_path, rows):
    (shard,) = write_shards(tmp_path, {"a": (0, [(1, 1, True), (1, 1, False)])}, ())
    with ParquetShard(shard.filters.parent, shard.filters.name, KEPT) as parquet:
        parquet.write(pa.RecordBatch.from_arrays([pa.array([True] * rows)], schema=KEPT))
    with pytest.raises(UserError, match=rf"0\.kept\.parquet: has {rows} rows where its documents have 2"):
        run(tmp_path, [shard], 1)
    shard.filters.unlink()
    with pytest.raises(UserError, match=r"0\.kept\.parquet: cannot be read"):
        run(tmp_path, [shard], 1)


def test_the_recipe_has_priorities_and_inputs():
    base = recipe("demo", {"a": (0, "d", "f"), "b": (0, "e", "g")})
    assert recipe("demo", {"b": (0, "e", "g"), "a": (0, "d", "f")}).digest == base.digest
    swapped = recipe("demo", {"a": (0, "e", "g"), "b": (0, "d", "f")})
    priority = recipe("demo", {"a": (1, "d", "f"), "b": (0, "e", "g")})
    assert len({base.digest, swapped.digest, priority.digest}) == 3
