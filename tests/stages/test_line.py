"""The line: every stage on its own, resumed, complete, and stopped when something does not add up."""

import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stages import exact_duplicates, filtering, metrics, store, tokenizing
from stages.artifact import find
from stages.audit import funnels
from stages.columns import Columns
from stages.content import ContentDigest
from stages.corpus_plan import STAGES
from stages.documents import document_shards
from stages.errors import UserError
from stages.ingest import Ingest
from stages.store import Select, cells_of

GOLDEN = Path(__file__).parents[1] / "golden"
OWN = ("ingest", "metrics", "filters", "tokenize", "signatures")


@pytest.mark.parametrize("until", STAGES)
def test_every_stage_can_be_the_last(run_line, tiny_line, tmp_path, until):
    built = run_line(tmp_path, until=until)
    reached = STAGES[: STAGES.index(until) + 1]
    assert sorted(p.name for p in built.root.iterdir() if not p.name.startswith(".")) == sorted(reached)
    for stage in reached:
        for source in built.plan.sources if stage in OWN else ():
            assert built.of(source, stage).content == tiny_line.of(source, stage).content
    assert all(find(built.root, r) == built.artifacts.get(r.digest) for r in built.plan.recipes())


def test_stage_by_stage_is_the_same_as_at_once(run_line, tiny_line, tmp_path):
    for until in STAGES:
        built = run_line(tmp_path, until=until)
        assert {stage for stage, _ in built.engine.ran} == {"columns" if until in OWN[1:] else until}
    assert built.store.content == tiny_line.store.content
    assert built.store.digest == tiny_line.store.digest


def test_what_is_there_is_not_made_again(run_line, tmp_path):
    assert run_line(tmp_path).engine.ran
    assert run_line(tmp_path).engine.ran == []


def test_changing_a_threshold_leaves_text_and_measures_alone(run_line, tmp_path):
    run_line(tmp_path)
    changed = run_line(tmp_path, sources={"docstrings": {"filters": [{"length": {"min_words": 20}}]}})
    assert {name.partition("/")[0] for stage, name in changed.engine.ran if stage == "columns"} == {"docstrings"}
    assert {stage for stage, _ in changed.engine.ran} == {"columns", "exact_duplicates", "near_duplicates", "store"}
    assert len(list((changed.root / "metrics").iterdir())) == 3
    assert len(list((changed.root / "filters").iterdir())) == 4


def test_the_order_of_sources_leaves_no_trace(run_line, write_specs, tiny_line, tmp_path):
    built = run_line(tmp_path)
    text = (tmp_path / "corpus.yaml").read_text(encoding="utf-8")
    assert text.index("reference:") < text.index("copies:")
    assert list(built.plan.sources) == ["copies", "docstrings", "reference"]
    assert built.store.content == tiny_line.store.content


def test_recipes_are_known_before_anything_runs(tiny_line):
    recipes = tiny_line.plan.recipes()
    assert len({r.folder for r in recipes}) == len(recipes) == 3 * 5 + 3
    assert [r.stage for r in recipes] == [s for s in OWN for _ in range(3)] + [
        "exact_duplicates",
        "near_duplicates",
        "store",
    ]
    assert set(tiny_line.artifacts) == {r.digest for r in recipes}


def test_the_funnel_of_a_source_is_whole(tiny_line):
    table = funnels(tiny_line.plan, tiny_line.artifacts)
    assert {name: list(stages) for name, stages in table.items()} == dict.fromkeys(
        ("copies", "docstrings", "reference"), ["ingest", "filters", "exact_duplicates", "near_duplicates"]
    )
    copies = table["copies"]
    assert copies["ingest"].first["invalid_json"].documents == 1
    assert copies["ingest"].first["missing_text"].documents == 1
    assert copies["exact_duplicates"].first["exact_duplicates"].documents > 20
    assert table["docstrings"]["filters"].first["length.too_few_words"].documents > 0
    cells = cells_of(tiny_line.store)
    for name, stages in table.items():
        assert stages["exact_duplicates"].kept.documents == cells[name][name]["documents"]


def test_a_duplicate_leads_to_the_document_that_was_kept(run_line, tmp_path):
    built = run_line(tmp_path, until="exact_duplicates", sources={"reference": {"priority": 2}})
    ids, lost = {}, []
    for source in built.plan.sources:
        documents = built.of(source, "ingest")
        ids[source] = []
        for shard in document_shards(documents):
            mine = pq.read_table(documents.path(shard, ".parquet"), columns=["id"]).column("id").to_pylist()
            name = f"{source}/{shard.name.rpartition('/')[2]}.parquet"
            found = pq.read_table(built.exact_duplicates.folder / name).to_pylist()
            lost += [(i, f["kept_source"], f["kept_position"]) for i, f in zip(mine, found, strict=True)]
            ids[source] += mine
    lost = [entry for entry in lost if entry[1] is not None]
    first = document_shards(built.of("reference", "ingest"))[0].rows
    assert any(source == "reference" and position >= first for _, source, position in lost)
    assert all(ids[source][position] == identity for identity, source, position in lost)


