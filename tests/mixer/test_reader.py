"""Reading a run: from the store and from the shards alike, resumed anywhere, by any number of ranks."""

import pickle
import shutil
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mixer.reader import Dataset
from mixer.reader import open as open_reader
from stages.errors import UserError

FAST = settings(max_examples=40, deadline=None)
Pair = tuple[Dataset, Dataset]


@pytest.fixture(scope="module")
def plain(parent: Path) -> Pair:
    """The parent from the store and from the shards."""
    return open_reader(parent, "store"), open_reader(str(parent.parent), "shards")


@pytest.fixture(scope="module")
def changing(amended_twice: Path) -> Pair:
    """Sequences of 64 (1000), of 100 (500), and of 64 again (625)."""
    return open_reader(amended_twice, "store"), open_reader(amended_twice, "shards")


@pytest.fixture(scope="module")
def rows(parent: Path) -> tuple[np.ndarray, list[str]]:
    """The training sequences of the parent, straight from its Parquet file."""
    table = pq.read_table(parent.parent / "train" / "00000.parquet")
    tokens = np.array(table.column("input_ids").to_pylist(), np.uint16)
    return tokens, table.column("domain").to_pylist()


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return (
        a["input_ids"].dtype == b["input_ids"].dtype
        and np.array_equal(a["input_ids"], b["input_ids"])
        and a["domain"] == b["domain"]
        and np.array_equal(a["position"], b["position"])
    )


def joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The parts of a batch, rank after rank."""
    return {
        "input_ids": np.concatenate([p["input_ids"] for p in parts]),
        "domain": [d for p in parts for d in p["domain"]],
        "position": np.concatenate([p["position"] for p in parts]),
    }


@given(position=st.integers(-2401, 2400))
@FAST
def test_an_item_is_a_row_of_the_shards(position: int, plain: Pair, rows: tuple[np.ndarray, list[str]]) -> None:
    for data in plain:
        item = data[position]
        assert item["input_ids"].dtype == np.uint16
        assert item["input_ids"].tolist() == rows[0][position].tolist()
        assert item["domain"] == rows[1][position]
        assert item["position"] == position % 2401


@given(bounds=st.slices(2401))
@FAST
def test_a_slice_is_what_numpy_takes(bounds: slice, plain: Pair, rows: tuple[np.ndarray, list[str]]) -> None:
    for data in plain:
        found = data[bounds]
        assert np.array_equal(found["input_ids"], rows[0][bounds])
        assert found["input_ids"].shape[1] == 64
        assert found["domain"] == rows[1][bounds]
        assert found["position"].tolist() == list(range(2401))[bounds]


def test_it_is_a_map_style_dataset(plain: Pair, rows: tuple[np.ndarray, list[str]]) -> None:
    """What a loader of PyTorch does: len, items or lists of items by a shuffled index, and iteration."""
    for data in plain:
        assert len(data) == 2401
        order = np.random.default_rng(1).permutation(len(data))[:50]
        for chunk in np.split(order, 10):
            items = data.__getitems__(chunk.tolist())
            assert np.array_equal(np.stack([i["input_ids"] for i in items]), rows[0][chunk])
            assert [i["position"] for i in items] == chunk.tolist()
        assert data[order[0]]["position"] == order[0]
        assert sum(1 for _ in zip(data, range(7), strict=False)) == 7
        for position in (2401, -2402):
            with pytest.raises(IndexError, match=f"position {position} of a run of 2401 sequences"):
                data[position]
    both = [list(iter_data) for iter_data in ((d[i] for i in range(0, 2401, 400)) for d in plain)]
    assert all(same(a, b) for a, b in zip(*both, strict=True))


def test_a_list_of_positions_is_what_numpy_takes(plain: Pair, rows: tuple[np.ndarray, list[str]]) -> None:
    wanted = [5, 2400, -1, 5, 900]
    for data in plain:
        for index in (wanted, np.array(wanted), tuple(wanted)):
            found = data[index]
            assert np.array_equal(found["input_ids"], rows[0][wanted])
            assert found["position"].tolist() == [5, 2400, 2400, 5, 900]
            assert found["domain"] == [rows[1][i] for i in wanted]
        assert data[[]]["input_ids"].shape == (0, 64)
        with pytest.raises(IndexError, match="position 2401 of a run of 2401"):
            data[[0, 2401]]


def test_a_dataset_goes_to_another_process(changing: Pair) -> None:
    """Also after it was read from, as a loader with workers sends it."""
    for data in changing:
        expected = data[1400:1500]
        assert same(pickle.loads(pickle.dumps(data))[1400:1500], expected)


@given(
    batch=st.integers(1, 700),
    start=st.integers(0, 60),
    drop_last=st.booleans(),
    worlds=st.lists(st.integers(1, 8), min_size=2, max_size=2),
)
@settings(max_examples=20, deadline=None)
def test_ranks_together_read_the_global_batch_wherever_they_start(
    batch: int, start: int, drop_last: bool, worlds: list[int], plain: Pair, changing: Pair
) -> None:
    size = batch * int(np.lcm.reduce(worlds))
    assume(size <= 2401)
    for pair in (plain, changing):
        whole = list(islice(pair[1].batches(size, drop_last=drop_last), start, start + 3))
        for world, data in zip(worlds, pair, strict=False):
            ranks = [list(islice(data.batches(size, rank, world, start, drop_last), 3)) for rank in range(world)]
            assert {len(r) for r in ranks} == {len(whole)}
            for batches in zip(whole, *ranks, strict=True):
                assert same(batches[0], joined(list(batches[1:])))


@pytest.mark.parametrize("drop_last", [True, False])
def test_batches_are_the_run_in_order_and_do_not_cross_a_change_of_length(drop_last: bool, changing: Pair) -> None:
    """Of 1000, 500 and 625 sequences, batches of 64 leave 40, 52 and 49."""
    for data in changing:
        found = list(data.batches(64, drop_last=drop_last))
        sizes = [len(b["domain"]) for b in found]
        tails = [[], [], []] if drop_last else [[40], [52], [49]]
        assert sizes == [64] * 15 + tails[0] + [64] * 7 + tails[1] + [64] * 9 + tails[2]
        widths = [b["input_ids"].shape[1] for b in found]
        assert widths == [64] * (15 + len(tails[0])) + [100] * (7 + len(tails[1])) + [64] * (9 + len(tails[2]))
        positions = np.concatenate([b["position"] for b in found]).tolist()
        if drop_last:
            assert positions == [*range(960), *range(1000, 1448), *range(1500, 2076)]
        else:
            assert positions == list(range(2125))


def test_a_rank_without_a_row_of_a_last_batch_gets_an_empty_one_of_its_length(changing: Pair) -> None:
    """61 ranks: 500 sequences of 100 are 8 batches after the 17 of the first stretch, and 12 sequences."""
    for batch, length, positions in ((16, 64, range(976, 1000)), (25, 100, range(1488, 1500))):
        found = [next(changing[0].batches(61, rank, 61, batch, drop_last=False)) for rank in range(61)]
        assert {b["input_ids"].shape for b in found} == {(0, length), (1, length)}
        assert np.concatenate([b["position"] for b in found]).tolist() == list(positions)


def test_segments_of_one_length_are_one_stretch(parent: Path, amend_by: Any) -> None:
    data = open_reader(amend_by(parent, 1000, {"docstrings": "0.5", "manual": "0.5"}, "same length"))
    assert [b["position"][0] for b in data.batches(300)] == list(range(0, 2400, 300))
    assert data[990:1010]["input_ids"].shape == (20, 64)


def test_rows_of_several_lengths_are_not_one_array(changing: Pair) -> None:
    for data in changing:
        with pytest.raises(ValueError, match=r"sequences of 2 lengths \(\[64, 100\]\); ask for fewer"):
            data[990:1010]
        assert [len(data[i]["input_ids"]) for i in (999, 1000, 1499, 1500)] == [64, 100, 100, 64]
        assert data[5:5]["domain"] == []


@pytest.mark.parametrize(("size", "rank", "world"), [(0, 0, 1), (8, 0, 3), (8, 4, 4), (8, -1, 4), (8, 0, 0)])
def test_batches_that_cannot_be(size: int, rank: int, world: int, plain: Pair) -> None:
    with pytest.raises(ValueError, match=r"ranks do not divide|is not in a world of"):
        next(plain[0].batches(size, rank, world))


def test_more_row_groups_than_are_kept_are_read_again(
    parent: Path, tmp_path: Path, rows: tuple[np.ndarray, list[str]]
) -> None:
    folder = Path(shutil.copytree(parent.parent, tmp_path / "copy"))
    path = folder / "train" / "00000.parquet"
    pq.write_table(pq.read_table(path), path, row_group_size=100)
    data = open_reader(folder)
    order = np.random.default_rng(2).permutation(2401)[:200]
    for position in order.tolist():
        assert data[position]["input_ids"].tolist() == rows[0][position].tolist()
    assert np.array_equal(data[:]["input_ids"], rows[0])


def test_auto_reads_shards_where_there_are_and_else_the_store(parent: Path, virtual: Path, tmp_path: Path) -> None:
    """A folder with shards and manifest alone, as it is copied to where the training is."""
    folder = Path(shutil.copytree(parent.parent, tmp_path / "deep" / "er" / "copy"))
    assert same(open_reader(folder)[3:9], open_reader(parent, "store")[3:9])
    with pytest.raises(UserError, match="the artifact is not here; build again in the folder of the manifest"):
        open_reader(folder, "store")
    shutil.copytree(virtual.parent, tmp_path / "deep" / "er" / "virtual")
    with pytest.raises(UserError, match="the artifact is not here"):
        open_reader(tmp_path / "deep" / "er" / "virtual")
    assert open_reader(virtual)[0]["input_ids"].shape == (64,)


def test_a_virtual_mixture_has_no_shards_to_read(virtual: Path) -> None:
    with pytest.raises(UserError, match="this mixture is virtual and has no shards; open it with source='store'"):
        open_reader(virtual, "shards")


def test_a_shard_that_is_gone_is_named(parent: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(parent.parent, tmp_path / "copy"))
    (folder / "train" / "00000.parquet").unlink()
    with pytest.raises(UserError, match=r"train/00000.parquet: cannot be read: .*; run `mixer verify"):
        open_reader(folder)[0]
    with pytest.raises(UserError, match="there is no manifest; build it"):
        open_reader(tmp_path / "nowhere")
