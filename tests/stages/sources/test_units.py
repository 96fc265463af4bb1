"""Cutting a listing into units."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.sources.listing import Listing, SourceFile
from stages.sources.spec import JsonlRead
from stages.sources.units import plan_units

READ = JsonlRead(format="jsonl", path="x")


def listing(sizes, **more):
    files = (SourceFile("u", f"{i:05}", size, **more) for i, size in enumerate(sizes))
    return Listing("demo", READ, tuple(files))


@given(st.lists(st.integers(0, 100), max_size=40), st.integers(1, 150))
def test_units_are_contiguous_complete_and_full(sizes, target):
    units = plan_units(listing(sizes), target)
    assert [part.index for unit in units for part in unit.parts] == list(range(len(sizes)))
    assert [unit.bytes for unit in units] == [sum(p.bytes for p in unit.parts) for unit in units]
    assert all(unit.bytes <= target or len(unit.parts) == 1 for unit in units)
    assert all(a.bytes + b.parts[0].bytes > target for a, b in itertools.pairwise(units))


def test_compressed_tars_stay_whole_and_datasets_are_cut_by_rows():
    assert len(plan_units(listing([10] * 9, member="m", sequential=True), 20)) == 1
    parts = [p for unit in plan_units(listing([100], rows=7), 30) for p in unit.parts]
    assert [(p.start, p.stop) for p in parts] == [(0, 1), (1, 3), (3, 5), (5, 7)]
    assert sum(p.bytes for p in parts) == 100
    with pytest.raises(ValueError, match="target_bytes"):
        plan_units(listing([1]), 0)
