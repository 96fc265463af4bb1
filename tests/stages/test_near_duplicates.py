"""Near duplicates: proposals are bounded, decisions need evidence, and survivors follow from the content alone."""

import json
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.documents import document_shards, read_columns, shard_name
from stages.kernels.words import split
from stages.near_duplicates import BEFORE, LEADERS, MEASURED, decide, pair_buckets, survival
from stages.signatures import NearDuplicates


def sentences(number: int, seed: int) -> list[str]:
    random = np.random.default_rng(seed)
    words = [
        f"{a}{b}"
        for a in ["stone", "river", "cloud", "engine", "paper", "winter", "orchard", "signal"]
        for b in "aeiou"
    ]
    return [" ".join(random.choice(words, 12)) + "." for _ in range(number)]


def shingles(text: str, size: int = 5) -> set[tuple[str, ...]]:
    words = [w.lower() for w in split(text)]
    return {tuple(words[i : i + size]) for i in range(len(words) - size + 1)}


def jaccard(a: str, b: str) -> float:
    x, y = shingles(a), shingles(b)
    return len(x & y) / len(x | y)


def test_pairs_of_a_bucket_are_bounded():
    keys = np.repeat(np.array([3, 7, 9], np.uint64), [1, 30, 2])
    kept, lost, sizes = pair_buckets(keys)
    assert sizes.tolist() == [1, 30, 2]
    per = {int(d): sorted(kept[lost == d].tolist()) for d in np.unique(lost)}
    assert per[32] == [31]
    assert 0 not in per and 1 not in per
    assert per[2] == [1]
    assert per[20] == [1, 2, 3, 4, 16, 17, 18, 19]
    assert all(len(set(p)) == len(p) <= LEADERS + BEFORE and max(p) < d for d, p in per.items())


def test_no_keys_no_pairs():
    assert [a.tolist() for a in pair_buckets(np.zeros(0, np.uint64))] == [[], [], []]


def test_survival_prefers_priority_then_length():
    first = survival(5, np.array([10]))[0]
    assert first < survival(4, np.array([10**6]))[0] < survival(0, np.array([100]))[0] < survival(0, np.array([99]))[0]


def pairs_of(edges, documents):
    """MEASURED rows for (earlier, later, similarity); a document's number is its place in the order of survival."""
    out = np.zeros(len(edges), MEASURED)
    for i, (kept, lost, similarity) in enumerate(edges):
        for side, number in (("kept", kept), ("lost", lost)):
            out[f"{side}_order"][i], out[f"{side}_hi"][i] = number, documents[number]
            out[f"{side}_shard"][i], out[f"{side}_row"][i] = documents[number] % 3, number
        out["similarity"][i] = similarity
    return out


@settings(deadline=None)
@given(st.data())
def test_decisions_equal_a_walk_in_the_order_of_survival(data):
    count = data.draw(st.integers(2, 12))
    documents = data.draw(st.permutations(range(count)))
    edges = data.draw(
        st.lists(
            st.tuples(st.integers(0, count - 1), st.integers(0, count - 1), st.sampled_from([0.8, 0.85, 0.9, 1.0])),
            max_size=30,
            unique_by=lambda e: tuple(sorted(e[:2])),
        )
    )
    edges = [(min(a, b), max(a, b), s) for a, b, s in edges if a != b]
    removed: dict[int, tuple[int, float]] = {}
    for number in range(count):
        alive = [(kept, s) for kept, lost, s in edges if lost == number and kept not in removed]
        if alive:
            removed[number] = min(alive, key=lambda e: (-e[1], e[0]))
    out = decide(pairs_of(data.draw(st.permutations(edges)), documents))
    found = {int(r["row"]): (int(r["kept_row"]), float(r["similarity"])) for r in out}
    assert found == removed
    assert not {kept for kept, _ in found.values()} & set(found)


def test_a_chain_does_not_remove():
    """0 ~ 1 ~ 2, but 0 and 2 are unlike: 1 goes because of 0, and 2 stays, for 1 is not kept."""
    out = decide(pairs_of([(0, 1, 0.9), (1, 2, 0.9)], [0, 1, 2]))
    assert out["row"].tolist() == [1]


@pytest.fixture(scope="module")
def texts():
    base = [" ".join(sentences(12, seed)) for seed in range(12)]
    rows = {"first": [], "second": []}
    for i, text in enumerate(base):
        rows["first"].append(text)
        words = text.split(" ")
        words[7] = f"changed{i}"
        rows["second"].append(" ".join(words))
        words[40], words[90] = f"other{i}", f"third{i}"
        rows["second"].append(" ".join(words) + f" And a longer ending, number {i}.")
    rows["second"] += [" ".join(sentences(12, seed)) for seed in range(100, 104)] + ["too short to judge"]
    return rows


def write(folder, rows, cuts=(0,)):
    folder.mkdir(parents=True, exist_ok=True)
    for name, texts in rows.items():
        edges = [*[int(c) for c in cuts], len(texts)]
        for i, (start, stop) in enumerate(pairwise(edges)):
            lines = [json.dumps({"text": t}) for t in texts[start:stop]]
            (folder / name).mkdir(exist_ok=True)
            (folder / name / f"{i}.jsonl").write_text("\n".join(lines) + "\n")


