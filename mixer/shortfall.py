"""When a domain has fewer tokens than it is asked for: what lacks, what to change, and shares that do without.

A cap is counted in whole sequences, floor(max_epochs * tokens / sequence_length), and held against the sequences that
`mixer.apportion` will plan, not against exact quotas: rounding can give a domain one more in every phase.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import ceil, floor

from mixer.apportion import apportion, split_phases
from stages.errors import UserError

Shares = list[dict[str, Fraction]]
"""For every phase, the share of its sequences by domain; each sums to exactly 1."""

_FINEST = 10**24
"""The grid of scaled shares: without one, each round multiplies the denominators of the round before."""
_SHARE_GRID = 10**6
_EPOCH_GRID = 1000


@dataclass(frozen=True)
class Demand:
    """What a mixture asks for, and what there is.

    `phases` holds name, share of the run, and weights by domain (the same domains everywhere, none negative), as
    `MixtureSpec.phase_list` gives them; both are scaled to sum to 1. `supply` is in tokens, `max_epochs` in passes,
    by domain. `min_share` names domains with a floor, as a share of the whole run.
    """

    sequence_length: int
    sequences: int
    phases: tuple[tuple[str, Fraction, Mapping[str, Fraction]], ...]
    supply: Mapping[str, int | Fraction]
    max_epochs: Mapping[str, Fraction]
    min_share: Mapping[str, Fraction]

    @cached_property
    def domains(self) -> tuple[str, ...]:
        """The names of the domains, sorted."""
        return tuple(sorted(self.phases[0][2]))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Sequences of every phase."""
        return tuple(split_phases(self.sequences, [share for _, share, _ in self.phases]))

    @cached_property
    def shares(self) -> Shares:
        """The shares as asked."""
        return [_scaled_to_one({d: weights[d] for d in self.domains}) for _, _, weights in self.phases]

    @cached_property
    def cap(self) -> dict[str, int]:
        """The most sequences of every domain."""
        return {d: floor(self.max_epochs[d] * self.supply[d] / self.sequence_length) for d in self.domains}

    def with_shares(self, shares: Sequence[Mapping[str, Fraction]]) -> "Demand":
        """The same run with other shares in its phases."""
        phases = zip(self.phases, shares, strict=True)
        return replace(self, phases=tuple((name, share, new) for (name, share, _), new in phases))


@dataclass(frozen=True)
class Overdraft:
    """A domain whose planned tokens exceed its cap; `epochs` is None when it has no tokens at all."""

    domain: str
    need: int
    have: int | Fraction
    epochs: Fraction | None
    max_epochs: Fraction


@dataclass(frozen=True)
class Changes:
    """Changes of which each, alone, brings a domain under its cap, while a little less does not.

    `max_epochs` is rounded up to 3 decimals, None without tokens. `share` (of the run, with the others scaled to fill
    the phases) is rounded down to 6 decimals, None when some phase asks for this domain alone. `budget` is in tokens, a
    whole number of sequences. Largest remainder is not monotone, so beyond the next step a larger share or budget may
    fit again.
    """

    max_epochs: Fraction | None
    share: Fraction | None
    budget: int


def planned(demand: Demand, shares: Shares | None = None) -> dict[str, int]:
    """The sequences that largest remainder gives every domain over all phases, for the shares asked or others."""
    counts = [
        apportion(size, phase)
        for size, phase in zip(demand.sizes, demand.shares if shares is None else shares, strict=True)
    ]
    return {d: sum(count[d] for count in counts) for d in demand.domains}


def overdrawn(demand: Demand) -> list[Overdraft]:
    """The domains, sorted, whose planned tokens exceed `max_epochs` times their supply."""
    found = []
    for domain, sequences in planned(demand).items():
        if sequences > demand.cap[domain]:
            need, have = sequences * demand.sequence_length, demand.supply[domain]
            epochs = Fraction(need, have) if have else None
            found.append(Overdraft(domain, need, have, epochs, demand.max_epochs[domain]))
    return found


def smallest_changes(demand: Demand, domain: str) -> Changes:
    """What would bring one overdrawn domain under its cap. Raises ValueError when it is not overdrawn."""
    need, have = planned(demand)[domain] * demand.sequence_length, demand.supply[domain]

    def fits(changed: Demand) -> bool:
        return planned(changed)[domain] <= changed.cap[domain]

    if fits(demand):
        raise ValueError(f"domain {domain} is not overdrawn")
    epochs = Fraction(ceil(Fraction(need * _EPOCH_GRID, have)), _EPOCH_GRID) if have else None
    share = None
    if all(phase[domain] < 1 for phase in demand.shares):
        asked = _need(demand, demand.shares, domain) / demand.sequences
        steps = _last(
            lambda step: fits(with_share(demand, domain, Fraction(step, _SHARE_GRID))), ceil(asked * _SHARE_GRID)
        )
        share = Fraction(steps, _SHARE_GRID)
    sequences = _last(lambda n: fits(replace(demand, sequences=n)), demand.sequences)
    return Changes(epochs, share, sequences * demand.sequence_length)


