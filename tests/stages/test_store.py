"""The store: every kept document once, in id order, with the tokens of its text."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages import store
from stages.artifact import committed
from stages.documents import document_shards
from stages.errors import UserError
from stages.store import INDEX, Part, cell_parts, cells_of, open_part, plan_parts
from stages.tokenizing import encode, load_encoder


def kept_documents(built, source):
    """id -> text of what the source's filters and the exact duplicates leave, from the columns by plain Python."""
    kept = {}
    documents, filters = built.of(source, "ingest"), built.of(source, "filters")
    for shard in document_shards(documents):
        name = shard.name.rpartition("/")[2]
        texts = pq.read_table(documents.path(shard, ".parquet")).to_pylist()
        own = pq.read_table(filters.folder / f"{name}.parquet").column("kept").to_pylist()
        path = built.exact_duplicates.folder / source / f"{name}.parquet"
        copies = pq.read_table(path).column("is_exact_duplicate").to_pylist()
        kept |= {d["id"]: d["text"] for d, keep, copy in zip(texts, own, copies, strict=True) if keep and not copy}
    return kept


def stored(artifact, cell):
    """[(id, source, bytes, tokens)] of a cell in the order of the store."""
    rows = []
    for shard in cell_parts(artifact, cell):
        part = open_part(artifact, shard)
        assert part.index.schema == INDEX
        assert part.offset.tolist() == (np.cumsum(part.length) - part.length).tolist()
        assert part.length.sum() == len(part.tokens) == shard.counters["tokens"]
        assert part.index.num_rows == shard.rows
        rows += [
            (
                row["id"],
                row["source"],
                row["bytes"],
                part.tokens[row["offset"] : row["offset"] + row["length"]].tolist(),
            )
            for row in part.index.to_pylist()
        ]
    return rows


@pytest.mark.parametrize("source", ["copies", "docstrings", "reference"])
def test_every_kept_document_once_in_id_order_with_the_tokens_of_its_text(tiny_line, source):
    tokenizer = tiny_line.plan.tokenizer
    encoder = load_encoder(tokenizer)
    kept = kept_documents(tiny_line, source)
    rows = stored(tiny_line.store, source)
    assert len(kept) > 20
    assert [r[0] for r in rows] == sorted(kept)
    for identity, name, size, tokens in rows:
        assert name == source
        assert size == len(kept[identity].encode())
        assert tokens == encode(encoder, [kept[identity]], tokenizer.end_of_text, tokenizer.dtype)[0].tolist()


def test_an_id_is_stored_once(tiny_line):
    ids = [row[0] for cell in tiny_line.plan.sources for row in stored(tiny_line.store, cell)]
    assert len(ids) == len(set(ids))


def test_tables_agree_with_rows(tiny_line):
    table = cells_of(tiny_line.store)
    assert sorted(table) == sorted(tiny_line.plan.sources)
    for cell in table:
        rows = stored(tiny_line.store, cell)
        counts = {"documents": len(rows), "bytes": sum(r[2] for r in rows), "tokens": sum(len(r[3]) for r in rows)}
        assert table[cell] == {cell: counts}
    assert cell_parts(tiny_line.store, "nothing") == []


def test_tokens_are_conserved(tiny_line):
    table = cells_of(tiny_line.store)
    for source in tiny_line.plan.sources:
        encoded = sum(s.counters["counts"]["tokens"] for s in tiny_line.of(source, "tokenize").shards)
        dropped = tiny_line.store.counters["dropped_tokens"][source]
        assert list(dropped) == ["exact_duplicates", "near_duplicates"]
        assert dropped["near_duplicates"] == 0
        assert encoded == table[source][source]["tokens"] + dropped["exact_duplicates"]
    assert tiny_line.store.counters["dropped_tokens"]["copies"]["exact_duplicates"] > 0


