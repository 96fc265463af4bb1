"""Artifacts: whole or not there."""

import builtins
import errno
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stages.artifact import (
    ParquetShard,
    Shard,
    commit,
    committed,
    find,
    finish,
    new_file,
    open_artifact,
    sha256_of,
    write_json,
)
from stages.content import content_digest
from stages.errors import UserError
from stages.recipe import Recipe

RECIPE = Recipe("ingest", 1, "web", {"a": 1})
SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False)])


def batch(*numbers):
    return pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], schema=SCHEMA)


def write_shard(folder, name, *numbers):
    with ParquetShard(folder, f"{name}.parquet", SCHEMA) as parquet:
        parquet.write(batch(*numbers))
    return Shard(name, parquet.rows, parquet.content, (parquet.file,), {"counts": {"rows": parquet.rows}})


def make(root, recipe=RECIPE, names=("a/0", "a/1")):
    folder = root / recipe.folder
    for i, name in enumerate(names):
        commit(folder, name, [write_shard(folder, name, i, i + 1)])
    return finish(root, recipe, names, {"total": 2})


def files(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_a_finished_artifact_is_found_as_it_was(tmp_path):
    made = make(tmp_path)
    found = find(tmp_path, RECIPE)
    assert found == made == open_artifact(tmp_path, RECIPE.folder, RECIPE.digest)
    assert found.rows == 4
    assert [s.name for s in found.shards] == ["a/0", "a/1"]
    assert found.counters == {"total": 2}
    assert found.digest == RECIPE.digest
    assert files(made.folder) == ["a/0.parquet", "a/1.parquet", "artifact.json"]
    data = json.loads((made.folder / "artifact.json").read_bytes())
    assert data["recipe"] == RECIPE.to_json()
    for shard in found.shards:
        path = found.path(shard, ".parquet")
        assert sha256_of(path) == (shard.files[0].bytes, shard.files[0].sha256)
        assert content_digest(pq.read_table(path)) == shard.content
    with pytest.raises(UserError, match=r"a/0 has no \.bin file"):
        found.path(found.shards[0], ".bin")


def test_the_content_follows_rows_and_not_files(tmp_path):
    first = make(tmp_path / "one")
    for path in first.folder.rglob("*.parquet"):
        pq.write_table(pq.read_table(path), path, compression="none")
    content = [content_digest(pq.read_table(first.path(s, ".parquet"))) for s in first.shards]
    assert content == [s.content for s in first.shards]
    assert make(tmp_path / "two").content == first.content
    assert make(tmp_path / "three", names=("a/0", "a/2")).content != first.content


def test_each_batch_is_a_row_group(tmp_path):
    with ParquetShard(tmp_path, "x.parquet", SCHEMA) as parquet:
        for numbers in ((1, 2, 3), (4,), (), (5, 6)):
            parquet.write(batch(*numbers))
    with pq.ParquetFile(tmp_path / "x.parquet") as file:
        assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [3, 1, 0, 2]


def test_nothing_is_found_before_the_end(tmp_path):
    folder = tmp_path / RECIPE.folder
    assert find(tmp_path, RECIPE) is None
    with pytest.raises(UserError, match="the artifact is not here"):
        open_artifact(tmp_path, RECIPE.folder, RECIPE.digest)
    shard = write_shard(folder, "a/0", 1)
    (folder / "a" / "1.parquet.tmp-123").write_bytes(b"half")
    assert find(tmp_path, RECIPE) is None
    assert committed(folder) == {}
    commit(folder, "a/0", [shard])
    assert find(tmp_path, RECIPE) is None
    assert committed(folder) == {"a/0": [shard]}


def test_finish_refuses_missing_tasks(tmp_path):
    folder = tmp_path / RECIPE.folder
    commit(folder, "a/0", [write_shard(folder, "a/0", 1)])
    write_shard(folder, "a/1", 2)
    with pytest.raises(UserError, match="1 of 2 shards were not written, first a/1; build again"):
        finish(tmp_path, RECIPE, ["a/0", "a/1"])
    assert find(tmp_path, RECIPE) is None


def test_a_commit_whose_file_is_cut_or_gone_counts_for_nothing(tmp_path):
    folder = tmp_path / RECIPE.folder
    for name in ("a/0", "a/1", "a/2"):
        commit(folder, name, [write_shard(folder, name, 1)])
    os.truncate(folder / "a" / "0.parquet", 10)
    (folder / "a" / "1.parquet").unlink()
    assert list(committed(folder)) == ["a/2"]


def test_finish_clears_strays(tmp_path):
    folder = tmp_path / RECIPE.folder
    commit(folder, "a/0", [write_shard(folder, "a/0", 1)])
    commit(folder, "sorted/0", [write_shard(folder, "sorted/0", 1)])
    write_shard(folder, "a/9", 2)
    (folder / "a" / "0.parquet.tmp-123").write_bytes(b"half")
    finish(tmp_path, RECIPE, ["a/0"])
    assert files(folder) == ["a/0.parquet", "artifact.json"]


@pytest.mark.parametrize("name", ["commits", "sorted", "artifact", "tmp"])
def test_a_task_may_be_called_like_anything(tmp_path, name):
    made = make(tmp_path, names=(f"{name}/0", name))
    assert find(tmp_path, RECIPE) == made


def test_finish_is_idempotent_after_a_kill_before_the_commits_went(tmp_path):
    folder = tmp_path / RECIPE.folder
    commit(folder, "a/0", [write_shard(folder, "a/0", 1)])
    records = {p: p.read_bytes() for p in folder.glob(".commits/*")}
    made = finish(tmp_path, RECIPE, ["a/0"])
    for path, data in records.items():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    assert find(tmp_path, RECIPE) == made == finish(tmp_path, RECIPE, ["a/0"])


def test_find_refuses_another_recipe(tmp_path):
    made = make(tmp_path)
    other = Recipe("ingest", 1, "web", {"a": 2})
    made.folder.rename(tmp_path / other.folder)
    with pytest.raises(UserError, match=f"holds the artifact {RECIPE.digest[:12]} where {other.digest[:12]}"):
        find(tmp_path, other)


@pytest.mark.parametrize("harm", ["missing", "short", "long"])
def test_find_refuses_a_shard_that_changed(tmp_path, harm):
    path = make(tmp_path).folder / "a" / "1.parquet"
    if harm == "missing":
        path.unlink()
    elif harm == "short":
        os.truncate(path, path.stat().st_size - 1)
    else:
        path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(UserError, match=r"a/1\.parquet: is missing or has changed"):
        find(tmp_path, RECIPE)


def test_find_refuses_a_damaged_record(tmp_path):
    folder = make(tmp_path).folder
    (folder / "artifact.json").write_text('{"digest": ')
    with pytest.raises(UserError, match=r"artifact\.json: is damaged"):
        find(tmp_path, RECIPE)


class Full:
    """A file on a disk that is full after `room` bytes; `code` is what the system says then."""

    def __init__(self, raw, room, code):
        self.raw, self.room, self.code = raw, room, code

    def write(self, data):
        self.room -= memoryview(data).nbytes
        if self.room < 0:
            raise OSError(self.code, os.strerror(self.code))
        return self.raw.write(data)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.raw.close()

    def flush(self):
        self.raw.flush()


@pytest.fixture
def full_disk(monkeypatch):
    def start(room, code=errno.ENOSPC):
        plain = Path.open

        def open_(self, mode="r", *args, **options):
            raw = plain(self, mode, *args, **options)
            return Full(raw, room, code) if "w" in mode else raw

        monkeypatch.setattr(Path, "open", open_)

    return start


# A file of one batch begins with 4 bytes and ends with a footer of some hundred; each step of writing can fail.
@pytest.mark.parametrize("room", [0, 4, 30, 200, 400, 500])
def test_a_full_disk_names_the_file_and_leaves_nothing(tmp_path, full_disk, room):
    whole = write_shard(tmp_path / "whole", "a", *range(20)).files[0].bytes
    assert room < whole
    full_disk(room)
    with pytest.raises(UserError, match=r"shard/a\.parquet: cannot be written: No space left on device; free"):
        write_shard(tmp_path / "shard", "a", *range(20))
    assert files(tmp_path / "shard") == []


@pytest.mark.parametrize("code", [errno.EDQUOT, errno.EROFS])
def test_other_reasons(tmp_path, full_disk, code):
    full_disk(3, code)
    with pytest.raises(UserError, match=r"x\.json: cannot be written"):
        write_json(tmp_path / "x.json", {"a": "long"})
    assert files(tmp_path) == []


def test_a_broken_device_is_not_the_users_mistake(tmp_path, full_disk):
    full_disk(3, errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        write_json(tmp_path / "x.json", {"a": "long"})
    assert files(tmp_path) == []


def test_a_failure_while_writing_leaves_the_old_file(tmp_path):
    write_json(tmp_path / "x.json", {"old": 1})
    with pytest.raises(builtins.ZeroDivisionError), new_file(tmp_path, "x.json") as (file, _):
        file.write(b"new")
        raise ZeroDivisionError
    assert json.loads((tmp_path / "x.json").read_bytes()) == {"old": 1}
    assert files(tmp_path) == ["x.json"]


def test_a_failure_of_the_stage_is_not_hidden(tmp_path):
    with pytest.raises(ZeroDivisionError), ParquetShard(tmp_path, "x.parquet", SCHEMA) as parquet:
        parquet.write(batch(1))
        raise ZeroDivisionError
    assert files(tmp_path) == []


def test_the_files_digest_is_that_of_its_bytes(tmp_path):
    with new_file(tmp_path, "sub/x.bin") as (file, made):
        file.write(b"ab")
        file.write(memoryview(b"cd"))
        assert file.tell() == 4
    assert made[0].path == "sub/x.bin"
    assert (made[0].bytes, made[0].sha256) == sha256_of(tmp_path / "sub" / "x.bin")
