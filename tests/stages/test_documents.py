"""Reading document shards, and ids as words."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.artifact import Artifact, ParquetShard, Shard
from stages.documents import (
    document_shards,
    ids_to_words,
    one_batch,
    read_columns,
    read_groups,
    shard_name,
    words_to_ids,
)
from stages.errors import UserError

SCHEMA = pa.schema([pa.field("id", pa.binary(16), nullable=False), pa.field("text", pa.large_string(), nullable=False)])


def batch(*texts):
    ids = pa.array([t.encode().ljust(16, b"\0") for t in texts], pa.binary(16))
    return pa.RecordBatch.from_arrays([ids, pa.array(texts, pa.large_string())], schema=SCHEMA)


@pytest.fixture
def shard(tmp_path):
    with ParquetShard(tmp_path, "x.parquet", SCHEMA) as parquet:
        for texts in (("a", "b"), (), ("c",)):
            parquet.write(batch(*texts))
    return tmp_path / "x.parquet"


def test_groups_come_as_they_were_written(shard):
    assert [b.column("text").to_pylist() for b in read_groups(shard)] == [["a", "b"], [], ["c"]]
    assert all(b.schema == SCHEMA for b in read_groups(shard))
    assert [b.schema.names for b in read_groups(shard, ["text"])] == [["text"]] * 3
    assert [b.num_rows for b in read_groups(shard, ["text"])] == [2, 0, 1]


def test_columns(shard):
    assert read_columns(shard, ["text"], rows=3).column("text").to_pylist() == ["a", "b", "c"]
    with pytest.raises(UserError, match=r"x\.parquet: has 3 rows where its documents have 4"):
        read_columns(shard, ["text"], rows=4)


@pytest.mark.parametrize("harm", ["gone", "cut", "empty"])
def test_an_unreadable_shard_names_its_file(shard, harm):
    if harm == "gone":
        shard.unlink()
    else:
        shard.write_bytes(b"" if harm == "empty" else shard.read_bytes()[:-20])
    for read in (lambda: read_columns(shard), lambda: list(read_groups(shard))):
        with pytest.raises(UserError, match=r"x\.parquet: cannot be read.*build again"):
            read()


def test_a_missing_column_names_the_file(shard):
    with pytest.raises((UserError, KeyError), match="kept"):
        list(read_groups(shard, ["kept"]))
    with pytest.raises(UserError, match=r"x\.parquet"):
        read_columns(shard, ["kept"])


def test_one_batch():
    table = pa.Table.from_batches([batch("a"), batch("b", "c")])
    assert one_batch(table, SCHEMA).column("text").to_pylist() == ["a", "b", "c"]
    assert one_batch(table.slice(0, 0), SCHEMA).schema == SCHEMA


@given(st.lists(st.binary(min_size=16, max_size=16)), st.data())
def test_ids_are_big_endian_words(ids, data):
    array = pa.array(ids, pa.binary(16))
    start = data.draw(st.integers(0, len(ids)))
    hi, lo = ids_to_words(array.slice(start))
    assert [(int(h) << 64) | int(w) for h, w in zip(hi, lo, strict=True)] == [int.from_bytes(i) for i in ids[start:]]
    assert words_to_ids(hi, lo).to_pylist() == ids[start:]
    chunks = pa.chunked_array([array.slice(0, start), array.slice(start)], pa.binary(16))
    assert [w.tolist() for w in ids_to_words(chunks)] == [w.tolist() for w in ids_to_words(array)]


def test_order_of_words_is_order_of_ids():
    ids = sorted(
        [b"\0" * 16, b"\xff" * 16, b"\x80" + b"\0" * 15, b"\0" * 8 + b"\xff" * 8, b"\0" * 7 + b"\1" + b"\0" * 8]
    )
    hi, lo = ids_to_words(pa.array(ids, pa.binary(16)))
    assert np.lexsort((lo, hi)).tolist() == list(range(len(ids)))
    assert hi.dtype == lo.dtype == np.uint64


def test_quarantine_is_no_document_shard(tmp_path):
    shards = tuple(
        Shard(name, 0, "", ()) for name in ("documents/00000-000", "documents/00000-001", "quarantine/00000")
    )
    found = document_shards(Artifact(tmp_path, "", {}, shards, {}))
    assert [shard_name(s) for s in found] == ["00000-000", "00000-001"]
