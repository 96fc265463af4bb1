import random
from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import mixer.streams
from mixer.plan import Supply
from mixer.sequences import open_stream
from mixer.streams import Domain, Split, WriteStream, held_out, split_recipe, stream_recipe, stream_tasks, supply_of
from stages.artifact import Artifact, committed, finish
from stages.kernels.xxh3 import key, mix64
from stages.task import Task

Store = Callable[..., Artifact]
FIFTH = Fraction(1, 5)


def documents(count: int, seed: int = 0) -> dict[int, list[int]]:
    """Ids with tokens that say which document they are of; lengths 1 to 9."""
    rng = random.Random(seed)
    ids = [rng.getrandbits(128) for _ in range(count)]
    return {i: [i % 60_000] * rng.randint(1, 9) for i in ids}


def stream(
    folder: Path,
    store: Artifact,
    domain: Domain,
    name: str = "train",
    *,
    seed: int = 7,
    validation: Fraction = FIFTH,
    epochs: int = 1,
) -> tuple[list[int], list[int]]:
    """Ids and ends of a domain's stream."""
    work = WriteStream(folder, store, domain, seed, validation, epochs)
    for task in stream_tasks(work, 0):
        task.work(task)
    shards = [s for made in committed(folder).values() for s in made]
    found = open_stream(Artifact(folder, "", {}, tuple(shards), {}), name, domain.parts(store))
    words = [part.ids for part in found.parts]
    ids = [int(words[d["part"]][0][d["row"]]) << 64 | int(words[d["part"]][1][d["row"]]) for d in found.docs]
    return ids, found.ends.tolist()


def split(ids: np.ndarray | list[int], share: Fraction) -> list[bool]:
    hi = np.array([i >> 64 for i in ids], np.uint64)
    lo = np.array([i & (1 << 64) - 1 for i in ids], np.uint64)
    return held_out(hi, lo, share).tolist()


def by_definition(docs: Mapping[int, list[int]], name: str, seed: int, epoch: int, share: Fraction) -> list[int]:
    """The order of one epoch in plain Python: hash keyed by (seed, domain name, epoch), ties by id."""
    train = [i for i, out in zip(docs, split(list(docs), share), strict=True) if not out]
    secret = np.uint64(key("epoch", seed, name, epoch))
    low = (1 << 64) - 1
    return sorted(train, key=lambda i: (int(mix64(np.uint64(i >> 64), np.uint64(i & low), secret)), i))


def test_the_order_is_the_keyed_hash_of_the_ids_and_the_ends_are_their_lengths(
    tmp_path: Path, make_store: Store
) -> None:
    docs = documents(200)
    ids, ends = stream(tmp_path, make_store({"a": docs}), Domain("web", ("a",)), epochs=3)
    assert ids == [i for epoch in range(3) for i in by_definition(docs, "web", 7, epoch, FIFTH)]
    assert [b - a for a, b in pairwise([0, *ends])] == [len(docs[i]) for i in ids]


def test_cuts_of_the_store_and_order_of_cells_leave_no_trace(tmp_path: Path, make_store: Store) -> None:
    docs = documents(120)
    halves = [dict(sorted(docs.items())[k::2]) for k in (0, 1)]
    whole = stream(tmp_path / "1", make_store({"a": docs}), Domain("web", ("a",)), epochs=2)
    cut = stream(tmp_path / "2", make_store({"a": docs}, parts=7), Domain("web", ("a",)), epochs=2)
    cells = {"z": halves[0], "b": halves[1]}
    apart = stream(tmp_path / "3", make_store(cells, parts=2), Domain("web", ("z", "b")), epochs=2)
    turned = stream(tmp_path / "4", make_store(cells), Domain("web", ("b", "z")), epochs=2)
    more = stream(tmp_path / "5", make_store({**cells, "other": documents(9, 1)}), Domain("web", ("b", "z")), epochs=2)
    assert whole == cut == apart == turned == more


