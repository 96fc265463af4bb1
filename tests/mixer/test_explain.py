import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import mixer.explain
from mixer.explain import explain
from stages.errors import UserError


@pytest.fixture(scope="module")
def manifest(tiny_build: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(tiny_build.read_bytes())
    return loaded


@pytest.fixture(scope="module")
def pieces(tiny_build: Path, manifest: dict[str, Any]) -> dict[str, dict[str, list[tuple[int, int, int]]]]:
    """Split -> id -> (position, start, end) of every piece in the shards."""
    found: dict[str, dict[str, list[tuple[int, int, int]]]] = {"train": {}, "validation": {}}
    for shard in manifest["shards"]:
        for row in pq.read_table(tiny_build.parent / shard["path"]).to_pylist():
            for piece in row["pieces"]:
                places = found[shard["split"]].setdefault(piece["id"], [])
                places.append((row["position"], piece["start"], piece["end"]))
    return found


def rows_of(build: Path, manifest: dict[str, Any], stage: str, source: str) -> list[dict[str, Any]]:
    """A stage's columns for a source, in the order of its documents."""
    record = next(s for s in manifest["stages"] if s["stage"] == stage and s["name"] in (source, "tiny"))
    below = {"ingest": "documents", "exact_duplicates": source, "near_duplicates": source}.get(stage, ".")
    paths = sorted((build.parents[2] / record["folder"] / below).glob("*.parquet"))
    return [row for path in paths for row in pq.read_table(path).to_pylist()]


def test_a_kept_document_and_where_its_tokens_are(
    tiny_build: Path, pieces: dict[str, dict[str, list[tuple[int, int, int]]]]
) -> None:
    several = max(pieces["train"], key=lambda i: len(pieces["train"][i]))
    once = min(pieces["train"], key=lambda i: len(pieces["train"][i]))
    for document in (several, once):
        found = explain(tiny_build, document)
        assert found["id"] == document
        assert found["split"] == "train"
        assert sum(o["kept"] for o in found["occurrences"]) == 1
        assert [(p["position"], p["start"], p["end"]) for p in found["sequences"]] == pieces["train"][document]
        assert {p["domain"] for p in found["sequences"]} == {found["domain"]}
        kept = next(o for o in found["occurrences"] if o["kept"])
        assert kept["source"] == found["store"]["source"]
        assert kept["columns"]["tokenize"]["token_count"] == found["store"]["length"]


def test_a_validation_document(tiny_build: Path, pieces: dict[str, dict[str, list[tuple[int, int, int]]]]) -> None:
    for document in pieces["validation"]:
        found = explain(tiny_build, document)
        assert found["split"] == "validation"
        assert [(p["position"], p["start"], p["end"]) for p in found["sequences"]] == pieces["validation"][document]
        assert all(p["shard"] == f"validation/{found['domain']}.parquet" for p in found["sequences"])


def test_a_filtered_document(tiny_build: Path, manifest: dict[str, Any]) -> None:
    documents = rows_of(tiny_build, manifest, "ingest", "docstrings")
    filters = rows_of(tiny_build, manifest, "filters", "docstrings")
    position = next(i for i, row in enumerate(filters) if row["length.too_few_words"])
    found = explain(tiny_build, documents[position]["id"].hex())
    occurrence = next(o for o in found["occurrences"] if (o["source"], o["position"]) == ("docstrings", position))
    assert occurrence["kept"] is False
    assert occurrence["causes"][0] == "length.too_few_words"
    assert occurrence["text"] == documents[position]["text"][: mixer.explain.EXCERPT]
    assert (occurrence["file"], occurrence["row"]) == (documents[position]["file"], documents[position]["row"])
    assert occurrence["columns"]["metrics"]["length.words"] < 8


def test_an_exact_duplicate_names_the_kept_copy(tiny_build: Path, manifest: dict[str, Any]) -> None:
    documents = rows_of(tiny_build, manifest, "ingest", "copies")
    duplicates = rows_of(tiny_build, manifest, "exact_duplicates", "copies")
    elsewhere = {row["kept_source"] for row in duplicates if row["is_exact_duplicate"]}
    assert "docstrings" in elsewhere
    checked = 0
    for position, row in enumerate(duplicates):
        if not row["is_exact_duplicate"]:
            continue
        found = explain(tiny_build, documents[position]["id"].hex())
        mine = next(o for o in found["occurrences"] if (o["source"], o["position"]) == ("copies", position))
        assert "exact_duplicates" in mine["causes"]
        kept = [o for o in found["occurrences"] if o["kept"]]
        assert [(o["source"], o["position"]) for o in kept] == [(row["kept_source"], row["kept_position"])]
        assert kept[0]["source"] == found["store"]["source"]
        checked += 1
        if checked == 12:
            break
    assert checked


def test_a_prefix_is_enough_when_it_is_long_enough(
    tiny_build: Path, pieces: dict[str, dict[str, list[tuple[int, int, int]]]]
) -> None:
    document = next(iter(pieces["train"]))
    assert explain(tiny_build.parent, document[:9].upper())["id"] == document


@pytest.mark.parametrize("document", ["", "1234567", "xyzxyzxyz", "0" * 33, "1234 678"])
def test_what_is_no_id(tiny_build: Path, document: str) -> None:
    with pytest.raises(UserError, match="is no document id; give 8 to 32 hex digits"):
        explain(tiny_build, document)


def test_an_unknown_id(tiny_build: Path) -> None:
    with pytest.raises(UserError, match="no document of tiny has an id that starts with 0123456789abcdef"):
        explain(tiny_build, "0123456789abcdef")


def test_an_ambiguous_prefix(tiny_build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids that share eight digits are too rare to find in a tiny corpus, so two documents are made to."""
    real = mixer.explain._occurrences

    def two(stages: Any, source: str, prefix: str) -> Any:
        for occurrence in real(stages, source, prefix):
            yield occurrence
            yield occurrence | {"id": occurrence["id"][:16] + "f" * 16}

    manifest = json.loads(tiny_build.read_bytes())
    document = rows_of(tiny_build, manifest, "ingest", "reference")[0]["id"].hex()
    monkeypatch.setattr(mixer.explain, "_occurrences", two)
    with pytest.raises(UserError, match=f"2 documents have an id that starts with {document[:10]}.*give more digits"):
        explain(tiny_build, document[:10])


def test_a_copy_without_its_build_folder(tiny_build: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(tiny_build.parent, tmp_path / "a" / "b" / "c")
    with pytest.raises(UserError, match="explain needs the build folder that the manifest was made in"):
        explain(copied, "0123456789abcdef")
