import hashlib
import heapq
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import mixer.order
from mixer.order import ORDER_VERSION, Order
from mixer.order_kernel import EMITTED, SLOTS, advance, phase_state
from stages.errors import UserError

GOLDEN = {
    1: (
        "a5ba9c2d4391a5746c47cce1b33301f8da0046bb1c5f2c39495f6020ef1915cb",
        "709846d1c3df902738def9af0b55612544a01bdbf292a77ae84a60756ef16eac",
    )
}

COUNT = st.one_of(st.integers(0, 3), st.integers(0, 20), st.integers(0, 400))


@st.composite
def plans(draw: st.DrawFn) -> NDArray[np.int64]:
    """Counts of one to three phases over up to 300 domains; light, heavy and absent domains together."""
    phases = draw(st.integers(1, 3))
    if draw(st.booleans()):
        domains = draw(st.integers(1, 6))
        rows = [draw(st.lists(COUNT, min_size=domains, max_size=domains)) for _ in range(phases)]
        return np.array(rows, np.int64)
    domains = draw(st.integers(7, 300))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    present = rng.random((phases, domains)) < 0.9
    return np.where(present, 2.0 ** rng.uniform(0, 5, (phases, domains)), 0).astype(np.int64)


def names(counts: NDArray[np.int64]) -> tuple[str, ...]:
    return tuple(f"{i:05}" for i in range(counts.shape[1]))


def order_of(counts: Sequence[Sequence[int]] | NDArray[np.int64]) -> Order:
    counts = np.array(counts, np.int64)
    return Order(names(counts), counts)


def prefix_table(domains: NDArray[np.int16], n: int) -> NDArray[np.int64]:
    """Counts before each position and at the end: int64[positions + 1, n]."""
    table = np.zeros((len(domains) + 1, n), np.int64)
    np.cumsum(domains[:, None] == np.arange(n), axis=0, out=table[1:])
    return table


def chairman(counts: list[int]) -> list[int]:
    """The definition in plain Python: release and deadline heaps over unbounded integers."""
    length, m = sum(counts), max(2, 2 * sum(c > 0 for c in counts) - 2)

    def window(d: int, j: int) -> tuple[int, int]:
        c = counts[d]
        return -(-length * (j * m + 1) // (c * m)) - 1, length * (j * m + m - 1) // (c * m)

    waiting = [(window(d, 0)[0], d, 0) for d, c in enumerate(counts) if c]
    heapq.heapify(waiting)
    ready: list[tuple[int, int, int]] = []
    out = []
    for slot in range(length):
        while waiting and waiting[0][0] <= slot:
            _, d, j = heapq.heappop(waiting)
            heapq.heappush(ready, (window(d, j)[1], d, j))
        deadline, d, j = heapq.heappop(ready)
        assert deadline >= slot
        out.append(d)
        if j + 1 < counts[d]:
            heapq.heappush(waiting, (window(d, j + 1)[0], d, j + 1))
    return out


@given(counts=plans())
@settings(max_examples=100, deadline=None)
def test_every_prefix_of_every_phase_is_within_the_chairman_bound(counts: NDArray[np.int64]) -> None:
    order = order_of(counts)
    start = 0
    for row in counts:
        length, m = int(row.sum()), max(2, 2 * int((row > 0).sum()) - 2)
        table = prefix_table(order.domains(start, start + length), len(row))
        deviation = np.abs(table * length - np.arange(length + 1)[:, None] * row)
        assert (deviation * m <= length * (m - 1)).all()
        assert (table[-1] == row).all()
        start += length
    assert start == len(order)


@given(counts=plans())
@settings(max_examples=60, deadline=None)
def test_it_is_earliest_deadline_first_with_ties_by_index(counts: NDArray[np.int64]) -> None:
    expected = [d for row in counts.tolist() for d in chairman(row)]
    order = order_of(counts)
    assert order.domains(0, len(order)).tolist() == expected


@pytest.mark.parametrize(
    "counts",
    [
        [30_000, 7, 3, 2, 1, 1, 1, 0],
        [1, 29_999, 1],
        [9_973, 9_967] + [2, 3] * 40,
        [5] * (SLOTS + 104),
        [20_000] + [1, 2] * (SLOTS // 2 + 10),
    ],
    ids=["far", "needles", "far and near", "no calendar", "no calendar, far"],
)
def test_windows_longer_than_the_calendar_and_domains_too_many_for_it(counts: list[int]) -> None:
    order = order_of([counts])
    assert order.domains(0, len(order)).tolist() == chairman(counts)


@pytest.mark.parametrize("interval", [16, 1 << 15])
@given(counts=plans(), data=st.data())
@settings(max_examples=40, deadline=None)
def test_any_access_equals_one_pass(interval: int, counts: NDArray[np.int64], data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixer.order, "CHECKPOINT_INTERVAL", interval)
        check_any_access(counts, data)


def check_any_access(counts: NDArray[np.int64], data: st.DataObject) -> None:
    order = order_of(counts)
    n, total = counts.shape[1], len(order)
    whole = order.domains(0, total)
    table = prefix_table(whole, n)
    fresh = order_of(counts)
    known = Order.from_arrays(names(counts), counts, order.to_arrays())
    for _ in range(5):
        start, stop = sorted(data.draw(st.tuples(st.integers(0, total), st.integers(0, total))))
        for any_order in (order, fresh, known):
            assert (any_order.prefix_counts(start) == table[start]).all()
            domains, places = any_order.stream_index(start, stop)
            assert (domains == whole[start:stop]).all()
            assert (places == table[np.arange(start, stop), domains]).all()
            if stop < total:
                assert any_order.locate(stop) == (whole[stop], table[stop, whole[stop]])
    assert (fresh.checkpoints() == known.checkpoints()).all()


@given(counts=plans(), size=st.integers(1, 700), data=st.data())
@settings(max_examples=40, deadline=None)
def test_blocks(counts: NDArray[np.int64], size: int, data: st.DataObject) -> None:
    order = order_of(counts)
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(order))] * 2)))
    whole = order.domains(0, len(order))
    table = prefix_table(whole, counts.shape[1])
    position = start
    for first, domains, before in order.blocks(size, start, stop):
        assert first == position
        assert len(domains) == min(size, stop - first)
        assert (domains == whole[first : first + len(domains)]).all()
        assert (before == table[first]).all()
        position += len(domains)
    assert position == stop