# Conservation, broken on purpose.


def lose_a_row(stage):
    whole = stage.columns

    def columns(self, inputs):
        made = whole(self, inputs)
        return (
            Columns(made.batch.slice(1), made.data, made.funnel, made.counters) if self.source == "reference" else made
        )

    return columns


@pytest.mark.parametrize("stage", [metrics.Metrics, filtering.Filtering, tokenizing.Tokenize])
def test_a_column_stage_that_loses_a_row_stops_the_build(run_line, tmp_path, monkeypatch, stage):
    monkeypatch.setattr(stage, "columns", lose_a_row(stage))
    name = {"Metrics": "metrics", "Filtering": "filters", "Tokenize": "tokenize"}[stage.__name__]
    with pytest.raises(UserError, match=rf"^reference: {name} made \d+ rows of \d+ documents"):
        run_line(tmp_path)
    assert not list((tmp_path / "build").glob(f"{name}/*/artifact.json"))


def test_an_ingest_that_loses_a_row_stops_the_build(run_line, tmp_path, monkeypatch):
    whole = Ingest._documents
    monkeypatch.setattr(Ingest, "_documents", lambda self, rows, names: whole(self, rows.slice(1), names))
    with pytest.raises(UserError, match=r"^copies: ingest: documents went missing: \d+ came in"):
        run_line(tmp_path, until="ingest")


def test_a_filter_that_counts_wrongly_stops_the_build(run_line, tmp_path, monkeypatch):
    whole = filtering.count_causes

    def count(masks, sizes):
        funnel, kept = whole(masks, sizes)
        kept[0] = False
        return funnel, kept

    monkeypatch.setattr(filtering, "count_causes", count)
    with pytest.raises(UserError, match=r"^\w+: filters kept \d+ documents .* but exact_duplicates took in \d+"):
        run_line(tmp_path, until="exact_duplicates")


def test_exact_duplicates_that_lose_a_row_stop_the_build(run_line, tmp_path, monkeypatch):
    whole = exact_duplicates.count_causes
    monkeypatch.setattr(
        exact_duplicates,
        "count_causes",
        lambda causes, sizes: whole({c: m[1:] for c, m in causes.items()}, sizes[1:]),
    )
    with pytest.raises(UserError, match=r"^copies: filters kept \d+ documents .* but exact_duplicates took in \d+"):
        run_line(tmp_path)


def test_a_store_that_loses_a_document_stops_the_build(run_line, tmp_path, monkeypatch):
    whole = store.argsort_ids
    monkeypatch.setattr(store, "argsort_ids", lambda hi, lo: whole(hi, lo)[1:])
    expected = r"^copies: near_duplicates kept \d+ documents \(\d+ bytes\) but store took in \d+"
    for _ in range(2):
        with pytest.raises(UserError, match=expected):
            run_line(tmp_path)


# Absence is an error.


def test_swapped_folders_of_two_sources_are_an_error(run_line, tmp_path):
    built = run_line(tmp_path, until="tokenize")
    one, other = (built.of(s, "filters").folder for s in ("docstrings", "copies"))
    spare = one.with_name("spare")
    one.rename(spare)
    other.rename(one)
    spare.rename(other)
    with pytest.raises(UserError, match="holds the artifact .* where .* is expected"):
        run_line(tmp_path)


@pytest.mark.parametrize(("stage", "suffix"), [(s, ".parquet") for s in OWN] + [("tokenize", ".bin")])
def test_a_missing_shard_is_an_error(run_line, tmp_path, stage, suffix):
    built = run_line(tmp_path, until="signatures")
    artifact = built.of("reference", stage)
    path = artifact.path(artifact.shards[0], suffix)
    path.unlink()
    with pytest.raises(UserError, match=f"{path.name}: is missing or has changed"):
        run_line(tmp_path)


def test_a_shard_that_vanishes_during_the_build_is_an_error(run_line, tmp_path, monkeypatch):
    whole = Select.__call__

    def vanish(self, task):
        task.payload.base.filters.unlink()
        whole(self, task)

    monkeypatch.setattr(Select, "__call__", vanish)
    with pytest.raises(UserError, match=r"filters/.*\.parquet: cannot be read"):
        run_line(tmp_path)


def test_an_artifact_that_is_gone_is_made_again_as_it_was(run_line, tiny_line, tmp_path):
    built = run_line(tmp_path)
    shutil.rmtree(built.of("copies", "metrics").folder)
    shutil.rmtree(built.store.folder)
    again = run_line(tmp_path)
    assert {stage for stage, _ in again.engine.ran} == {"columns", "store"}
    assert again.of("copies", "metrics").content == tiny_line.of("copies", "metrics").content
    assert again.store.content == tiny_line.store.content


