"""Parquet, one-document files, the running Python's library, and datasets."""

import ast
import sysconfig

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stages.errors import UserError
from stages.sources.listing import list_files
from stages.sources.read import read_unit
from stages.sources.units import plan_units

PARQUET = {"format": "parquet", "path": "t.parquet"}


def write(tmp_path, columns, **arguments):
    pq.write_table(pa.table(columns), tmp_path / "t.parquet", **arguments)


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())], ids=str
)
def test_parquet_text_types(tmp_path, read_all, kind):
    write(tmp_path, {"id": pa.array([7, None, 9]), "text": pa.array(["a", "é", "a"], pa.string()).cast(kind)})
    assert read_all(PARQUET | {"id": "id"}).good == [(0, 0, "7", "a"), (0, 1, None, "é"), (0, 2, "9", "a")]


def test_parquet_bad_rows(tmp_path, read_all):
    raw = pa.array([b"ok", b"\xff", b"", None, b"x" * 50, b"\xc3", b"\xa9", b"end"], pa.binary()).view(pa.string())
    write(tmp_path, {"text": raw})
    expected = [(1, "invalid_utf8"), (2, "empty_text"), (3, "null_text"), (4, "oversized"), (5, "invalid_utf8")]
    for batch_bytes in (1, 1 << 20):
        out = read_all(PARQUET, max_document_bytes=49, batch_bytes=batch_bytes)
        assert [(row, text) for _, row, _, text in out.good] == [(0, "ok"), (7, "end")]
        assert [(row, reason) for _, row, reason in out.bad] == [*expected, (6, "invalid_utf8")]


def test_parquet_is_split_by_row_groups(tmp_path, read_all, parse):
    texts = [f"document {i} " + "x" * (i % 50) for i in range(1000)]
    write(tmp_path, {"text": texts, "other": list(range(1000))}, row_group_size=100, compression="none")
    whole = read_all(PARQUET)
    assert whole.texts == texts
    for target in (1, 3000, 10_000):
        assert read_all(PARQUET, target_bytes=target, batch_bytes=500).good == whole.good
    units = plan_units(whole.listing, 15_000)
    assert 2 < len(units) < 10
    assert [part.start for unit in units for part in unit.parts][1:] == [u.parts[-1].stop for u in units[:-1]]
    assert plan_units(whole.listing, 1)[3].parts[0].start == 3


def test_parquet_columns_that_are_not_there(tmp_path, read_all):
    write(tmp_path, {"txt": ["a"], "number": [1]})
    with pytest.raises(UserError, match=r"t\.parquet: no column 'text'.*txt, number; the nearest name is txt") as error:
        read_all(PARQUET)
    assert "demo" in str(error.value)
    with pytest.raises(UserError, match="no column 'uid', which `id` asks for"):
        read_all(PARQUET | {"text": "txt", "id": "uid"})
    with pytest.raises(UserError, match="'number' has type int64"):
        read_all(PARQUET | {"text": "number"})


