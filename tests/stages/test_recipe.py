"""Recipes: canonical JSON and the digests that name folders."""

import hashlib
import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.recipe import Recipe, canonical_json, digest_of

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def test_canonical_json():
    assert (
        canonical_json({"b": [1, 2.5, None, True], "a": "é\u2028"}) == '{"a":"é\u2028","b":[1,2.5,null,true]}'.encode()
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": [-float("inf")]}])
def test_no_number_is_refused(value):
    with pytest.raises(ValueError, match="JSON"):
        canonical_json(value)


@given(VALUES)
def test_json_reads_back(value):
    assert json.loads(canonical_json(value)) == value


@given(st.dictionaries(st.text(), st.integers(), min_size=2))
def test_order_of_keys_does_not_matter(mapping):
    assert digest_of(mapping) == digest_of(dict(reversed(mapping.items())))


def test_golden_digest():
    recipe = Recipe("ingest", 1, "web", {"max_document": 10, "sample": None}, {"source": "00ff"})
    text = b'{"config":{"max_document":10,"sample":null},"inputs":{"source":"00ff"},"stage":"ingest","version":1}'
    assert recipe.digest == hashlib.sha256(text).hexdigest()
    assert recipe.digest == "d8888ef5eb193247121fb16ada83045816880af1939aa554702c4f34a12b77a6"
    assert recipe.folder == f"ingest/web-{recipe.digest[:12]}"


def test_the_name_is_no_part_of_the_digest_and_everything_else_is():
    base = Recipe("ingest", 1, "web", {"a": 1}, {"source": "x"})
    assert Recipe("ingest", 1, "other", {"a": 1}, {"source": "x"}).digest == base.digest
    others = [
        Recipe("ingests", 1, "web", {"a": 1}, {"source": "x"}),
        Recipe("ingest", 2, "web", {"a": 1}, {"source": "x"}),
        Recipe("ingest", 1, "web", {"a": 2}, {"source": "x"}),
        Recipe("ingest", 1, "web", {"a": 1}, {"source": "y"}),
        Recipe("ingest", 1, "web", {"source": "x"}, {"a": 1}),
    ]
    assert len({base.digest, *(r.digest for r in others)}) == 6


def test_hash_seed_leaves_no_trace():
    code = "from stages.recipe import digest_of; print(digest_of({k: [k] for k in {'a', 'b', 'c', 'd', 'e'}}))"
    seen = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": s, "PYTHONPATH": "."}, capture_output=True, check=True
        ).stdout
        for s in ("1", "2")
    }
    assert len(seen) == 1
