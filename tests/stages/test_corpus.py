"""The corpus spec: defaults, names, and what is refused."""

import json
from fractions import Fraction
from pathlib import Path

import jsonschema
import pytest
from pydantic import ValidationError

from stages.corpus import NAME, CorpusSpec, SourceSpec, resolve

SOURCE = {"read": {"format": "jsonl", "path": "web.jsonl"}, "licence": "MIT"}
CORPUS = {"corpus": "demo", "tokenizer": {"file": "t.json", "end_of_text": "<e>"}, "sources": {"web": SOURCE}}


def source(**more):
    return SourceSpec.model_validate(SOURCE | more)


def test_defaults():
    web = CorpusSpec.model_validate(CORPUS).sources["web"]
    assert (web.priority, web.filters, web.max_document) == (0, (), 10_000_000)
    assert (web.ceiling.bad_rows, web.ceiling.removed) == (Fraction(1, 100), Fraction(1))
    assert CorpusSpec.model_validate(CORPUS).shard_bytes == 64 << 20
    assert web.normalize.nfc is True


def test_filters_are_parsed_in_order():
    entries = ["gopher_repetition", {"length": {"min_words": "3"}}, {"c4": {}}]
    web = source(filters=entries)
    assert [name for name, _ in web.filters] == ["gopher_repetition", "length", "c4"]
    again = SourceSpec.model_validate(web.model_dump(mode="json"))
    assert again == web


@pytest.mark.parametrize("name", ["web", "a", "0", "common-crawl_2024.10", "a.b"])
def test_names(name):
    assert NAME.fullmatch(name)
    assert name in CorpusSpec.model_validate(CORPUS | {"sources": {name: SOURCE}}).sources


@pytest.mark.parametrize("name", ["", "Web", "a/b", ".hidden", "-a", "a b", "é", "a\n", "..", "a@b"])
def test_what_is_no_name(name):
    with pytest.raises(ValidationError, match="is not a name"):
        CorpusSpec.model_validate(CORPUS | {"sources": {name: SOURCE}})


@pytest.mark.parametrize(
    "changes",
    [
        {"sources": {}},
        {"shard_bytes": "1K"},
        {"cells": "topic"},
        {"sauces": {}},
        {"sources": {"web": SOURCE | {"filters": ["length"]}}},
        {"sources": {"web": SOURCE | {"filters": ["gopher_quality", {"gopher_quality": {}}]}}},
        {"sources": {"web": SOURCE | {"filters": [{"length": {"min_words": 1}, "c4": {}}]}}},
        {"sources": {"web": SOURCE | {"ceiling": {"removed": 0.5}}}},
        {"sources": {"web": SOURCE | {"ceiling": {"removd": "50%"}}}},
        {"sources": {"web": {k: v for k, v in SOURCE.items() if k != "licence"}}},
        {"tokenizer": {"file": "t.json"}},
    ],
    ids=str,
)
def test_what_is_refused(changes):
    with pytest.raises(ValidationError):
        CorpusSpec.model_validate(CORPUS | changes)


def test_the_schema_agrees_with_the_model():
    schema = CorpusSpec.model_json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    good = CORPUS | {"sources": {"web": SOURCE | {"filters": ["c4", {"length": {"min_words": 3}}]}}}
    validator.validate(json.loads(json.dumps(good)))
    for bad in ({"sauces": {}}, {"sources": {"web": SOURCE | {"filters": ["c5"]}}}):
        with pytest.raises(jsonschema.ValidationError):
            validator.validate(CORPUS | bad)


def test_paths_are_relative_to_the_spec():
    assert resolve(Path("/specs"), "data/x") == Path("/specs/data/x")
    assert resolve(Path("/specs"), "/data/x") == Path("/data/x")
