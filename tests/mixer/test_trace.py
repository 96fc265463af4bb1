"""What a step saw, and when a document is seen, against the shards and against a walk over the streams."""

import json
import shutil
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixer.build import Build
from mixer.mixture import open_mixture
from mixer.order import Order
from mixer.reader import open as open_reader
from mixer.trace import position_of, text_of, trace_document, trace_step
from stages.artifact import open_artifact
from stages.errors import UserError

END = "<|endoftext|>"


@dataclass
class Run:
    """A built run with the rows of its training shards."""

    path: Path
    manifest: dict[str, Any]
    rows: list[dict[str, Any]]

    def pieces(self, first: int, stop: int) -> list[tuple[int, str, str, int, int]]:
        """Position, domain, id, start and end of every piece, as the shards have them."""
        return [
            (row["position"], row["domain"], p["id"], p["start"], p["end"])
            for row in self.rows[first:stop]
            for p in row["pieces"]
        ]

    def epochs(self) -> dict[int, list[int]]:
        """For every position, the epoch of each of its pieces, counted along the stream of each domain: the next one
        begins when all of a pass's tokens have gone by."""
        gone: dict[str, int] = defaultdict(int)
        found: dict[int, list[int]] = {}
        for row in self.rows:
            unique = self.manifest["domains"][row["domain"]]["realized"]["unique_tokens"]
            found[row["position"]] = []
            for p in row["pieces"]:
                found[row["position"]].append(gone[row["domain"]] // unique)
                gone[row["domain"]] += p["end"] - p["start"]
        return found


def read(path: Path) -> Run:
    manifest = json.loads(path.read_bytes())
    shards = [s for s in manifest["shards"] if s["split"] == "train"]
    return Run(path, manifest, [r for s in shards for r in pq.read_table(path.parent / s["path"]).to_pylist()])


@pytest.fixture(scope="module")
def plain(parent: Path) -> Run:
    return read(parent)


@pytest.fixture(scope="module")
def changing(amended_twice: Path) -> Run:
    return read(amended_twice)


@pytest.fixture(scope="module")
def rung(rungs: dict[str, Path]) -> Run:
    return read(rungs["middle"])


@pytest.fixture(scope="module")
def texts(plain: Run) -> dict[str, tuple[set[str], str]]:
    """The sources and the text of every document of the corpus, by id in hex digits."""
    root = plain.path.parents[2]
    found: dict[str, tuple[set[str], str]] = {}
    for record in plain.manifest["stages"]:
        if record["stage"] == "ingest":
            artifact = open_artifact(root, record["folder"], record["digest"])
            for shard in artifact.shards:
                for path in (p for f in shard.files if (p := artifact.folder / f.path).suffix == ".parquet"):
                    if {"id", "text"} <= set(pq.read_schema(path).names):
                        table = pq.read_table(path, columns=["id", "text"])
                        for i, text in zip(*(table.column(c).to_pylist() for c in ("id", "text")), strict=True):
                            found.setdefault(i.hex(), (set(), text))[0].add(record["name"])
    assert found
    return found


@pytest.mark.parametrize(("step", "size"), [(0, 4), (3, 64), (1799, 1), (450, 4), (2400, 1), (599, 4)])
def test_the_pieces_of_a_step_are_those_of_the_shards(step: int, size: int, plain: Run) -> None:
    found = trace_step(plain.path, step, size)
    first, stop = step * size, (step + 1) * size
    pieces = [(p["position"], p["domain"], p["id"], p["start"], p["end"]) for p in found["pieces"]]
    assert pieces == plain.pieces(first, stop)
    assert (found["first"], found["sequences"], found["step"]) == (first, stop - first, step)
    assert (found["mixture"], found["root"]) == ("tiny", plain.manifest["root"])
    assert found["tokens"] == 64 * (stop - first)


@pytest.mark.parametrize("name", ["plain", "changing", "rung"])
def test_epochs_are_those_of_a_walk_over_the_stream(name: str, request: pytest.FixtureRequest) -> None:
    run: Run = request.getfixturevalue(name)
    walked, size = run.epochs(), 100
    reached: set[int] = set()
    batches = list(open_reader(run.path).batches(size))
    for step, batch in enumerate(batches):
        found = trace_step(run.path, step, size)
        first, stop = int(batch["position"][0]), int(batch["position"][-1]) + 1
        assert (found["first"], found["sequences"], found["tokens"]) == (first, size, batch["input_ids"].size)
        pieces = [(p["position"], p["domain"], p["id"], p["start"], p["end"]) for p in found["pieces"]]
        assert pieces == run.pieces(first, stop)
        epochs = [e for row in run.rows[first:stop] for e in walked[row["position"]]]
        assert [p["epoch"] for p in found["pieces"]] == epochs
        reached |= set(epochs)
        for domain, (low, high) in found["epochs"].items():
            own = [p["epoch"] for p in found["pieces"] if p["domain"] == domain]
            assert (min(own), max(own)) == (low, high)
    assert reached == {0, 1}


def test_totals_of_a_step(plain: Run) -> None:
    found = trace_step(plain.path, 7, 40)
    rows = plain.rows[280:320]
    for domain, record in found["domains"].items():
        mine = [r for r in rows if r["domain"] == domain]
        assert record == {
            "sequences": len(mine),
            "tokens": 64 * len(mine),
            "share": str(Fraction(len(mine), 40)),
            "documents": len({p["id"] for r in mine for p in r["pieces"]}),
        }
    tokens: dict[str, int] = defaultdict(int)
    for piece in found["pieces"]:
        tokens[piece["source"]] += piece["end"] - piece["start"]
    assert {s: r["tokens"] for s, r in found["sources"].items()} == tokens
    assert sum(Fraction(r["share"]) for r in found["sources"].values()) == 1
    assert set(tokens) <= {"reference", "docstrings", "copies"}
    assert tokens["docstrings"] == found["domains"]["docstrings"]["tokens"]


def test_a_domain_that_a_step_lacks_has_zeros(plain: Run) -> None:
    (lacking,) = {"docstrings", "manual"} - {plain.rows[0]["domain"]}
    found = trace_step(plain.path, 0, 1)
    assert found["domains"][lacking] == {"sequences": 0, "tokens": 0, "share": "0", "documents": 0}
    assert list(found["epochs"]) == [plain.rows[0]["domain"]]


def test_phases_of_a_step(plain: Run, changing: Run) -> None:
    assert [trace_step(plain.path, s, 1)["phases"] for s in (0, 1800, 1801, 2400)] == [
        ["early"],
        ["early"],
        ["late"],
        ["late"],
    ]
    assert trace_step(plain.path, 900, 2)["phases"] == ["early", "late"]
    assert [trace_step(changing.path, s, 1)["phases"] for s in (999, 1000, 1500)] == [["early"], ["new"], ["new"]]
    assert [trace_step(changing.path, s, 400)["first"] for s in (0, 1, 2, 3)] == [0, 400, 1000, 1500]
    assert trace_step(changing.path, 2, 400)["tokens"] == 400 * 100


def scan(run: Run) -> dict[str, list[tuple[int, int, int]]]:
    """Position, start and end of every piece of every document, from all rows of the shards."""
    seen: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for row in run.rows:
        for p in row["pieces"]:
            seen[p["id"]].append((row["position"], p["start"], p["end"]))
    return seen


@pytest.mark.parametrize("name", ["plain", "changing", "rung"])
def test_a_document_is_seen_where_the_shards_have_it(name: str, request: pytest.FixtureRequest) -> None:
    run: Run = request.getfixturevalue(name)
    seen, walked = scan(run), run.epochs()
    epoch_of = {(r["position"], i): e for r in run.rows for i, e in enumerate(walked[r["position"]])}
    ids = sorted(seen)
    longest = max(ids, key=lambda i: len(seen[i]))
    step_of = {p: n for n, b in enumerate(open_reader(run.path).batches(7)) for p in b["position"].tolist()}
    ends = {i: max(end for _, _, end in pieces) for i, pieces in seen.items()}
    cut = [i for i in ids if ends[i] < trace_document(run.path, i)["tokens"]]
    assert bool(cut) == (name == "rung")
    for document in {longest, *cut, *ids[:: max(1, len(ids) // 12)]}:
        found = trace_document(run.path, document, 7)
        assert [(s["position"], s["start"], s["end"]) for s in found["seen"]] == seen[document]
        assert [s["step"] for s in found["seen"]] == [step_of.get(p) for p, _, _ in seen[document]]
        assert found["tokens"] == ends[document] or document in cut
        for s in found["seen"]:
            row = run.rows[s["position"]]
            places = [i for i, p in enumerate(row["pieces"]) if p["id"] == document and p["start"] == s["start"]]
            assert s["epoch"] in [epoch_of[(s["position"], i)] for i in places]
            assert row["domain"] == found["domain"]
    assert "step" not in trace_document(run.path, longest)["seen"][0]
    for other in (longest.upper(), longest[:16], longest[:8]):
        assert trace_document(run.path, other, 7) == trace_document(run.path, longest, 7)


def test_a_document_that_is_held_out_is_never_seen(plain: Run) -> None:
    shards = [s for s in plain.manifest["shards"] if s["split"] == "validation"]
    held = {
        p["id"] for s in shards for r in pq.read_table(plain.path.parent / s["path"]).to_pylist() for p in r["pieces"]
    }
    assert held
    for document in held:
        found = trace_document(plain.path, document)
        assert found["seen"] == []
        assert found["tokens"] > 0


def test_text_of_pieces_is_the_text_of_the_documents(plain: Run, texts: dict[str, tuple[set[str], str]]) -> None:
    whole = parts = 0
    for step in (0, 30, 55):
        for piece in trace_step(plain.path, step, 40)["pieces"][:60]:
            sources, text = texts[piece["id"]]
            found = text_of(plain.path, piece)
            length = trace_document(plain.path, piece["id"])["tokens"] if piece["start"] == 0 else None
            if length == piece["end"]:
                assert found == text + END
                whole += 1
            else:
                assert found.removesuffix(END).strip("\ufffd") in text
                parts += 1
            assert piece["source"] in sources
    assert whole > 2
    assert parts > 5


def test_a_document_in_pieces_adds_up_to_its_text(plain: Run, texts: dict[str, tuple[set[str], str]]) -> None:
    seen = scan(plain)
    document = max(sorted(seen), key=lambda i: len(seen[i]))
    found = trace_document(plain.path, document)
    first = [s for s in found["seen"] if s["epoch"] == 0]
    assert sorted((s["start"], s["end"]) for s in first)[0][0] == 0
    assert sum(s["end"] - s["start"] for s in first) == found["tokens"]
    piece = {"id": document, "domain": found["domain"], "start": 0, "end": found["tokens"]}
    assert text_of(plain.path, piece) == texts[document][1] + END


@given(
    counts=st.lists(st.lists(st.integers(0, 60), min_size=4, max_size=4), min_size=1, max_size=3),
    data=st.data(),
)
@settings(max_examples=40, deadline=None)
def test_position_of_is_the_inverse_of_locate(counts: list[list[int]], data: st.DataObject) -> None:
    order = Order(tuple("abcd"), np.array(counts, np.int64))
    if not len(order):
        return
    for position in data.draw(st.lists(st.integers(0, len(order) - 1), min_size=1, max_size=8)):
        domain, sequence = order.locate(position)
        assert position_of(order, domain, sequence) == position


def test_what_is_not_there_is_said(plain: Run) -> None:
    for step, size, last in ((600, 4, 599), (2401, 1, 2400), (1, 2401, 0), (-1, 4, 599)):
        with pytest.raises(
            UserError, match=f"step {step}: the run has the steps 0 to {last} at {size} sequences a step"
        ):
            trace_step(plain.path, step, size)
    with pytest.raises(UserError, match=r"tiny: the store has no document 0{32}; `mixer explain` tells why"):
        trace_document(plain.path, "0" * 32)
    for wrong in ("12", "g" * 32, "0" * 33, "", "0x" + "1" * 30, "1234567"):
        with pytest.raises(UserError, match="is no document id; give 8 to 32 of its hex digits"):
            trace_document(plain.path, wrong)


def test_a_virtual_mixture_is_traced_like_a_written_one(
    virtual: Path, workshop: Path, write_specs: Callable[..., Path], tmp_path: Path, engine: Any
) -> None:
    root = Path(shutil.copytree(workshop, tmp_path / "out", symlinks=True))
    spec = write_specs(tmp_path / "specs", mixture="virtual", seed=8, budget=60_000, validation="5%")
    written = Build(spec, root, root / "cache", lambda: engine).run()
    assert written is not None
    run = read(written)
    found = trace_step(virtual, 2, 50)["pieces"]
    assert [(p["position"], p["domain"], p["id"], p["start"], p["end"]) for p in found] == run.pieces(100, 150)


def test_the_tokenizer_of_the_build_folder_is_needed_for_text(plain: Run, workshop: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(workshop, tmp_path / "out", symlinks=True))
    path = root / plain.path.relative_to(workshop)
    piece = trace_step(path, 0, 1)["pieces"][0]
    expected = text_of(plain.path, piece)
    assert text_of(path, piece) == expected
    for copy in root.rglob("*.json"):
        if plain.manifest["tokenizer"]["sha256"] in str(copy) or copy.name == "tokenizer.json":
            copy.unlink()
    with pytest.raises(UserError, match="the copy of the tokenizer is gone; build again"):
        text_of(path, piece)


def test_parts_of_the_store_are_mapped_once(plain: Run) -> None:
    mixture, _ = open_mixture(plain.path)
    shard = mixture.store.shards[0]
    assert mixture.part(shard) is mixture.part(shard)