def test_every_epoch_is_a_permutation_of_the_training_documents_and_no_two_are_alike(
    tmp_path: Path, make_store: Store
) -> None:
    docs = documents(150)
    ids, _ = stream(tmp_path, make_store({"a": docs}), Domain("web", ("a",)), epochs=4)
    train = sorted(i for i, out in zip(docs, split(list(docs), FIFTH), strict=True) if not out)
    epochs = [ids[k * len(train) : (k + 1) * len(train)] for k in range(4)]
    assert all(sorted(epoch) == train for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4
    assert len(ids) == 4 * len(train)


def test_seed_and_name_each_give_another_order(tmp_path: Path, make_store: Store) -> None:
    store = make_store({"a": documents(100)})
    base = stream(tmp_path / "1", store, Domain("web", ("a",)))[0]
    seeded = stream(tmp_path / "2", store, Domain("web", ("a",)), seed=8)[0]
    named = stream(tmp_path / "3", store, Domain("wed", ("a",)))[0]
    assert sorted(base) == sorted(seeded) == sorted(named)
    assert len({tuple(base), tuple(seeded), tuple(named)}) == 3


def test_more_epochs_only_add_to_the_end(tmp_path: Path, make_store: Store) -> None:
    store = make_store({"a": documents(80)})
    short = stream(tmp_path / "1", store, Domain("web", ("a",)), epochs=2)
    long = stream(tmp_path / "2", store, Domain("web", ("a",)), epochs=5)
    assert long[0][: len(short[0])] == short[0]
    assert long[1][: len(short[1])] == short[1]


def test_removing_a_document_only_takes_it_out_of_the_order(tmp_path: Path, make_store: Store) -> None:
    docs = documents(90)
    before = stream(tmp_path / "1", make_store({"a": docs}), Domain("web", ("a",)), epochs=2)[0]
    gone = before[13]
    less = {i: tokens for i, tokens in docs.items() if i != gone}
    after = stream(tmp_path / "2", make_store({"a": less}), Domain("web", ("a",)), epochs=2)[0]
    assert after == [i for i in before if i != gone]


@pytest.mark.parametrize("size", [1, 7, 64])
def test_slices_change_nothing(tmp_path: Path, make_store: Store, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    store = make_store({"a": documents(100), "b": documents(30, 2)}, parts=2)
    domain = Domain("web", ("a", "b"))
    whole = [stream(tmp_path / f"1{n}", store, domain, n, epochs=2) for n in ("train", "validation")]
    monkeypatch.setattr(mixer.streams, "DOCUMENTS_PER_SLICE", size)
    assert [stream(tmp_path / f"2{n}", store, domain, n, epochs=2) for n in ("train", "validation")] == whole


def test_validation_is_the_rest_in_id_order_whatever_the_seed(tmp_path: Path, make_store: Store) -> None:
    docs = documents(200)
    store = make_store({"a": docs}, parts=3)
    train = stream(tmp_path / "1", store, Domain("web", ("a",)))[0]
    out, ends = stream(tmp_path / "1", store, Domain("web", ("a",)), "validation")
    assert out == sorted(set(docs) - set(train))
    assert [b - a for a, b in pairwise([0, *ends])] == [len(docs[i]) for i in out]
    other = stream(tmp_path / "2", store, Domain("code", ("a",)), "validation", seed=99, epochs=3)
    assert other == (out, ends)


def test_a_larger_share_holds_out_more_and_gives_none_back() -> None:
    rng = random.Random(1)
    ids = [rng.getrandbits(128) for _ in range(20_000)]
    shares = [Fraction(0), Fraction(1, 1000), Fraction(1, 100), Fraction(1, 10), Fraction(1, 2)]
    chosen = [{i for i, out in zip(ids, split(ids, share), strict=True) if out} for share in shares]
    assert chosen[0] == set()
    assert all(a < b for a, b in pairwise(chosen))
    for share, found in zip(shares, chosen, strict=True):
        spread = 4 * (len(ids) * share * (1 - share)) ** 0.5
        assert abs(len(found) - len(ids) * share) <= spread


def test_nothing_held_out_and_an_empty_domain(tmp_path: Path, make_store: Store) -> None:
    docs = documents(20)
    store = make_store({"a": docs, "empty": {}})
    whole, _ = stream(tmp_path / "1", store, Domain("web", ("a",)), validation=Fraction(0))
    assert sorted(whole) == sorted(docs)
    assert stream(tmp_path / "1", store, Domain("web", ("a",)), "validation", validation=Fraction(0)) == ([], [])
    assert stream(tmp_path / "2", store, Domain("none", ("empty",))) == ([], [])


def test_supply_counts_both_sides_of_the_split(tmp_path: Path, make_store: Store) -> None:
    docs, others = documents(120), documents(40, 3)
    store = make_store({"a": docs, "b": others}, parts=2)
    recipe = split_recipe("m", "s", FIFTH)
    work = Split(tmp_path / recipe.folder, store, FIFTH)
    for shard in store.shards:
        work(Task(shard.name, work, shard, 0))
    made = finish(tmp_path, recipe, [s.name for s in store.shards])
    supply = supply_of(made, store, [Domain("web", ("a",)), Domain("both", ("a", "b"))])

    def expected(docs: dict[int, list[int]]) -> Supply:
        out = [i for i, held in zip(docs, split(list(docs), FIFTH), strict=True) if held]
        held_tokens = sum(len(docs[i]) for i in out)
        return Supply(len(docs) - len(out), sum(map(len, docs.values())) - held_tokens, len(out), held_tokens)

    assert supply == {"web": expected(docs), "both": expected({**docs, **others})}


def test_a_recipe_depends_on_everything_that_a_stream_depends_on() -> None:
    base = stream_recipe(Domain("web", ("a", "b")), "s", 1, FIFTH, 2)
    assert stream_recipe(Domain("web", ("b", "a")), "s", 1, FIFTH, 2).digest == base.digest
    changed = [
        stream_recipe(Domain("wed", ("a", "b")), "s", 1, FIFTH, 2),
        stream_recipe(Domain("web", ("a",)), "s", 1, FIFTH, 2),
        stream_recipe(Domain("web", ("a", "b")), "t", 1, FIFTH, 2),
        stream_recipe(Domain("web", ("a", "b")), "s", 2, FIFTH, 2),
        stream_recipe(Domain("web", ("a", "b")), "s", 1, Fraction(1, 6), 2),
        stream_recipe(Domain("web", ("a", "b")), "s", 1, FIFTH, 3),
    ]
    assert len({r.digest for r in [base, *changed]}) == 7