def with_share(demand: Demand, domain: str, share: Fraction) -> Demand:
    """The demand with a domain scaled, by one factor in all phases, to another share of the run, and the others scaled
    to fill each phase. Raises ValueError when a phase cannot be filled so."""
    factor = share * demand.sequences / _need(demand, demand.shares, domain)
    pinned = {domain: [phase[domain] * factor for phase in demand.shares]}
    try:
        return demand.with_shares(_fill(demand, demand.shares, pinned))
    except _Unfillable as error:
        raise ValueError(f"domain {domain} cannot have a share of {share}: {error}") from None


def raise_to_floors(demand: Demand) -> Shares:
    """The shares with every domain of `min_share` raised to its floor where it asks for less.

    It is scaled by the same factor in all phases, and what it gains there is taken from the others in proportion;
    repeated for those that thereby sink below their own floor. Floors hold of the shares; the planned sequences can
    be below by less than one for each phase.

    Raises UserError when floors sum to more than 1, exceed a cap, stand for a domain that no phase asks for, or
    when a phase has no room for what is raised.
    """
    total = sum(demand.min_share.values(), Fraction(0))
    if total > 1:
        raise UserError(
            f"the min_share of {', '.join(sorted(demand.min_share))} sum to {float(total):g}; at most 1 will do"
        )
    for domain, least in sorted(demand.min_share.items()):
        if least * demand.sequences > demand.cap[domain]:
            _refuse_floor(demand, domain)
        if least and not _need(demand, demand.shares, domain):
            raise UserError(
                f"domain {domain}: min_share is {float(least):g}, but no phase asks for it; give it a weight in one"
            )
    shares: Shares = demand.shares
    pinned: dict[str, list[Fraction]] = {}
    while True:
        low = [
            d
            for d, least in sorted(demand.min_share.items())
            if d not in pinned and _need(demand, shares, d) < least * demand.sequences
        ]
        if not low:
            return shares
        for domain in low:
            factor = demand.min_share[domain] * demand.sequences / _need(demand, shares, domain)
            pinned[domain] = _scaled(shares, domain, factor, ceil)
        try:
            shares = _fill(demand, demand.shares, pinned)
        except _Unfillable as error:
            raise UserError(
                f"phase {error.phase}: raising {', '.join(sorted(pinned))} to min_share asks for {error.tokens} tokens "
                "more than it has; lower min_share, or give these domains more weight in the other phases"
            ) from None


def redistribute(demand: Demand) -> Shares:
    """The shares with no domain over its cap: water-filling, in exact fractions.

    Floors come first (`raise_to_floors`). A domain over its cap is then scaled by the same factor in all phases to
    its cap, in whole sequences (shares of more than 24 decimals are rounded down to these), and stays there; what it
    gives up in a phase goes to the domains of that phase that are not capped, in the proportions in which they were
    asked. That is repeated until the planned sequences of none exceed its cap, after at most one round for each domain,
    and some more where rounding would still plan a sequence too many: such a domain is lowered by the excess, which is
    below one sequence for each phase. Shares that already fit come back as they are.

    Raises UserError when all domains of a phase are capped and do not fill it, naming the phase, the tokens that lack,
    and the smallest change of budget or of max_epochs with which the whole of it can be filled; and for floors as
    `raise_to_floors` does.
    """
    start = raise_to_floors(demand)
    try:
        return _water_fill(demand, start)
    except _Unfillable as error:
        used = sorted({d for phase in demand.shares for d in phase if phase[d]})
        raise UserError(
            f"phase {error.phase}: all its domains are at their max_epochs and {error.tokens} tokens lack; "
            f"{_smallest_relief(demand, used)}"
        ) from None


def _water_fill(demand: Demand, start: Shares) -> Shares:
    shares, pinned = start, dict[str, list[Fraction]]()
    while True:
        over = [(d, n) for d, n in planned(demand, shares).items() if n > demand.cap[d]]
        if not over:
            return shares
        for domain, sequences in over:
            need, cap = _need(demand, shares, domain), demand.cap[domain]
            factor = cap / need if need > cap else Fraction(cap, sequences)
            pinned[domain] = _scaled(shares, domain, factor, floor)
        shares = _fill(demand, start, pinned)


