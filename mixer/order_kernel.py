"""The scheduler of one phase: chairman-assignment windows, earliest deadline first, in integers.

A phase of `length` slots holds `count` items of each domain; `n` domains have a positive count. Tijdeman (The
chairman assignment problem, Discrete Mathematics 32, 1980, pp. 323-330) shows that the slots can be filled so
that after every `t` slots every domain is within `1 - 1/(2n-2)` of `count * t / length`. With `m = 2n - 2`,
that bound holds exactly when item `j` (from 0) of a domain lies between the slots

    release(j)  = ceil(length * (j*m + 1) / (count*m)) - 1
    deadline(j) = floor(length * (j*m + m - 1) / (count*m))

both included: the first slot after which having `j + 1` items is not too many, and the last slot before which
having only `j` is not too few. Unit items with integer windows that fit at all are placed by earliest
deadline first, whatever rule breaks ties; the smaller domain index breaks them here. The last deadline of
every domain is below `length`, so the totals are exact at the end.

Both bounds move by `length / count` from item to item, so each is a quotient and a remainder over `count * m`
to which `length // count` and `length % count * m` are added with a carry. Nothing is larger than
`2 * count * m`, which is below 7e14 for 5e9 sequences and 2**15 domains.
"""

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

# Columns of the state. A row is one domain and one cache line.
RELEASE, RELEASE_REMAINDER, DEADLINE, DEADLINE_REMAINDER, STEP, STEP_REMAINDER, MODULUS, EMITTED = range(8)

SLOTS = 1 << 12
# One word of 64 bits says which words of a bucket's bit set are not empty.
MAX_CALENDAR_DOMAINS = 64 * 64


def phase_state(counts: list[int], length: int, emitted: list[int]) -> NDArray[np.int64]:
    """State of the scheduler after `emitted` items of each domain: int64[domains, 8].

    `counts` sum to `length`. The emitted counts are all there is to know; the slot is their sum. Computed
    with Python's unbounded integers, as `length * j * m` does not fit 64 bits.
    """
    m = max(2, 2 * sum(1 for c in counts if c) - 2)
    state = np.zeros((len(counts), 8), np.int64)
    for domain, (c, j) in enumerate(zip(counts, emitted, strict=True)):
        if c:
            modulus = c * m
            release, release_remainder = divmod(length * (j * m + 1) - 1, modulus)
            deadline, deadline_remainder = divmod(length * (j * m + m - 1), modulus)
            step, step_remainder = divmod(length, c)
            bounds = (release, release_remainder, deadline, deadline_remainder)
            state[domain] = (*bounds, step, step_remainder * m, modulus, j)
    return state


