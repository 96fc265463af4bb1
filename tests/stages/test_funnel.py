"""Nothing is lost between what comes in, what stays and what goes."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from stages.errors import UserError
from stages.funnel import Count, Funnel, add_counts, count_causes

MASKS = st.integers(0, 12).flatmap(
    lambda rows: st.tuples(
        st.dictionaries(st.sampled_from("abcd"), arrays.arrays(np.bool_, rows), max_size=4),
        arrays.arrays(np.int64, rows, elements=st.integers(0, 1000)),
    )
)


@settings(max_examples=50)
@given(MASKS)
def test_counts_against_a_loop(case):
    causes, sizes = case
    funnel, kept = count_causes(causes, sizes)
    expected_first = dict.fromkeys(causes, (0, 0))
    for row, size in enumerate(sizes.tolist()):
        hit = [c for c in causes if causes[c][row]]
        assert kept[row] == (not hit)
        if hit:
            documents, total = expected_first[hit[0]]
            expected_first[hit[0]] = (documents + 1, total + size)
    assert {c: (n.documents, n.bytes) for c, n in funnel.first.items()} == expected_first
    assert {c: n.documents for c, n in funnel.every.items()} == {c: int(m.sum()) for c, m in causes.items()}
    funnel.check("here")
    assert Funnel.from_json(json.loads(json.dumps(funnel.to_json()))) == funnel


@settings(max_examples=40)
@given(MASKS, MASKS)
def test_sums_stay_whole(one, other):
    total = count_causes(*one)[0] + count_causes(*other)[0]
    total.check("here")
    assert total.entered.documents == len(one[1]) + len(other[1])
    assert set(total.first) == set(one[0]) | set(other[0])


def test_every_cause_has_a_count():
    funnel, _ = count_causes({"a": np.zeros(2, bool), "b": np.ones(2, bool)}, np.array([3, 4]))
    assert funnel.to_json() == {
        "in": {"documents": 2, "bytes": 7},
        "kept": {"documents": 0, "bytes": 0},
        "dropped": {"a": {"documents": 0, "bytes": 0}, "b": {"documents": 2, "bytes": 7}},
        "every_cause": {"a": {"documents": 0, "bytes": 0}, "b": {"documents": 2, "bytes": 7}},
    }


@pytest.mark.parametrize("kept", [Count(7, 100), Count(8, 99), Count(9, 100)], ids=str)
def test_a_lost_document_or_byte_is_an_error(kept):
    whole = Funnel(Count(10, 130), Count(8, 100), {"a": Count(2, 30)}, {"a": Count(2, 30)})
    whole.check("web: filters")
    broken = Funnel(whole.entered, kept, whole.first, whole.every)
    with pytest.raises(UserError, match=r"^web: filters: documents went missing: 10 came in \(130 bytes\)"):
        broken.check("web: filters")


def test_a_missing_key_is_an_error():
    data = Funnel().to_json()
    for key in data:
        with pytest.raises(KeyError):
            Funnel.from_json({k: v for k, v in data.items() if k != key})


def test_add_counts():
    assert add_counts({"a": Count(1, 2)}, {"a": Count(3, 4), "b": Count(5, 6)}) == {"a": Count(4, 6), "b": Count(5, 6)}