def test_random_access_far_into_a_long_phase_uses_checkpoints() -> None:
    counts = np.array([[700_001, 299_998, 1, 2], [10, 0, 500_000, 4]], np.int64)
    order = order_of(counts)
    whole = order.domains(0, len(order))
    arrays = order.to_arrays()
    assert arrays["checkpoints"].shape == (123 + 31, 1)
    known = Order.from_arrays(order.names, counts, arrays)
    for position in np.random.default_rng(0).integers(0, len(order), 30).tolist():
        domain, place = known.locate(position)
        assert domain == whole[position]
        assert place == np.count_nonzero(whole[:position] == domain)


@given(counts=st.lists(COUNT, min_size=1, max_size=20).filter(any), factor=st.integers(2, 6))
@settings(max_examples=50, deadline=None)
def test_common_divisor_means_repetition(counts: list[int], factor: int) -> None:
    once = order_of([counts])
    several = [count * factor for count in counts]
    order = order_of([several])
    assert (order.domains(0, len(order)) == np.tile(once.domains(0, len(once)), factor)).all()
    assert order.domains(0, len(order)).tolist() == chairman(several)


@given(counts=plans(), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_a_domain_without_sequences_moves_nothing(counts: NDArray[np.int64], seed: int) -> None:
    """A domain that joins in a later phase leaves the earlier ones as they were, wherever its name sorts."""
    order = order_of(counts)
    at = int(np.random.default_rng(seed).integers(0, counts.shape[1] + 1))
    grown = np.insert(counts, at, 0, axis=1)
    joined = np.vstack([grown, np.full(counts.shape[1] + 1, 2)])
    expected = order.domains(0, len(order))
    assert (order_of(joined).domains(0, len(order)) == expected + (expected >= at)).all()


def long_phase(n: int, length: int, seed: int) -> list[int]:
    """Counts from one sequence to most of the phase."""
    rng = np.random.default_rng(seed)
    counts = [1 + int(x) for x in (length / 2 / n) * 10.0 ** -rng.uniform(0, 9, n - 1)]
    return [length - sum(counts), *counts]


@pytest.mark.parametrize("n", [2, 3, 40, 300])
@pytest.mark.parametrize("start", ["begin", "end"])
def test_five_billion_sequences_do_not_overflow(n: int, start: str) -> None:
    """The states that the kernel adds up are those of unbounded integers, and each item is in its window."""
    length = 5_000_000_029
    counts = long_phase(n, length, n)
    m = max(2, 2 * n - 2)
    emitted, slot = (counts, length) if start == "end" else ([0] * n, 0)
    state = phase_state(counts, length, emitted)
    out = np.empty(100_000, np.int16)
    assert advance(state, slot, out) == len(out)
    assert (state == phase_state(counts, length, state[:, EMITTED].tolist())).all()
    seen = [0] * n
    for position, d in enumerate(out.tolist()):
        # Just before and just after an item of a domain is where its deviation is extreme.
        assert (counts[d] * position - length * seen[d]) * m <= length * (m - 1)
        seen[d] += 1
        assert (length * seen[d] - counts[d] * (position + 1)) * m <= length * (m - 1)
    for d in range(n):
        assert (counts[d] * len(out) - length * seen[d]) * m <= length * (m - 1)


def test_one_sequence_in_four_billion_comes_once_and_in_the_middle() -> None:
    length = 4_400_000_000
    counts = [1, length - 1]
    near = length // 2 - 1000
    state = phase_state(counts, length, [0, near])
    out = np.empty(2000, np.int16)
    assert advance(state, near, out) == 2000
    assert np.flatnonzero(out == 0).tolist() == [999]
    assert state[0, EMITTED] == 1


def test_phases_join_without_a_seam() -> None:
    """Three phases of the same proportions are the same order as one."""
    one = order_of([[90, 45, 15]])
    three = order_of([[30, 15, 5], [36, 18, 6], [24, 12, 4]])
    assert (one.domains(0, 150) == three.domains(0, 150)).all()


def test_a_known_order() -> None:
    """Worked by hand: windows 0-1, 2-3, 4-5 of the first, 0-2, 3-5 of the second, 1-4 of the third domain."""
    assert order_of([[3, 2, 1]]).domains(0, 6).tolist() == [0, 1, 0, 2, 0, 1]


def golden_orders() -> list[Order]:
    wide = (np.arange(600, dtype=np.int64).reshape(3, 200) * 7919 % 53) ** 2
    deep = np.array([[70_000, 20_000, 9_000, 990, 9, 1], [0, 50_000, 1, 0, 3, 30_000]], np.int64)
    return [order_of(wide), order_of(deep)]


def test_the_order_changes_only_with_its_version() -> None:
    digests = tuple(
        hashlib.sha256(order.domains(0, len(order)).astype("<i2").tobytes()).hexdigest() for order in golden_orders()
    )
    assert digests == GOLDEN[ORDER_VERSION]


def test_checkpoints_of_another_plan_are_refused() -> None:
    counts = np.array([[70_000, 30_001]], np.int64)
    arrays = order_of(counts).to_arrays()
    Order.from_arrays(names(counts), counts, arrays)
    with pytest.raises(UserError, match="not those of this plan"):
        Order.from_arrays(("code", "web"), counts, arrays)
    with pytest.raises(UserError, match="not those of this plan"):
        Order.from_arrays(names(counts), counts[:, ::-1].copy(), arrays)
    damaged = {**arrays, "checkpoints": arrays["checkpoints"] ^ np.uint8(3)}
    with pytest.raises(UserError, match="damaged"):
        Order.from_arrays(names(counts), counts, damaged)
    with pytest.raises(UserError, match="missing"):
        Order.from_arrays(names(counts), counts, {"checkpoints": arrays["checkpoints"]})


def test_the_digest_covers_names_counts_and_phases() -> None:
    plain = [order_of(c) for c in ([[1, 2]], [[2, 1]], [[1, 2], [0, 0]], [[1], [2]])]
    digests = [order.digest for order in plain] + [Order(("a", "b"), np.array([[1, 2]])).digest]
    assert len(set(digests)) == 5
    assert order_of([[1, 2]]).digest == digests[0]


def test_empty_phases_and_empty_orders() -> None:
    order = order_of([[0, 0], [2, 1], [0, 0], [0, 2], [0, 0]])
    assert order.domains(0, 5).tolist() == [0, 1, 0, 1, 1]
    assert order.locate(3) == (1, 1)
    assert order.prefix_counts(5).tolist() == [2, 3]
    empty = order_of([[0, 0]])
    assert len(empty) == 0
    assert empty.domains(0, 0).tolist() == []
    assert list(empty.blocks(4)) == []
    assert empty.checkpoints().shape == (0, 1)


def test_bad_input() -> None:
    good = np.array([[1, 2]], np.int64)
    for bad_names in (("b", "a"), ("a", "a")):
        with pytest.raises(ValueError, match="sorted"):
            Order(bad_names, good)
    others: list[Any] = [good[0], good.astype(np.int32), good.astype(float), np.ones((1, 3), np.int64)]
    for bad_counts in others:
        with pytest.raises(ValueError, match="int64"):
            Order(("a", "b"), bad_counts)
    with pytest.raises(ValueError, match="negative"):
        Order(("a", "b"), -good)
    order = Order(("a", "b"), good)
    for start, stop in pairwise((-1, 2, 1)):
        with pytest.raises(IndexError):
            order.domains(start, stop)
    with pytest.raises(IndexError):
        order.locate(3)
    with pytest.raises(IndexError):
        order.prefix_counts(4)
    with pytest.raises(ValueError, match="at least 1"):
        list(order.blocks(0))


def test_later_changes_of_the_argument_do_not_reach_the_order() -> None:
    counts = np.array([[3, 2, 1]], np.int64)
    order = order_of(counts)
    counts[:] = 9
    assert order.counts.tolist() == [[3, 2, 1]]
