"""The content digest follows the rows and nothing else."""

import datetime
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.content import ContentDigest, content_digest

SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("id", pa.binary(2)),
        ("number", pa.int64()),
        ("share", pa.float64()),
        ("flag", pa.bool_()),
        ("words", pa.list_(pa.string())),
        ("pair", pa.struct([("a", pa.int32()), ("b", pa.string())])),
    ]
)
ROW = st.fixed_dictionaries(
    {
        "text": st.none() | st.text(max_size=4),
        "raw": st.none() | st.binary(max_size=4),
        "id": st.none() | st.binary(min_size=2, max_size=2),
        "number": st.none() | st.integers(-(2**63), 2**63 - 1),
        "share": st.none() | st.floats(allow_nan=False),
        "flag": st.none() | st.booleans(),
        "words": st.none() | st.lists(st.none() | st.text(max_size=2), max_size=3),
        "pair": st.none()
        | st.fixed_dictionaries({"a": st.none() | st.integers(0, 9), "b": st.none() | st.text(max_size=2)}),
    }
)
ROWS = [
    {
        "text": f"text {i} é",
        "raw": bytes([i, 255]),
        "id": bytes([i, 1]),
        "number": -i,
        "share": i / 8,
        "flag": i % 2 == 0,
        "words": ["w"] * i,
        "pair": {"a": i, "b": str(i)},
    }
    for i in range(5)
] + [dict.fromkeys(SCHEMA.names)]


def table(rows, schema=SCHEMA):
    return pa.Table.from_pylist(rows, schema=schema)


def one(values, kind):
    return content_digest(pa.table({"c": pa.array(values, kind)}))


def test_golden():
    assert content_digest(table(ROWS)) == "f45a716da30ca0926e2d6e0ae8b19e5dadee0d4b649fcffe54bc827e575948ef"
    assert content_digest(table([])) == "beca2293deb195dd0c03f87af3aaa5249c7f3050a127765bd42766c29a19270c"


@settings(deadline=None, max_examples=50)
@given(st.lists(ROW, max_size=8), st.data())
def test_cuts_do_not_matter(rows, data):
    whole = table(rows)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    pieces = [whole.slice(a, b - a) for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    digest = ContentDigest(SCHEMA)
    for piece in pieces:
        for batch in piece.to_batches():
            digest.update(batch)
    assert digest.hexdigest() == content_digest(whole)


@settings(deadline=None, max_examples=50)
@given(st.lists(ROW, max_size=6), st.lists(ROW, max_size=6))
def test_equal_digest_means_equal_rows(left, right):
    same = repr(left) == repr(right)
    assert (content_digest(table(left)) == content_digest(table(right))) == same


def test_an_empty_batch_is_no_batch():
    digest = ContentDigest(SCHEMA)
    digest.update(pa.RecordBatch.from_pylist([], schema=SCHEMA))
    assert digest.hexdigest() == ContentDigest(SCHEMA).hexdigest() == content_digest(table([]))


@pytest.mark.parametrize("name", SCHEMA.names)
@pytest.mark.parametrize("row", range(len(ROWS)))
def test_any_changed_value_counts(name, row):
    other = dict(ROWS[(row + 1) % len(ROWS)])
    changed = [*ROWS]
    changed[row] = {**ROWS[row], name: other[name]}
    assert content_digest(table(changed)) != content_digest(table(ROWS))


@pytest.mark.parametrize(
    "options", [{}, {"row_group_size": 1}, {"compression": "none"}, {"use_dictionary": False}], ids=str
)
def test_parquet_reads_back_with_the_same_digest(options):
    sink = io.BytesIO()
    pq.write_table(table(ROWS), sink, **options)
    assert content_digest(pq.read_table(sink)) == content_digest(table(ROWS))


def test_ipc_reads_back_with_the_same_digest():
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, SCHEMA) as writer:
        writer.write_table(table(ROWS), max_chunksize=2)
    assert content_digest(pa.ipc.open_file(sink.getvalue()).read_all()) == content_digest(table(ROWS))