def source(folder, name, **policy):
    return {"read": {"format": "jsonl", "path": str(folder / name)}, "licence": "CC0-1.0", **policy}


def survivors(built):
    """(source, text) kept, and every removal's (lost text, kept id, similarity)."""
    kept, lost = set(), []
    near = next(a for a in built.artifacts.values() if a.folder.parent.name == "near_duplicates")
    by_id = {}
    for name, plan in built.plan.sources.items():
        for shard in document_shards(built.artifacts[plan.ingest.digest]):
            rows = read_columns(built.artifacts[plan.ingest.digest].path(shard, ".parquet")).to_pylist()
            flags = read_columns(near.folder / name / f"{shard_name(shard)}.parquet").to_pylist()
            for row, flag in zip(rows, flags, strict=True):
                by_id[row["id"]] = row["text"]
                if flag["is_near_duplicate"]:
                    lost.append((row["text"], flag["kept_id"], flag["similarity"], flag["kept_source"]))
                else:
                    kept.add((name, row["text"]))
    return kept, [(text, by_id[kept_id], similarity, name) for text, kept_id, similarity, name in lost]


def test_removals_have_evidence_that_recomputes(run_line, tmp_path, texts):
    write(tmp_path / "in", texts)
    policy = {"near_duplicates": {"threshold": "0.7"}}
    sources = {n: source(tmp_path / "in", n, **policy) for n in texts}
    built = run_line(tmp_path, sources={**dict.fromkeys(("reference", "docstrings", "copies")), **sources})
    kept, lost = survivors(built)
    assert len(lost) >= 20
    kept_texts = {text for _, text in kept}
    for text, survivor, similarity, _ in lost:
        assert survivor in kept_texts
        assert similarity == pytest.approx(jaccard(text, survivor), abs=1e-12)
        assert similarity >= 0.7
        assert len(survivor.encode()) >= len(text.encode())
    assert ("second", "too short to judge") in kept


def test_survivors_follow_from_the_content(run_line, tmp_path, texts):
    outcomes = []
    for number, cuts in enumerate([(0,), (0, 3), (0, 1, 5, 6)]):
        folder = tmp_path / str(number)
        write(folder / "in", texts, cuts)
        names = list(texts)[:: -1 if number else 1]
        sources = {n: source(folder / "in", n) for n in names}
        built = run_line(folder, sources={**dict.fromkeys(("reference", "docstrings", "copies")), **sources})
        outcomes.append(survivors(built))
    assert outcomes[0][0] == outcomes[1][0] == outcomes[2][0]
    assert sorted(outcomes[0][1]) == sorted(outcomes[1][1]) == sorted(outcomes[2][1])


def test_priority_decides_who_stays(run_line, tmp_path, texts):
    write(tmp_path / "in", texts)
    sources = {"first": source(tmp_path / "in", "first", priority=1), "second": source(tmp_path / "in", "second")}
    built = run_line(tmp_path, sources={**dict.fromkeys(("reference", "docstrings", "copies")), **sources})
    kept, lost = survivors(built)
    assert {text for name, text in kept if name == "first"} == set(texts["first"])
    assert all(name == "first" for *_, name in lost)


def test_a_source_can_stay_out(run_line, tmp_path, texts):
    write(tmp_path / "in", texts)
    out = {"near_duplicates": {"shingle": "none"}}
    sources = {"first": source(tmp_path / "in", "first", **out), "second": source(tmp_path / "in", "second")}
    built = run_line(tmp_path, sources={**dict.fromkeys(("reference", "docstrings", "copies")), **sources})
    _, lost = survivors(built)
    assert lost and all(name == "second" for *_, name in lost)


def test_containment_finds_a_text_inside_a_longer_one(run_line, tmp_path):
    inner = " ".join(sentences(6, 1))
    rows = {"first": [inner + " " + " ".join(sentences(20, 2))], "second": [inner]}
    write(tmp_path / "in", rows)
    by = {"near_duplicates": {"measure": "containment", "threshold": "0.9"}}
    sources = {n: source(tmp_path / "in", n, **by) for n in rows}
    built = run_line(tmp_path, sources={**dict.fromkeys(("reference", "docstrings", "copies")), **sources})
    _, lost = survivors(built)
    assert len(lost) <= 1  # a band must propose it, which is likely only for similar sizes
    assert jaccard(*[r[0] for r in rows.values()]) < 0.5


def test_the_policy_reads_exact_numbers():
    assert NearDuplicates.model_validate({"threshold": "80%"}).threshold == Fraction(4, 5)


@pytest.mark.parametrize("threshold", ["0", "1.1", "0.12345678"])
def test_what_is_no_threshold(threshold):
    with pytest.raises(ValueError, match="is no threshold"):
        NearDuplicates.model_validate({"threshold": threshold})
