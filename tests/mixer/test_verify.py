import copy
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mixer.manifest import root_digest
from mixer.verify import differences, verify
from stages.errors import UserError
from stages.recipe import digest_of

Where = tuple[str | int, ...]


@pytest.fixture(scope="module")
def original(tiny_build: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(tiny_build.read_bytes())
    return loaded


@pytest.fixture
def build(tiny_build: Path, tmp_path: Path) -> Path:
    """The manifest of a copy of the build that may be damaged."""
    root = shutil.copytree(tiny_build.parents[2], tmp_path / "build", symlinks=True)
    return root / tiny_build.relative_to(tiny_build.parents[2])


def complaints(path: Path) -> str:
    return "\n".join(verify(path)[1])


def flip_bit(path: Path, at: float = 0.5) -> None:
    data = bytearray(path.read_bytes())
    data[int(len(data) * at)] ^= 4
    path.write_bytes(bytes(data))


def integers(value: Any, where: Where = ()) -> Iterator[Where]:
    """Every place of plain data that holds an integer."""
    if isinstance(value, dict):
        for key in sorted(value):
            yield from integers(value[key], (*where, key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from integers(item, (*where, i))
    elif isinstance(value, int) and not isinstance(value, bool):
        yield where


def one_more(manifest: dict[str, Any], where: Where) -> dict[str, Any]:
    changed = copy.deepcopy(manifest)
    holder: Any = changed
    for step in where[:-1]:
        holder = holder[step]
    holder[where[-1]] += 1
    return changed


def sign_again(manifest: dict[str, Any]) -> dict[str, Any]:
    """All digests that can be computed from the manifest alone, computed anew."""
    for record in manifest["specs"].values():
        record["digest"] = digest_of(record["spec"])
    manifest["root"] = root_digest(manifest)
    return manifest


def found(path: Path) -> bool:
    try:
        return bool(verify(path)[1])
    except UserError:
        return True


def folder_of(path: Path, manifest: dict[str, Any], stage: str) -> Path:
    record = next(s for s in manifest["stages"] if s["stage"] == stage)
    folder: Path = path.parents[2] / record["folder"]
    return folder


def test_a_whole_build_is_verified_to_the_last_number(tiny_build: Path, original: dict[str, Any]) -> None:
    checked, wrong = verify(tiny_build)
    assert wrong == []
    assert checked == ["3 shard files", f"{len(original['stages'])} artifacts of stages", "every number, from the rows"]
    assert verify(tiny_build.parent) == (checked, wrong)


def test_a_published_copy_needs_no_artifacts(tiny_build: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(tiny_build.parent, tmp_path / "some" / "where" / "else")
    checked, wrong = verify(copied)
    assert wrong == []
    assert checked == ["3 shard files", "0 artifacts of stages"]
    flip_bit(copied / "train" / "00000.parquet")
    assert "train/00000.parquet: its sha256 is" in complaints(copied)


@pytest.mark.parametrize("at", [0.0, 0.3, 0.5, 0.999])
def test_a_flipped_bit_in_a_shard(build: Path, at: float) -> None:
    flip_bit(build.parent / "train" / "00000.parquet", at)
    assert "train/00000.parquet: its sha256 is" in complaints(build)


def test_a_removed_and_a_cut_shard(build: Path) -> None:
    (build.parent / "validation" / "manual.parquet").unlink()
    shard = build.parent / "train" / "00000.parquet"
    shard.write_bytes(shard.read_bytes()[:-1])
    text = complaints(build)
    assert "validation/manual.parquet: the shard is missing" in text
    assert f"train/00000.parquet: has {shard.stat().st_size} bytes, not {shard.stat().st_size + 1}" in text


def test_swapped_shards(build: Path) -> None:
    one, other = (build.parent / "validation" / f"{n}.parquet" for n in ("manual", "docstrings"))
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    text = complaints(build)
    assert "validation/manual.parquet: has" in text
    assert "validation/docstrings.parquet: has" in text


def test_another_token_in_a_shard_that_was_hashed_again(build: Path, original: dict[str, Any]) -> None:
    """A shard rewritten with one other token, its size and sha256 mended: its rows still tell."""
    path = build.parent / "train" / "00000.parquet"
    table = pq.read_table(path)
    rows = table.column("input_ids").to_pylist()
    rows[7][3] ^= 1
    kind = table.schema.field("input_ids")
    pq.write_table(table.set_column(0, kind, pa.array(rows, kind.type)), path)
    import hashlib

    changed = copy.deepcopy(original)
    shard = next(s for s in changed["shards"] if s["path"] == "train/00000.parquet")
    shard |= {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    build.write_text(json.dumps(sign_again(changed)))
    assert "train/00000.parquet: its rows hash to" in complaints(build)


@pytest.mark.parametrize(
    ("stage", "pattern"),
    [
        ("ingest", "documents/*.parquet"),
        ("metrics", "*.parquet"),
        ("filters", "*.parquet"),
        ("tokenize", "*.bin"),
        ("signatures", "*.bin"),
        ("exact_duplicates", "*/*.parquet"),
        ("near_duplicates", "*/*.parquet"),
        ("store", "*/*.bin"),
        ("store", "*/*.arrow"),
        ("stream", "*.ends.bin"),
        ("order", "*.npy"),
    ],
)
def test_a_damaged_artifact_is_named(build: Path, original: dict[str, Any], stage: str, pattern: str) -> None:
    path = next(iter(sorted(folder_of(build, original, stage).glob(pattern))))
    flip_bit(path)
    assert f"{path}: its sha256 is" in complaints(build)
    path.write_bytes(path.read_bytes()[:-2])
    assert f"{path}: has {path.stat().st_size} bytes, not {path.stat().st_size + 2}" in complaints(build)
    path.unlink()
    assert f"{path}: is missing" in complaints(build)


def test_a_missing_and_an_unreadable_artifact(build: Path, original: dict[str, Any]) -> None:
    gone, broken = folder_of(build, original, "metrics"), folder_of(build, original, "filters")
    shutil.rmtree(gone)
    (broken / "artifact.json").write_text("{}")
    text = complaints(build)
    assert f"{gone.parent.name}/{gone.name}: the artifact is missing from the build folder" in text
    assert f"{broken / 'artifact.json'}: cannot be read" in text


@pytest.mark.parametrize(
    "stage", ["ingest", "filters", "tokenize", "exact_duplicates", "store", "split", "stream", "mixture"]
)
def test_a_changed_counter_of_an_artifact(build: Path, original: dict[str, Any], stage: str) -> None:
    path = folder_of(build, original, stage) / "artifact.json"
    data = json.loads(path.read_bytes())
    places = [w for w in integers(data) if "counters" in w]
    assert places
    for where in random.Random(1).sample(places, min(4, len(places))):
        path.write_text(json.dumps(one_more(data, where)))
        assert f"{path.parent}: its counters hash to" in complaints(build), where


def test_a_changed_digest_of_the_order(build: Path, original: dict[str, Any]) -> None:
    path = folder_of(build, original, "order") / "artifact.json"
    data = json.loads(path.read_bytes())
    for counter in ("order", "checkpoints"):
        changed = copy.deepcopy(data)
        digest = changed["shards"][0]["counters"][counter]
        changed["shards"][0]["counters"][counter] = digest[::-1]
        path.write_text(json.dumps(changed))
        assert f"{path.parent}: its counters hash to" in complaints(build)


def test_a_changed_recipe_and_changed_rows_of_an_artifact(build: Path, original: dict[str, Any]) -> None:
    path = folder_of(build, original, "filters") / "artifact.json"
    data = json.loads(path.read_bytes())
    recipe = copy.deepcopy(data)
    recipe["recipe"]["version"] += 1
    path.write_text(json.dumps(recipe))
    assert f"{path.parent}: is the artifact" in complaints(build)
    path.write_text(json.dumps(one_more(data, ("shards", 0, "rows"))))
    assert f"{path.parent}: its content is" in complaints(build)


def test_every_number_of_the_manifest_is_under_the_root(build: Path, original: dict[str, Any]) -> None:
    places = list(integers(original))
    for where in random.Random(2).sample(places, 15):
        build.write_text(json.dumps(one_more(original, where)))
        text = complaints(build)
        if where[0] == "shards" and where[-1] == "bytes":
            assert "bytes, not" in text
        else:
            assert "manifest: root says" in text, where


def test_a_number_changed_under_a_root_computed_anew_is_counted_again(build: Path, original: dict[str, Any]) -> None:
    """One of every kind of place, and a few of the causes, which are all alike."""
    kinds: dict[Any, list[Where]] = {}
    names = {*original["sources"], *original["domains"], *original["cells"]}
    for where in integers(original):
        kinds.setdefault(tuple("*" if isinstance(s, int) or s in names else s for s in where), []).append(where)
    rng = random.Random(3)
    places = [rng.choice(same) for _, same in sorted(kinds.items())]
    assert len(places) > 60
    causes = [w for w in places if "dropped" in w or "every_cause" in w]
    others = [w for w in places if w not in causes]
    silent = []
    for where in [*others, *rng.sample(causes, 6)]:
        build.write_text(json.dumps(sign_again(one_more(original, where))))
        if not found(build):
            silent.append(where)
    assert silent == []


def test_words_that_were_changed_under_a_root_computed_anew(build: Path, original: dict[str, Any]) -> None:
    changes: list[Callable[[dict[str, Any]], Any]] = [
        lambda m: m["sources"]["copies"].update(licence="MIT"),
        lambda m: m["sources"]["copies"].update(identity="0" * 64),
        lambda m: m["tokenizer"].update(sha256="0" * 64),
        lambda m: m["tokenizer"].update(dtype="<u4"),
        lambda m: m["domains"]["manual"].update(max_epochs="5"),
        lambda m: m["domains"]["manual"]["planned"].update(weight="1/2"),
        lambda m: m["domains"]["manual"].update(pool=5),
        lambda m: m["phases"][1]["domains"]["manual"].update(asked="1/2"),
        lambda m: m["phases"][1]["domains"]["manual"].update(given="1/2"),
        lambda m: m["phases"][0].update(name="first"),
        lambda m: m["log"].append({"parent": "0" * 64, "at": 1, "reason": "none", "distance": "0"}),
        lambda m: m.update(rung="small"),
        lambda m: m.update(materialized=False),
        lambda m: m["domains"]["manual"]["asked"].update(weight="1/2"),
        lambda m: m["domains"]["manual"].update(cells=["copies"]),
        lambda m: m["domains"]["manual"]["realized"].update(weight="1/2"),
        lambda m: m["domains"]["manual"]["realized"].update(epochs="1/2"),
        lambda m: m["specs"]["corpus"]["spec"]["sources"]["copies"]["normalize"].update(nfc=False),
        lambda m: m["specs"]["corpus"]["spec"]["sources"]["copies"].update(filters=["gopher_repetition"]),
        lambda m: m["specs"]["mixture"]["spec"]["domains"]["manual"].update(cells=["copies"]),
        lambda m: m["specs"]["mixture"]["spec"].update(max_epochs="1/100"),
        lambda m: m.update(mixture="other"),
        lambda m: m.update(sample=3),
        lambda m: m["sources"].pop("copies"),
        lambda m: m["shards"].pop(),
        lambda m: m["stages"].pop(3),
        lambda m: m["stages"][4].update(stage="filters"),
    ]
    for number, change in enumerate(changes):
        changed = copy.deepcopy(original)
        change(changed)
        build.write_text(json.dumps(sign_again(changed)))
        assert found(build), number


def test_differences_are_named() -> None:
    said = {"a": {"b": [1, 2], "c": 3}, "d": 4}
    assert list(differences(said, said)) == []
    assert list(differences(said, {"a": {"b": [1, 5]}, "d": 4})) == [
        "manifest: a.b[1] says 2, but it is 5",
        "manifest: a.c says 3, but it is null",
    ]


def test_nothing_to_verify(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no manifest"):
        verify(tmp_path / "manifest.json")