def test_types_of_the_same_values():
    texts = ["a", "", None, "longer than twelve bytes"]
    kinds = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
    assert len({one(texts, kind) for kind in kinds}) == 1
    assert one([b"a", None], pa.binary()) == one([b"a", None], pa.large_binary()) != one(["a", None], pa.string())
    lists = [["a"], None, [], ["b", None]]
    assert one(lists, pa.list_(pa.string())) == one(lists, pa.large_list(pa.large_string()))
    assert one([[1, 2], None], pa.list_(pa.int8(), 2)) == one([[1, 2], None], pa.list_(pa.int8()))


def test_other_dictionary_same_values():
    first = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0]), pa.array(["a", "b"]))
    second = pa.DictionaryArray.from_arrays(pa.array([3, 0, 2, 3]), pa.array(["b", "unused", None, "a"]))
    assert content_digest(pa.table({"c": first})) == content_digest(pa.table({"c": second}))
    assert content_digest(pa.table({"c": first})) == one(["a", "b", None, "a"], pa.string())


def test_what_lies_under_a_null_does_not_count():
    mask = pa.array([False, True])
    numbers = [pa.array(np.array([1, hidden]), mask=np.array([False, True])) for hidden in (7, 8)]
    structs = [pa.StructArray.from_arrays([pa.array([1, hidden])], ["a"], mask=mask) for hidden in (7, 8)]
    for pair in (numbers, structs):
        assert content_digest(pa.table({"c": pair[0]})) == content_digest(pa.table({"c": pair[1]}))


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint32(), pa.float32(), pa.bool_(), pa.string(), pa.binary(1)], ids=str)
def test_slices(kind):
    values = {pa.bool_(): [True, False, None, True, True] * 4, pa.string(): ["a", "bc", None, "", "d"] * 4}.get(
        kind, [b"a", b"b", None, b"c", b"d"] * 4 if kind == pa.binary(1) else [1, 2, None, 3, 4] * 4
    )
    whole = pa.array(values, kind)
    for start, length in ((0, 20), (1, 7), (9, 11), (20, 0)):
        sliced = pa.table({"c": whole.slice(start, length)})
        assert content_digest(sliced) == one(values[start : start + length], kind)


@pytest.mark.parametrize(
    ("left", "right", "kind"),
    [
        (["ab", "c"], ["a", "bc"], pa.string()),
        (["a", ""], ["", "a"], pa.string()),
        ([None], [""], pa.string()),
        ([None, "a"], ["a", None], pa.string()),
        ([None], [b""], pa.binary()),
        ([None], [0], pa.int64()),
        ([None], [False], pa.bool_()),
        ([None], [b"\0\0"], pa.binary(2)),
        ([0.0], [-0.0], pa.float64()),
        ([[1], [2, 3]], [[1, 2], [3]], pa.list_(pa.int64())),
        ([None], [[]], pa.list_(pa.int64())),
        ([[None]], [[]], pa.list_(pa.int64())),
        ([["a", "b"]], [["ab"]], pa.list_(pa.string())),
        ([None], [{"a": None}], pa.struct([("a", pa.int64())])),
        ([1, 2], [2, 1], pa.int64()),
        ([1], [1, 1], pa.int64()),
        ([], [None], pa.int64()),
    ],
    ids=str,
)
def test_what_differs(left, right, kind):
    assert one(left, kind) != one(right, kind)


def test_names_order_and_types_count():
    base = pa.table({"a": [1], "b": [1]})
    digests = {content_digest(t) for t in (base, base.rename_columns(["a", "c"]), base.select(["b", "a"]))}
    assert len(digests) == 3
    assert one([1], pa.int64()) != one([1], pa.int32())
    assert one([True], pa.bool_()) != one([1], pa.uint8())


def test_values_do_not_move_between_columns():
    left = pa.table({"a": ["x", "y"], "b": ["", ""]})
    assert content_digest(left) != content_digest(pa.table({"a": ["", ""], "b": ["x", "y"]}))


def test_a_type_it_does_not_know_is_refused():
    with pytest.raises((TypeError, ValueError)):
        one([datetime.datetime(2026, 1, 1)], pa.timestamp("us"))
