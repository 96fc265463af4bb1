"""Ingest: which rows become documents, in which order, and what is said about the others."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from pydantic import TypeAdapter

from stages import ingest
from stages.artifact import finish
from stages.documents import document_shards
from stages.errors import UserError
from stages.funnel import Funnel
from stages.ingest import Ingest
from stages.normalize import NormalizeConfig
from stages.recipe import Recipe
from stages.sources.listing import list_files
from stages.sources.spec import Read
from stages.sources.units import plan_units
from stages.task import Task

TEXTS = [f"document {i} " + "word " * (i % 40) for i in range(300)]


class Result:
    """What ingest wrote: the document rows in order, the quarantine rows, the summed funnel and counts."""

    def __init__(self, artifact):
        self.artifact = artifact
        shards = document_shards(artifact)
        self.groups = [pq.ParquetFile(artifact.path(s, ".parquet")).num_row_groups for s in shards]
        self.sizes = [s.rows for s in shards]
        self.bytes = [s.counters["bytes"] for s in shards]
        self.rows = [r for s in shards for r in pq.read_table(artifact.path(s, ".parquet")).to_pylist()]
        rest = [s for s in artifact.shards if s not in shards]
        self.bad = [r for s in rest for r in pq.read_table(artifact.path(s, ".parquet")).to_pylist()]
        self.funnel = sum((Funnel.from_json(s.counters["funnel"]) for s in rest), Funnel())
        self.counts = {k: sum(s.counters["counts"][k] for s in rest) for k in rest[0].counters["counts"]}

    @property
    def texts(self):
        return [r["text"] for r in self.rows]

    @property
    def ids(self):
        return [r["id"] for r in self.rows]


@pytest.fixture
def run(tmp_path):
    def start(path="data", max_document=10_000, shard_bytes=1 << 20, unit_bytes=1 << 20, limit=None, **read):
        settings = {"format": "jsonl", "path": path} | read
        listing = list_files(TypeAdapter(Read).validate_python(settings), tmp_path, tmp_path / "cache", "web")
        options = [path, max_document, shard_bytes, unit_bytes, limit]
        recipe = Recipe("ingest", 1, "web", {"options": options})
        work = Ingest(listing, NormalizeConfig(), tmp_path / recipe.folder, max_document, shard_bytes, limit)
        names = []
        for i, unit in enumerate(plan_units(listing, unit_bytes)):
            names.append(f"{i:05d}")
            work(Task(names[-1], work, unit, unit.bytes))
        return Result(finish(tmp_path, recipe, names))

    return start


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows), encoding="utf-8")


def write_cut(folder, cuts):
    """TEXTS as files whose names sort in the order of the rows."""
    for number, (start, stop) in enumerate(zip([0, *cuts], [*cuts, len(TEXTS)], strict=True)):
        write(folder / f"{number:03d}.jsonl", [{"text": t} for t in TEXTS[start:stop]])


def test_documents(run, tmp_path):
    write(tmp_path / "data" / "b.jsonl", [{"id": "x", "text": " two\r\nlines \n"}, {"text": "cafe\u0301"}])
    write(tmp_path / "data" / "a.jsonl", [{"id": None, "text": "one"}])
    made = run()
    assert made.texts == ["one", "two\nlines", "café"]
    assert [(r["file"], r["row"], r["source_id"]) for r in made.rows] == [
        ("a.jsonl", 0, None),
        ("b.jsonl", 0, "x"),
        ("b.jsonl", 1, None),
    ]
    assert [r["bytes"] for r in made.rows] == [3, 9, 5]
    assert made.ids == [xxhash.xxh3_128_digest(t.encode()) for t in made.texts]
    assert made.bad == []
    assert made.counts == {
        "raw_bytes": 22,
        "normalized.controls": 0,
        "normalized.newlines": 1,
        "normalized.nfc": 1,
        "normalized.newline_runs": 0,
        "normalized.spaces": 0,
        "normalized.strip": 1,
    }


@pytest.mark.parametrize("cuts", [[], [150], [1, 2, 3, 299], list(range(10, 300, 10))], ids=len)
@pytest.mark.parametrize("unit_bytes", [1, 5000, 1 << 20])
def test_the_cut_into_files_and_units_leaves_no_trace_in_the_documents(run, tmp_path, cuts, unit_bytes):
    write_cut(tmp_path / "data", cuts)
    made = run(unit_bytes=unit_bytes)
    assert made.texts == [t.strip() for t in TEXTS]
    assert made.ids == [xxhash.xxh3_128_digest(t.strip().encode()) for t in TEXTS]
    assert made.funnel.entered.documents == 300


def test_formats_of_the_same_rows(run, tmp_path):
    write_cut(tmp_path / "data", [])
    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "p.parquet", row_group_size=7)
    assert run("p.parquet", format="parquet").ids == run().ids


def test_shards_are_cut_by_size(run, tmp_path, monkeypatch):
    monkeypatch.setattr(ingest, "BATCH_BYTES", 2000)
    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "p.parquet", row_group_size=7)
    whole, cut = run("p.parquet", format="parquet"), run("p.parquet", format="parquet", shard_bytes=6000)
    assert cut.rows == whole.rows
    assert whole.sizes == [300]
    assert len(cut.sizes) > 2
    assert all(cut.sizes)
    assert all(size >= 6000 for size in cut.bytes[:-1])
    assert sum(cut.bytes) == sum(r["bytes"] for r in cut.rows)
    assert whole.groups[0] > 5


def test_quarantine(run, tmp_path):
    write(tmp_path / "data" / "a.jsonl", [{"text": "good"}, '{"text": "broken', {"no": "text"}, {"text": None}])
    write(
        tmp_path / "data" / "b.jsonl", [{"text": "x" * 101}, {"text": " \n\u00a0"}, {"text": 3}, {"text": "fine"}, ""]
    )
    made = run(max_document=100)
    assert made.texts == ["good", "fine"]
    assert [(r["file"], r["row"], r["reason"]) for r in made.bad] == [
        ("a.jsonl", 1, "invalid_json"),
        ("a.jsonl", 2, "missing_text"),
        ("a.jsonl", 3, "null_text"),
        ("b.jsonl", 0, "oversized"),
        ("b.jsonl", 1, "empty_text"),
        ("b.jsonl", 2, "text_not_string"),
    ]
    assert made.bad[3]["excerpt"] == "x" * 101
    assert made.bad[0]["excerpt"].startswith('{"text": "broken')
    assert made.funnel.entered.documents == 8
    assert made.funnel.kept.documents == 2
    assert {c: n.documents for c, n in made.funnel.first.items() if n.documents} == dict.fromkeys(
        ("invalid_json", "missing_text", "null_text", "oversized", "empty_text", "text_not_string"), 1
    )
    made.funnel.check("web")


def test_the_size_that_counts_is_that_of_the_normalized_text(run, tmp_path):
    write(tmp_path / "data" / "a.jsonl", [{"text": " " * 60 + "é" * 50}, {"text": "é" * 50 + "x"}])
    made = run(max_document=100)
    assert made.texts == ["é" * 50]
    assert made.bad[0]["reason"] == "oversized"


def test_excerpts_are_short(run, tmp_path):
    write(tmp_path / "data" / "a.jsonl", [{"text": "é" * 1000}])
    assert run(max_document=100).bad[0]["excerpt"] == "é" * 200


@pytest.mark.parametrize("rows", [[], [{"text": ""}, {"no": 1}]], ids=["no rows", "bad rows"])
def test_a_source_without_documents_is_written_all_the_same(run, tmp_path, rows):
    write(tmp_path / "data" / "a.jsonl", rows)
    made = run()
    assert (made.rows, made.sizes, made.bytes, made.groups) == ([], [0], [0], [1])
    assert len(made.bad) == len(rows)
    assert made.funnel.entered.documents == len(rows)


def test_a_sample_stops_at_its_limit(run, tmp_path):
    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "p.parquet", row_group_size=7)
    size = sum(len(t.strip()) for t in TEXTS)
    made = run("p.parquet", format="parquet", limit=3000)
    assert made.texts == [t.strip() for t in TEXTS[: len(made.rows)]]
    assert 3000 <= sum(made.bytes) < 3000 + 2 * 3000 < size
    made.funnel.check("web")
    assert run("p.parquet", format="parquet", limit=size * 2).texts == [t.strip() for t in TEXTS]


def test_a_row_that_vanishes_is_noticed(run, tmp_path, monkeypatch):
    whole = Ingest._documents

    def lose(self, rows, names):
        return whole(self, rows.slice(1), names)

    write_cut(tmp_path / "data", [])
    monkeypatch.setattr(Ingest, "_documents", lose)
    made = run()
    with pytest.raises(UserError, match="web: ingest: documents went missing: 300 came in"):
        made.funnel.check("web: ingest")


def test_everything_that_counts_is_in_the_recipe():
    base = ingest.recipe("web", "aa", NormalizeConfig(), 10, 100)
    others = [
        ingest.recipe("web", "bb", NormalizeConfig(), 10, 100),
        ingest.recipe("web", "aa", NormalizeConfig(nfc=False), 10, 100),
        ingest.recipe("web", "aa", NormalizeConfig(), 11, 100),
        ingest.recipe("web", "aa", NormalizeConfig(), 10, 101),
        ingest.recipe("web", "aa", NormalizeConfig(), 10, 100, {"units": 1, "bytes": 5}),
    ]
    assert len({base.digest, *(r.digest for r in others)}) == 6