def test_small_parts_hold_what_one_part_holds(tiny_line, run_line, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "PART_TOKENS", 3000)
    monkeypatch.setattr(store, "CHUNK_TOKENS", 500)
    cut = run_line(tmp_path)
    assert cut.plan.store.digest != tiny_line.plan.store.digest
    for cell in cut.plan.sources:
        parts = cell_parts(cut.store, cell)
        assert len(parts) > 4
        assert stored(cut.store, cell) == stored(tiny_line.store, cell)
        for number, shard in enumerate(parts):
            hi = open_part(cut.store, shard).ids[0]
            assert all(int(h) * len(parts) >> 64 == number for h in hi)


def test_cuts_of_the_documents_leave_no_trace(tiny_line, run_line, tmp_path):
    whole = run_line(tmp_path, shard_bytes="64M")
    shards = {name: len(document_shards(whole.of(name, "ingest"))) for name in whole.plan.sources}
    assert shards == dict.fromkeys(shards, 1)
    assert len(document_shards(tiny_line.of("reference", "ingest"))) > 1
    assert whole.store.content == tiny_line.store.content


@given(st.dictionaries(st.sampled_from("abcd"), st.integers(0, 10 * store.PART_TOKENS), min_size=1))
def test_plan_of_parts(cells):
    parts = plan_parts(cells)
    for rank, cell in enumerate(sorted(cells)):
        mine = [p for p in parts if p.cell == cell]
        assert [p.number for p in mine] == list(range(len(mine)))
        assert {(p.rank, p.count) for p in mine} == {(rank, len(mine))}
        assert len(mine) == max(1, -(-cells[cell] // store.PART_TOKENS))
    assert Part("a", 0, 3, 4).name == "a/00003"


def test_a_source_that_loses_everything_has_an_empty_cell(run_line, tmp_path):
    filters = [{"length": {"min_words": 10_000_000}}]
    built = run_line(tmp_path, sources={"docstrings": {"filters": filters}})
    (shard,) = cell_parts(built.store, "docstrings")
    part = open_part(built.store, shard)
    assert (shard.rows, part.index.num_rows, len(part.tokens)) == (0, 0, 0)
    assert [len(words) for words in part.ids] == [0, 0]
    assert cells_of(built.store)["docstrings"] == {}


@pytest.mark.parametrize("name", ["selected", "sorted", "commits"])
def test_a_source_may_be_called_like_anything(run_line, tiny_corpus, tmp_path, name):
    read = {"format": "jsonl", "path": str(tiny_corpus / "docstrings.jsonl")}
    sources = {name: {"read": read, "licence": "PSF-2.0"}, "docstrings": None, "reference": None}
    first = run_line(tmp_path, sources=sources)
    assert stored(first.store, name)
    again = run_line(tmp_path, sources=sources)
    assert again.engine.ran == []
    assert again.store == first.store


def test_a_store_goes_on_after_a_kill(tiny_line, run_line, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "PART_TOKENS", 3000)
    whole = store.Assemble.__call__

    def fail(self, task):
        if task.payload.number == 2:
            raise KeyboardInterrupt
        whole(self, task)

    monkeypatch.setattr(store.Assemble, "__call__", fail)
    with pytest.raises(KeyboardInterrupt):
        run_line(tmp_path)
    (folder,) = (tmp_path / "build" / "store").iterdir()
    assert {"copies/00000", "copies/00001"} <= set(committed(folder))
    assert not (folder / "artifact.json").exists()
    monkeypatch.setattr(store.Assemble, "__call__", whole)
    made = run_line(tmp_path)
    assert ("store", "copies/00000") not in made.engine.ran
    assert ("store", "copies/00002") in made.engine.ran
    assert {stage for stage, _ in made.engine.ran} == {"store"}
    assert [stored(made.store, c) for c in made.plan.sources] == [stored(tiny_line.store, c) for c in made.plan.sources]


def test_tokens_that_are_cut_are_an_error(tiny_line, run_line, tmp_path):
    built = run_line(tmp_path, until="exact_duplicates")
    tokens = built.of("reference", "tokenize")
    path = tokens.path(tokens.shards[0], ".bin")
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(UserError, match=r"00000-000\.bin: is missing or has changed"):
        run_line(tmp_path)