class _Unfillable(Exception):
    """A phase that the domains with fixed shares leave too full, or that nothing else can fill."""

    def __init__(self, phase: str, tokens: int) -> None:
        super().__init__(f"phase {phase}: {tokens} tokens")
        self.phase, self.tokens = phase, tokens


def _fill(demand: Demand, base: Shares, pinned: Mapping[str, list[Fraction]]) -> Shares:
    """The `pinned` domains at their shares in each phase, the others in their proportions of `base` for the rest."""
    filled = []
    for i, (phase, size) in enumerate(zip(base, demand.sizes, strict=True)):
        room = 1 - sum((shares[i] for shares in pinned.values()), Fraction(0))
        free = sum((share for d, share in phase.items() if d not in pinned), Fraction(0))
        if not size:
            filled.append(phase)
            continue
        if room < 0 or (room and not free):
            raise _Unfillable(demand.phases[i][0], ceil(abs(room) * size * demand.sequence_length))
        factor = room / free if free else Fraction(0)
        filled.append({d: pinned[d][i] if d in pinned else share * factor for d, share in phase.items()})
    return filled


def _smallest_relief(demand: Demand, used: Iterable[str]) -> str:
    """The largest budget, and the least max_epochs of all domains, with which redistribution works, as advice."""

    def works(changed: Demand) -> bool:
        try:
            _water_fill(changed, raise_to_floors(changed))
        except (_Unfillable, UserError):
            return False
        return True

    budget = _last(lambda n: works(replace(demand, sequences=n)), demand.sequences) * demand.sequence_length
    advice = f"lower the budget to at most {budget} tokens" if budget else "no smaller budget helps"

    def raised(step: int) -> Demand:
        least = Fraction(step, _EPOCH_GRID)
        return replace(demand, max_epochs={d: max(cap, least) for d, cap in demand.max_epochs.items()})

    supplies = [demand.supply[d] for d in used if demand.supply[d]]
    enough = ceil(Fraction(demand.sequences * demand.sequence_length * _EPOCH_GRID, min(supplies))) if supplies else 0
    if not supplies or not works(raised(enough)):
        return f"{advice}; no max_epochs helps, because some domain of the phase has no tokens"
    steps = enough - _last(lambda less: works(raised(enough - less)), enough)
    return f"{advice}, or raise the max_epochs that are lower to {float(Fraction(steps, _EPOCH_GRID)):.3f}"


def _refuse_floor(demand: Demand, domain: str) -> None:
    least, have = demand.min_share[domain], demand.supply[domain]
    share = floor(Fraction(demand.cap[domain], demand.sequences) * _SHARE_GRID) / _SHARE_GRID
    need = ceil(least * demand.sequences) * demand.sequence_length
    more = f", raise its max_epochs to {ceil(Fraction(need * _EPOCH_GRID, have)) / _EPOCH_GRID:.3f}" if have else ""
    raise UserError(
        f"domain {domain}: min_share is {float(least):g}, that is {need} tokens, but with {floor(have)} tokens and "
        f"max_epochs {float(demand.max_epochs[domain]):g} it can have {share:.6f}; lower min_share to that{more}, or "
        "lower the budget"
    )


def _last(works: Callable[[int], bool], beyond: int) -> int:
    """A number in [0, beyond) that works while the next does not, by bisection; 0 is taken to work and `beyond` not
    to."""
    low, high = 0, beyond
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if works(middle) else (low, middle)
    return low


def _need(demand: Demand, shares: Shares, domain: str) -> Fraction:
    """The exact quota of a domain over all phases, in sequences."""
    return sum((phase[domain] * size for phase, size in zip(shares, demand.sizes, strict=True)), Fraction(0))


def _scaled(shares: Shares, domain: str, factor: Fraction, rounded: Callable[[Fraction], int]) -> list[Fraction]:
    """A domain's shares times a factor, on the grid where they would have more digits than that."""
    exact = [phase[domain] * factor for phase in shares]
    return [x if x.denominator <= _FINEST else Fraction(rounded(x * _FINEST), _FINEST) for x in exact]


def _scaled_to_one(weights: Mapping[str, Fraction]) -> dict[str, Fraction]:
    total = sum(weights.values(), Fraction(0))
    if not total:
        raise ValueError("the weights of a phase sum to zero")
    return {name: weight / total for name, weight in weights.items()}
