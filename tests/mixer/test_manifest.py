import copy
import json
import os
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from mixer.manifest import Manifest, read_manifest, root_digest, write_manifest
from stages.errors import UserError

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture
def manifest(tiny_build: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(tiny_build.read_bytes())
    return loaded


def fixed_corpus(folder: Path) -> Path:
    """A corpus that no Python version changes, with paths relative to its spec; returns the mixture spec."""
    words = [
        "the",
        "of",
        "river",
        "and",
        "a",
        "stone",
        "to",
        "light",
        "was",
        "window",
        "in",
        "that",
        "have",
        "table",
        "it",
    ]
    words += ["with", "winter", "over", "green", "be"]

    def text(number: int, length: int) -> str:
        state, picked = number, []
        for k in range(1, length + 1):
            state = (state * 1103515245 + 12345) % 2**31
            end = ".\n" if k % 24 == 0 else ". " if k % 8 == 0 else " "
            picked.append(words[(state >> 16) % len(words)] + end)
        return "".join(picked) + ("" if number % 3 else "\r\n\r\n\u00e9t\u0065\u0301 \u4e2d\u6587 ")

    def row(number: int) -> str:
        return json.dumps({"id": f"n{number}", "text": text(number, 5 + number * 13 % 120)})

    rows = [row(number) for number in range(150)]
    parts = {
        "one/a.jsonl": rows[:40],
        "one/b.jsonl": rows[40:70],
        "two.jsonl": [*rows[60:120], rows[65], '{"id": "bad"}'],
        "three.jsonl": [*rows[110:], rows[3]],
    }
    for path, lines in parts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("\n".join(lines) + "\n", encoding="utf-8")
    shutil.copy(GOLDEN / "tokenizer.json", folder / "tokenizer.json")

    def source(path: str, **more: Any) -> dict[str, Any]:
        return {"read": {"format": "jsonl", "path": path}, "licence": "CC0-1.0", **more}

    corpus = {
        "corpus": "fixed",
        "tokenizer": {"file": "tokenizer.json", "end_of_text": "<|endoftext|>"},
        "sources": {
            "one": source("one", filters=[{"length": {"min_words": 9, "max_words": 110}}]),
            "two": source("two.jsonl", ceiling={"bad_rows": "5%"}, priority=2),
            "three": source("three.jsonl", filters=["gopher_repetition", "gopher_quality"]),
        },
    }
    mixture = {
        "mixture": "fixed",
        "corpus": "corpus.yaml",
        "seed": 3,
        "sequence_length": 48,
        "budget": 48 * 333 + 5,
        "validation": "7%",
        "max_epochs": "6",
        "domains": {"x": {"cells": ["two", "one"], "weight": "2/3"}, "y": {"cells": ["three"], "weight": "1/3"}},
        "phases": [{"name": "p", "share": "90%"}, {"name": "q", "share": "10%", "weights": {"y": "1"}}],
    }
    (folder / "corpus.yaml").write_text(yaml.safe_dump(corpus))
    (folder / "mixture.yaml").write_text(yaml.safe_dump(mixture))
    return folder / "mixture.yaml"


def test_the_root_of_a_fixed_corpus_is_the_golden_one(tmp_path: Path, build_mixture: Callable[..., Path]) -> None:
    """When this fails without a stage's version having changed, a stage's output has. `stages` tells which."""
    manifest = json.loads(build_mixture(fixed_corpus(tmp_path), tmp_path / "build").read_bytes())
    found = {
        "root": manifest["root"],
        "stages": {f"{s['stage']}/{s['name']}": [s["version"], s["digest"], s["content"]] for s in manifest["stages"]},
        "shards": {s["path"]: s["content"] for s in manifest["shards"]},
    }
    if "WRITE_GOLDEN" in os.environ:
        (GOLDEN / "root.json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    expected = json.loads((GOLDEN / "root.json").read_bytes())
    assert found["stages"] == expected["stages"]
    assert found == expected


def test_the_published_schema_accepts_it_and_refuses_what_it_does_not_know(manifest: dict[str, Any]) -> None:
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | Manifest.model_json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate(manifest)
    changes: list[Callable[[dict[str, Any]], Any]] = [
        lambda m: m.update(extra=1),
        lambda m: m.pop("root"),
        lambda m: m["totals"].update(tokens="many"),
        lambda m: m["shards"][0].pop("sha256"),
        lambda m: m["shards"][0].update(split="test"),
        lambda m: m.update(schema="mixer/manifest/0"),
        lambda m: m["domains"]["manual"]["realized"].update(tokens=None),
    ]
    for change in changes:
        changed = copy.deepcopy(manifest)
        change(changed)
        assert not validator.is_valid(changed)


def test_the_root_ignores_software_and_copies_and_nothing_else(manifest: dict[str, Any]) -> None:
    same = copy.deepcopy(manifest)
    same["software"]["version"] = "99"
    same["root"] = "0" * 64
    for shard in same["shards"]:
        shard["bytes"] += 7
        shard["sha256"] = "f" * 64
    assert root_digest(same) == root_digest(manifest) == manifest["root"]
    for key in manifest.keys() - {"root", "software"}:
        other = copy.deepcopy(manifest)
        other[key] = "else" if key != "shards" else other["shards"][1:]
        assert root_digest(other) != manifest["root"], key
    content = copy.deepcopy(manifest)
    content["shards"][0]["content"] = "0" * 64
    assert root_digest(content) != manifest["root"]


def test_nothing_of_this_run_is_in_it(tiny_build: Path, manifest: dict[str, Any]) -> None:
    import platform

    content = copy.deepcopy(manifest)
    content.pop("specs")
    text = json.dumps(content)
    assert str(tiny_build.parents[2]) not in text
    assert platform.node() not in text
    run = json.loads((tiny_build.parent / "run.json").read_bytes())
    assert {"host", "seconds", "libraries", "python"} <= run.keys()


def test_its_numbers_add_up(manifest: dict[str, Any]) -> None:
    totals, domains = manifest["totals"], manifest["domains"]
    assert (
        totals["tokens"]
        == totals["sequences"] * totals["sequence_length"]
        == totals["budget"] - totals["unused_tokens"]
    )
    for key in ("asked", "planned", "realized"):
        assert sum(Fraction(d[key]["weight"]) for d in domains.values()) == 1
    assert sum(d["realized"]["sequences"] for d in domains.values()) == totals["sequences"]
    for name, source in manifest["sources"].items():
        before = None
        for stage in source["funnel"]:
            for unit in ("documents", "bytes"):
                dropped = sum(n[unit] for n in stage["dropped"].values())
                assert stage["entered"][unit] == stage["kept"][unit] + dropped
            assert before is None or all(stage["entered"][k] == before[k] for k in ("documents", "bytes"))
            before = stage["kept"]
        stored = [cell[name] for cell in manifest["cells"].values() if name in cell]
        assert before == {k: sum(s[k] for s in stored) for k in ("documents", "bytes", "tokens")}
    for domain in domains.values():
        cells = [n for cell in domain["cells"] for n in manifest["cells"][cell].values()]
        for unit, key in (("documents", "documents"), ("tokens", "unique_tokens")):
            assert domain["realized"][key] + domain["validation"][unit] == sum(n[unit] for n in cells)
    assert manifest["sources"]["reference"]["files"] == 2
    assert manifest["sources"]["copies"]["funnel"][0]["dropped"]["invalid_json"]["documents"] == 1


def test_reading(tmp_path: Path, tiny_build: Path, manifest: dict[str, Any]) -> None:
    assert read_manifest(tiny_build) == read_manifest(tiny_build.parent) == manifest
    with pytest.raises(UserError, match="there is no manifest; build it with"):
        read_manifest(tmp_path)
    path = tmp_path / "manifest.json"
    path.write_text("{")
    with pytest.raises(UserError, match="is not JSON"):
        read_manifest(path)
    path.write_text(json.dumps(manifest | {"schema": "mixer/manifest/9"}))
    with pytest.raises(UserError, match="is not a manifest of this version"):
        read_manifest(path)
    manifest["totals"].pop("seed")
    path.write_text(json.dumps(manifest))
    with pytest.raises(UserError, match=r"totals\.seed"):
        read_manifest(path)


def test_the_same_manifest_is_not_written_again(tmp_path: Path, manifest: dict[str, Any]) -> None:
    path = tmp_path / "manifest.json"
    write_manifest(path, manifest)
    before = path.stat().st_ino
    write_manifest(path, manifest)
    assert path.stat().st_ino == before
    write_manifest(path, manifest | {"root": "1" * 64})
    assert read_manifest(path)["root"] == "1" * 64