def _count_trailing_zeros(typingctx: Any, word: Any) -> Any:
    """Index of the lowest set bit of a non-zero int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], context.get_constant(types.boolean, True))

    return types.int64(types.int64), codegen


_lowest_bit: Any = intrinsic(_count_trailing_zeros)


@njit(cache=True, nogil=True)
def _heap_push(heap, size, domain, state):  # type: ignore[no-untyped-def]
    """Add a domain to the binary heap of (deadline, index); returns the new size."""
    at = size
    key = state[domain, DEADLINE]
    while at > 0:
        up = (at - 1) >> 1
        other = heap[up]
        if state[other, DEADLINE] < key or (state[other, DEADLINE] == key and other < domain):
            break
        heap[at] = other
        at = up
    heap[at] = domain
    return size + 1


@njit(cache=True, nogil=True)
def _heap_pop(heap, size, state):  # type: ignore[no-untyped-def]
    """Remove the first domain of the heap (the caller has read it); returns the new size."""
    size -= 1
    domain = heap[size]
    key = state[domain, DEADLINE]
    at = 0
    while True:
        down = 2 * at + 1
        if down >= size:
            break
        child = heap[down]
        if down + 1 < size:
            right = heap[down + 1]
            a, b = state[right, DEADLINE], state[child, DEADLINE]
            if a < b or (a == b and right < child):
                down += 1
                child = right
        if state[child, DEADLINE] > key or (state[child, DEADLINE] == key and child > domain):
            break
        heap[at] = child
        at = down
    heap[at] = domain
    return size


@njit(cache=True, nogil=True)
def advance(state, start, out):  # type: ignore[no-untyped-def]
    """Fill `out` (int16) with the domains of the slots from `start` on, and move `state` past them.

    `start` must be the slot of `state`. May run past the end of the phase: windows go on with the same
    period. Returns how many slots were filled, fewer than asked only when no item was released, which a
    consistent state excludes.

    Waiting and ready items sit in a calendar of `SLOTS` buckets from the current slot on: waiting ones in a
    linked list at their release, ready ones in a bit set of domains at their deadline. A domain whose windows
    are longer than the calendar waits at its far end again and again, and is kept in a heap when ready, as
    are all domains when there are too many for the bit sets.
    """
    domains = state.shape[0]
    words = (domains + 63) >> 6
    use_calendar = domains <= MAX_CALENDAR_DOMAINS
    mask = SLOTS - 1
    word_mask = (SLOTS >> 6) - 1
    waiting = np.full(SLOTS, -1, np.int32)
    link = np.empty(domains, np.int32)
    ready = np.zeros(SLOTS * words if use_calendar else 0, np.int64)
    filled = np.zeros(SLOTS, np.int64)
    occupied = np.zeros(SLOTS >> 6, np.int64)
    heap = np.empty(domains, np.int64)
    near = 0
    far = 0
    one = np.int64(1)
    for d in range(domains):
        if state[d, MODULUS] > 0:
            at = min(max(state[d, RELEASE], start), start + mask) & mask
            link[d] = waiting[at]
            waiting[at] = d

    for i in range(out.shape[0]):
        now = start + i
        here = now & mask
        following = np.int64(waiting[here])
        waiting[here] = -1
        while following >= 0:
            domain = following
            following = np.int64(link[domain])
            if state[domain, RELEASE] > now:
                at = min(state[domain, RELEASE], now + mask) & mask
                link[domain] = waiting[at]
                waiting[at] = domain
            elif state[domain, STEP] + 2 >= SLOTS or not use_calendar:
                far = _heap_push(heap, far, domain, state)
            else:
                at = state[domain, DEADLINE] & mask
                ready[at * words + (domain >> 6)] |= one << (domain & 63)
                filled[at] |= one << (domain >> 6)
                occupied[at >> 6] |= one << (at & 63)
                near += 1

        chosen = np.int64(-1)
        if near > 0:
            w = here >> 6
            bits = occupied[w] & (np.int64(-1) << (here & 63))
            while bits == 0:
                w = (w + 1) & word_mask
                bits = occupied[w]
            bucket = (w << 6) + _lowest_bit(bits)
            word = _lowest_bit(filled[bucket])
            cell = bucket * words + word
            bits = ready[cell]
            chosen = (word << 6) + _lowest_bit(bits)
            use_heap = False
            if far > 0:
                first = heap[0]
                a, b = state[first, DEADLINE], state[chosen, DEADLINE]
                use_heap = a < b or (a == b and first < chosen)
            if use_heap:
                chosen = heap[0]
                far = _heap_pop(heap, far, state)
            else:
                near -= 1
                bits &= bits - 1
                ready[cell] = bits
                left = filled[bucket] ^ (np.int64(bits == 0) << word)
                filled[bucket] = left
                occupied[w] ^= np.int64(left == 0) << (bucket & 63)
        elif far > 0:
            chosen = heap[0]
            far = _heap_pop(heap, far, state)
        else:
            return i

        out[i] = chosen
        modulus = state[chosen, MODULUS]
        step = state[chosen, STEP]
        step_remainder = state[chosen, STEP_REMAINDER]
        remainder = state[chosen, RELEASE_REMAINDER] + step_remainder
        carry = np.int64(remainder >= modulus)
        state[chosen, RELEASE_REMAINDER] = remainder - carry * modulus
        release = state[chosen, RELEASE] + step + carry
        state[chosen, RELEASE] = release
        remainder = state[chosen, DEADLINE_REMAINDER] + step_remainder
        carry = np.int64(remainder >= modulus)
        state[chosen, DEADLINE_REMAINDER] = remainder - carry * modulus
        state[chosen, DEADLINE] += step + carry
        state[chosen, EMITTED] += 1
        at = min(max(release, now + 1), now + mask) & mask
        link[chosen] = waiting[at]
        waiting[at] = chosen
    return out.shape[0]


@njit(cache=True, nogil=True)
def ranks(domains, seen, out):  # type: ignore[no-untyped-def]
    """Write into `out` (int64) how often each of `domains` (int16) came before.

    Counts from `seen` (int64[domains]) on, which is moved past the last position.
    """
    for i in range(domains.shape[0]):
        domain = domains[i]
        out[i] = seen[domain]
        seen[domain] += 1