# Ceilings.


def test_bad_rows_over_the_ceiling_stop_after_ingest(run_line, tmp_path):
    ceiling = {"bad_rows": "0.1%"}
    with pytest.raises(UserError, match=r"^copies: 2 of \d+ rows are bad .* over its ceiling\.bad_rows of 0\.1%"):
        run_line(tmp_path, sources={"copies": {"ceiling": ceiling}})
    assert [p.name for p in (tmp_path / "build").iterdir()] == ["ingest"]


def test_removed_documents_over_the_ceiling_stop_before_the_store(run_line, tmp_path):
    with pytest.raises(
        UserError, match=r"^copies: \d+ of \d+ documents were removed .* first causes: exact_duplicates"
    ):
        run_line(tmp_path, sources={"copies": {"ceiling": {"removed": "1%"}}})
    assert not (tmp_path / "build" / "store").exists()
    # The ceiling is no part of any recipe: raising it goes on from there.
    assert {stage for stage, _ in run_line(tmp_path).engine.ran} == {"near_duplicates", "store"}


def test_every_source_over_its_ceiling_is_named(run_line, tmp_path):
    removed = {"ceiling": {"removed": "0.1%"}}
    with pytest.raises(UserError) as caught:
        run_line(tmp_path, sources={"copies": removed, "docstrings": removed})
    assert [line.partition(":")[0] for line in str(caught.value).splitlines()] == ["copies", "docstrings"]


# Samples.


def test_a_sample_reads_some_units_of_every_source_and_goes_all_the_way(run_line, tiny_line, tmp_path):
    built = run_line(tmp_path, sample=1)
    assert built.plan.sources["reference"].ingest.digest != tiny_line.plan.sources["reference"].ingest.digest
    assert len(document_shards(built.of("reference", "ingest"))) == 1
    assert set(cells_of(built.store)) == set(built.plan.sources)


# The stages' versions: a fixed corpus and tokenizer make fixed content.

WORDS = [
    "the",
    "of",
    "and",
    "to",
    "in",
    "is",
    "was",
    "for",
    "on",
    "that",
    "with",
    "as",
    "it",
    "by",
    "at",
    "from",
    "are",
    "an",
    "be",
    "this",
    "which",
    "or",
    "one",
    "had",
    "not",
    "but",
    "what",
    "all",
]


def fixed_text(number: int) -> str:
    """A text that is a function of its number: sentences of words, with some of what normalization changes."""
    state, words = number * 2654435761 % 2**32, []
    for i in range(20 + number % 90):
        state = (state * 1664525 + 1013904223) % 2**32
        words.append(WORDS[state >> 20 & 31 if state >> 20 & 31 < len(WORDS) else i % len(WORDS)])
        if state >> 10 & 7 == 0:
            words[-1] += ". The" if state >> 9 & 1 else ".\r\nCafe\u0301"
    return " ".join(words) + ["", "  ", "<|endoftext|>", "<|user|>        x"][number % 4]


def test_golden_content(run_line, tmp_path):
    for name, numbers in (("one", [*range(200), *range(10)]), ("two", range(150, 260))):
        rows = [json.dumps({"text": fixed_text(n)}) for n in numbers]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")

    def source(name, filters):
        return {"read": {"format": "jsonl", "path": f"{name}.jsonl"}, "licence": "CC0-1.0", "filters": filters}

    filters = ["gopher_quality", "gopher_repetition", "c4", "fineweb", {"length": {"min_words": 30}}]
    own = {"one": source("one", filters), "two": source("two", [{"length": {"max_chars": 400}}])}
    built = run_line(tmp_path, sources=own | dict.fromkeys(("reference", "docstrings", "copies")))
    found = {
        f"{r.stage}/{r.name}": {"version": r.version, "rows": a.rows, "content": a.content}
        for r in built.plan.recipes()
        for a in [built.artifacts[r.digest]]
    }
    assert found["store/tiny"]["rows"] > 50
    path = GOLDEN / "stages.json"
    if "WRITE_GOLDEN" in os.environ:
        path.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    expected = json.loads(path.read_bytes())
    assert found == expected, "a stage's output has changed: raise its VERSION, then run this test with WRITE_GOLDEN=1"


def test_content_digest_of_documents_is_over_all_columns(tiny_line):
    documents = tiny_line.of("docstrings", "ingest")
    (shard,) = document_shards(documents)[:1]
    table = pq.read_table(documents.path(shard, ".parquet"))
    digest = ContentDigest(table.schema)
    for batch in table.to_batches():
        digest.update(batch)
    assert digest.hexdigest() == shard.content
    changed = table.set_column(5, "row", pa.array([r + 1 for r in table.column("row").to_pylist()], pa.int64()))
    other = ContentDigest(changed.schema)
    for batch in changed.to_batches():
        other.update(batch)
    assert other.hexdigest() != shard.content