def test_damaged_parquet(tmp_path, read_all):
    write(tmp_path, {"text": [f"{i:099}" for i in range(5000)]}, compression="none", use_dictionary=False)
    data = (tmp_path / "t.parquet").read_bytes()
    for broken in (data[: len(data) // 2], b"", b"garbage" * 100, data[:1000] + b"\xff" * 3000 + data[4000:]):
        (tmp_path / "t.parquet").write_bytes(broken)
        try:
            out = read_all(PARQUET)
        except UserError as error:
            assert "t.parquet" in str(error) and "demo" in str(error)
        else:  # bytes inside of values can only be told by what they are
            assert broken.startswith(b"PAR1") and len(broken) == len(data)
            assert {reason for _, _, reason in out.bad} == {"invalid_utf8"}


def test_empty_parquet(tmp_path, read_all):
    write(tmp_path, {"text": pa.array([], pa.string())})
    assert read_all(PARQUET)[1:] == ([], [])


def test_files(tmp_path, read_all):
    contents = {
        "a.txt": b"\xef\xbb\xbfone\r\n",
        "b.txt": b"",
        "c.txt": b"\xff",
        "d.txt": b"x" * 11,
        "e/f.txt": "zwölf".encode(),
    }
    for name, data in contents.items():
        (tmp_path / "d" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "d" / name).write_bytes(data)
    (tmp_path / "d" / "_SUCCESS").touch()
    for batch_bytes in (1, 1 << 20):
        out = read_all({"format": "files", "path": "d"}, max_document_bytes=10, batch_bytes=batch_bytes)
        assert out.good == [(0, 0, "a.txt", "one\r\n"), (4, 0, "e/f.txt", "zwölf")]
        assert out.bad == [(1, 0, "empty_text"), (2, 0, "invalid_utf8"), (3, 0, "oversized")]
        assert out.listing.strays == ("_SUCCESS",)


def test_the_running_pythons_library(tmp_path, parse):
    read = parse({"format": "files", "python": "stdlib", "path": "*.py"})
    listing = list_files(read, tmp_path, tmp_path)
    names = [file.name for file in listing.files]
    assert "ast.py" in names and "/" not in "".join(names)
    index = names.index("ast.py")
    texts = {
        row["file"]: row["text"]
        for unit in plan_units(listing, 1 << 20)
        for batch in read_unit(read, unit)
        for row in batch.rows.to_pylist()
    }
    assert texts[index].encode() == open(ast.__file__, "rb").read()  # noqa: PTH123, SIM115
    everything = list_files(parse({"format": "files", "python": "stdlib"}), tmp_path, tmp_path)
    parts = {part for file in everything.files for part in file.name.split("/")}
    assert not parts & {"test", "tests", "site-packages", "__pycache__"}
    assert all(file.url.startswith(sysconfig.get_path("stdlib")) for file in everything.files)


@pytest.fixture
def datasets(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    module = pytest.importorskip("datasets")
    monkeypatch.setattr(module.config, "HF_DATASETS_CACHE", tmp_path / "hf-cache")
    return module


ROWS = {"uid": [3, 4, 5], "text": ["one", None, "drei"]}
GOOD = [(0, 0, "3", "one"), (0, 2, "5", "drei")]


def test_saved_dataset(tmp_path, read_all, datasets):
    dataset = datasets.Dataset.from_dict(ROWS)
    dataset.save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"train": dataset, "dev": dataset}).save_to_disk(tmp_path / "two")
    out = read_all({"format": "hf", "saved": "one", "row_id": "uid"})
    assert (out.good, out.bad) == (GOOD, [(0, 1, "null_text")])
    out = read_all({"format": "hf", "saved": "two", "split": "dev", "row_id": "uid"}, target_bytes=1, batch_bytes=1)
    assert (out.good, out.bad) == (GOOD, [(0, 1, "null_text")])
    assert out.listing.behind
    with pytest.raises(UserError, match="no split 'test', only train, dev"):
        read_all({"format": "hf", "saved": "two", "split": "test"})
    with pytest.raises(UserError, match="no column 'txt'"):
        read_all({"format": "hf", "saved": "one", "text": "txt"})
    with pytest.raises(UserError, match=r"demo: no folder at .*noe"):
        read_all({"format": "hf", "saved": "noe"})


def test_folder_dataset(tmp_path, read_all, datasets):
    (tmp_path / "d").mkdir()
    pq.write_table(pa.table(ROWS), tmp_path / "d" / "train.parquet")
    out = read_all({"format": "hf", "folder": "d", "row_id": "uid"})
    assert (out.good, out.bad) == (GOOD, [(0, 1, "null_text")])
    assert [file.name for file in out.listing.behind] == ["train.parquet"]


def test_hub_dataset_is_pinned(tmp_path, read_all, datasets, parse, monkeypatch):
    calls = []

    def load_dataset(path, **arguments):
        calls.append((path, arguments))
        return datasets.Dataset.from_dict(ROWS)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    read = {"format": "hf", "id": "org/name", "revision": "a" * 40, "name": "en", "row_id": "uid"}
    assert read_all(read).good == GOOD
    assert set(map(str, calls)) == {str(("org/name", {"name": "en", "revision": "a" * 40, "split": "train"}))}
    for revision in (None, "main", "a" * 39):
        with pytest.raises(ValueError, match="full 40-digit commit"):
            parse(read | {"revision": revision})
    for more in ({"folder": "d"}, {"id": None}):
        with pytest.raises(ValueError, match="exactly one"):
            parse(read | more)
