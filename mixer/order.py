"""The training order: the domain of each sequence of the run, and its place in that domain's stream."""

import hashlib
import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np
from numpy.typing import NDArray

from mixer.order_kernel import EMITTED, advance, phase_state, ranks
from stages.errors import UserError

ORDER_VERSION = 1
CHECKPOINT_INTERVAL = 1 << 13
MAX_DOMAINS = (1 << 15) - 1


@dataclass(frozen=True)
class _Phase:
    """One phase. `counts` and `period` are those of its repeating part: divided by their common divisor."""

    start: int
    length: int
    period: int
    counts: list[int]
    first_row: int

    @property
    def rows(self) -> int:
        return -(-self.period // CHECKPOINT_INTERVAL)


@dataclass
class _Cursor:
    """A scheduler at slot `at` counted from slot `origin` of its phase, a multiple of the period."""

    phase: int
    origin: int
    at: int
    state: NDArray[np.int64]


class Order:
    """The order of the sequences of a run of one or more phases.

    `names` are the domains, strictly ascending; `counts` is int64[phases, domains], the planned sequences. A
    phase has as many positions as its row sums to, and phases follow each other from position 0 on.

    After any number of positions `t` of a phase of length `L`, every domain has had `count * t / L` sequences
    of that phase to within `1 - 1/(2n - 2)`, where `n` is how many domains have a positive count in it
    (Tijdeman, The chairman assignment problem, Discrete Mathematics 32, 1980): the target rounded down or up,
    and never off by one whole sequence. At the end of a phase every total is exact and every lag is 0, so the
    next phase starts afresh without a seam. A domain with count 0 does not appear. A phase whose counts have
    the common divisor `g` is one pattern of `L / g` positions, `g` times over.

    The order is a function of the arguments and `ORDER_VERSION` alone. Domains with count 0 in a phase do not
    influence it, so a domain that joins later does not move what came before.

    Any position can be asked for. Finding it replays the pattern from the last known checkpoint, at most
    `CHECKPOINT_INTERVAL` positions once they are all known; they become known as the order is read, by
    `checkpoints`, or from `from_arrays`. An instance keeps its last place and is not safe to share between
    threads.

    Raises ValueError for names that are not strictly ascending, more than 32,767 of them, counts of another
    shape or dtype, or a negative count.
    """

    def __init__(self, names: Sequence[str], counts: NDArray[np.int64]) -> None:
        self.names = tuple(names)
        if any(a >= b for a, b in zip(self.names, self.names[1:], strict=False)):
            raise ValueError("the names of the domains must be unique and sorted")
        if len(self.names) > MAX_DOMAINS:
            raise ValueError(f"{len(self.names)} domains: an order holds at most {MAX_DOMAINS}")
        if counts.dtype != np.int64 or counts.ndim != 2 or counts.shape[1] != len(self.names):
            shape = f"{counts.dtype}{list(counts.shape)}"
            raise ValueError(f"the counts of an order must be int64[phases, {len(self.names)}], not {shape}")
        if (counts < 0).any():
            raise ValueError("the counts of an order must not be negative")
        self.counts = counts.copy()
        self.counts.flags.writeable = False
        self._before = np.vstack([np.zeros((1, len(self.names)), np.int64), np.cumsum(self.counts, axis=0)])
        self._phases: list[_Phase] = []
        start = row = 0
        for values in self.counts.tolist():
            length = sum(values)
            divisor = gcd(*values) or 1
            phase = _Phase(start, length, length // divisor, [v // divisor for v in values], row)
            self._phases.append(phase)
            start += length
            row += phase.rows
        self._length = start
        self._starts = [phase.start for phase in self._phases]
        self._checkpoints = np.zeros((row, -(-len(self.names) // 8)), np.uint8)
        self._known = [min(1, phase.rows) for phase in self._phases]
        self._cursor: _Cursor | None = None

    def __len__(self) -> int:
        """Sequences of the whole run."""
        return self._length

    @property
    def digest(self) -> str:
        """sha256 of what the order is a function of: version, names and counts."""
        head = json.dumps(["order", ORDER_VERSION, list(self.names), list(self.counts.shape)])
        return hashlib.sha256(head.encode() + self.counts.astype("<i8").tobytes()).hexdigest()

    def domains(self, start: int, stop: int) -> NDArray[np.int16]:
        """Domain index of each position of `[start, stop)`: int16. Raises IndexError outside the run."""
        self._check(start, stop)
        out = np.empty(stop - start, np.int16)
        position = start
        while position < stop:
            phase, cursor = self._seek(position)
            end = min(stop, phase.start + phase.length)
            self._read(cursor, out[position - start : end - start])
            position = end
        return out

    def prefix_counts(self, position: int) -> NDArray[np.int64]:
        """Sequences of each domain before `position` (0 to `len`), over all phases: int64[domains]."""
        self._check(position, self._length)
        if position == self._length:
            return self._before[-1].copy()
        phase, cursor = self._seek(position)
        earlier = cursor.origin // phase.period * np.array(phase.counts, np.int64)
        return self._before[cursor.phase] + earlier + cursor.state[:, EMITTED]

    def stream_index(self, start: int, stop: int) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
        """Domain index and place in the domain's stream of each position of `[start, stop)`.

        Returns int16 and int64 arrays of `stop - start`. The place is how many sequences of that domain come
        earlier, over all phases.
        """
        self._check(start, stop)
        seen = self.prefix_counts(start)
        domains = self.domains(start, stop)
        places = np.empty(stop - start, np.int64)
        ranks(domains, seen, places)
        return domains, places

    def locate(self, position: int) -> tuple[int, int]:
        """Domain index of one position and its place in the domain's stream. Raises IndexError outside."""
        domains, places = self.stream_index(position, position + 1)
        return int(domains[0]), int(places[0])

    def blocks(
        self, size: int, start: int = 0, stop: int | None = None
    ) -> Iterator[tuple[int, NDArray[np.int16], NDArray[np.int64]]]:
        """Read `[start, stop)` (by default the whole run) in blocks of `size` positions.

        Yields the first position, the domain index of each position (int16), and how many sequences of each
        domain come before the block over all phases (int64[domains]): the place in the domain's stream of its
        first sequence in the block. The last block may be shorter. Raises ValueError for a size below 1,
        IndexError outside the run.
        """
        if size < 1:
            raise ValueError(f"a block of {size} positions: give at least 1")
        stop = self._length if stop is None else stop
        before = self.prefix_counts(start)
        for first in range(start, stop, size):
            domains = self.domains(first, min(first + size, stop))
            yield first, domains, before.copy()
            before += np.bincount(domains, minlength=len(self.names))

    def checkpoints(self) -> NDArray[np.uint8]:
        """All checkpoints, built where they are missing: uint8[rows, ceil(domains / 8)].

        Row `r` of a phase belongs to slot `r * CHECKPOINT_INTERVAL` of its repeating part. Since every count
        there is the target rounded down or up, one bit a domain (little-endian) says which; nothing else is
        needed to go on.
        """
        for phase in self._phases:
            if phase.rows > 1:
                self._seek(phase.start + (phase.rows - 1) * CHECKPOINT_INTERVAL)
        return self._checkpoints

    def to_arrays(self) -> dict[str, NDArray[np.uint8]]:
        """Checkpoints (built where missing) and their digest, to be stored and given to `from_arrays`."""
        checkpoints = self.checkpoints()
        return {"checkpoints": checkpoints.copy(), "digest": self._checkpoint_digest(checkpoints)}

    @classmethod
    def from_arrays(
        cls, names: Sequence[str], counts: NDArray[np.int64], arrays: Mapping[str, NDArray[np.uint8]]
    ) -> "Order":
        """An order that starts with the checkpoints of `to_arrays`.

        Raises UserError when they are damaged or belong to other names, counts, version or interval, and
        ValueError as the constructor does.
        """
        order = cls(names, counts)
        if not {"checkpoints", "digest"} <= set(arrays):
            raise UserError("checkpoints of the order: an array is missing. Build them again.")
        checkpoints = np.ascontiguousarray(arrays["checkpoints"])
        if (
            checkpoints.dtype != np.uint8
            or checkpoints.shape != order._checkpoints.shape
            or not np.array_equal(arrays["digest"], order._checkpoint_digest(checkpoints))
        ):
            raise UserError(
                f"checkpoints of the order: they are damaged or not those of this plan (order "
                f"{order.digest[:12]}, version {ORDER_VERSION}). Delete them and build them again."
            )
        order._checkpoints = checkpoints.copy()
        order._known = [phase.rows for phase in order._phases]
        return order

    def _checkpoint_digest(self, checkpoints: NDArray[np.uint8]) -> NDArray[np.uint8]:
        head = json.dumps(["checkpoints", self.digest, CHECKPOINT_INTERVAL]).encode()
        return np.frombuffer(hashlib.sha256(head + checkpoints.tobytes()).digest(), np.uint8)

    def _check(self, start: int, stop: int) -> None:
        if not 0 <= start <= stop <= self._length:
            raise IndexError(f"positions {start} to {stop} of an order of {self._length}")

    def _seek(self, position: int) -> tuple[_Phase, _Cursor]:
        """Move to `position`, which must be inside the run."""
        # bisect_right skips empty phases, which share their start with the next.
        index = bisect_right(self._starts, position) - 1
        phase = self._phases[index]
        slot = position - phase.start
        inside = slot % phase.period
        row = min(inside // CHECKPOINT_INTERVAL, self._known[index] - 1)
        replay = inside - row * CHECKPOINT_INTERVAL
        cursor = self._cursor
        if cursor is None or cursor.phase != index or not 0 <= slot - cursor.origin - cursor.at <= replay:
            state = phase_state(phase.counts, phase.period, self._emitted(phase, row))
            cursor = self._cursor = _Cursor(index, slot - inside, row * CHECKPOINT_INTERVAL, state)
        skip = slot - cursor.origin - cursor.at
        scratch = np.empty(min(skip, CHECKPOINT_INTERVAL), np.int16)
        while skip:
            step = min(skip, CHECKPOINT_INTERVAL)
            self._read(cursor, scratch[:step])
            skip -= step
        return phase, cursor

    def _read(self, cursor: _Cursor, out: NDArray[np.int16]) -> None:
        """Fill `out` from the cursor on, remembering the checkpoints that are passed for the first time."""
        phase = self._phases[cursor.phase]
        done = 0
        while done < len(out):
            step = min(len(out) - done, CHECKPOINT_INTERVAL - cursor.at % CHECKPOINT_INTERVAL)
            if advance(cursor.state, cursor.at, out[done : done + step]) != step:
                raise RuntimeError(f"phase {cursor.phase}: no sequence is due after slot {cursor.at}")
            done += step
            cursor.at += step
            row = self._known[cursor.phase]
            if cursor.at == row * CHECKPOINT_INTERVAL < phase.period:
                up = cursor.state[:, EMITTED] - np.array(_floors(phase, cursor.at), np.int64)
                self._checkpoints[phase.first_row + row] = np.packbits(up.astype(np.bool_), bitorder="little")
                self._known[cursor.phase] += 1

    def _emitted(self, phase: _Phase, row: int) -> list[int]:
        packed = self._checkpoints[phase.first_row + row]
        bits = np.unpackbits(packed, bitorder="little", count=len(self.names))
        floors = _floors(phase, row * CHECKPOINT_INTERVAL)
        return [floor + up for floor, up in zip(floors, bits.tolist(), strict=True)]


def _floors(phase: _Phase, slot: int) -> list[int]:
    """Target of each domain after `slot` slots of the repeating part, rounded down."""
    # Python's integers: count * slot does not fit 64 bits.
    return [count * slot // phase.period for count in phase.counts]
