"""The plan: how many sequences of each domain in each phase, as integers that anybody can check.

budget // sequence_length sequences are split over phases, and within a phase over domains, by largest remainder on
exact shares. A run is one plan, or, after an amendment, the part of a plan that was kept and the plan that follows: its
segments. The plan needs no data; with the supply of the store it also tells the epochs and keeps to the caps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import ceil
from typing import Any

import numpy as np

from mixer.apportion import apportion, split_phases
from mixer.domains import Asked, Domains, asked_shares
from mixer.order import Order
from mixer.shortfall import Demand, overdrawn, raise_to_floors, redistribute, smallest_changes
from stages.errors import UserError

ADVISED = 8
"""For how many overdrawn domains the smallest changes are looked for; each takes many trial plans."""


@dataclass(frozen=True)
class Supply:
    """Unique documents and tokens of a domain, for training and held out."""

    documents: int
    tokens: int
    validation_documents: int = 0
    validation_tokens: int = 0

    def __add__(self, other: "Supply") -> "Supply":
        return Supply(*(getattr(self, k) + getattr(other, k) for k in Supply.__dataclass_fields__))


@dataclass(frozen=True)
class Phase:
    """A phase as planned: its sequences, and for every domain what was asked (an exact share of the phase), what is
    given (another share only where caps or floors changed it), and what is planned (sequences)."""

    name: str
    sequences: int
    asked: Mapping[str, Fraction]
    given: Mapping[str, Fraction]
    planned: Mapping[str, int]


@dataclass(frozen=True)
class Plan:
    """The integers of one plan. Domains are in the order of their names everywhere."""

    sequence_length: int
    phases: tuple[Phase, ...]
    budget: int

    @cached_property
    def domains(self) -> tuple[str, ...]:
        return tuple(sorted(self.phases[0].planned))

    @property
    def sequences(self) -> int:
        return sum(p.sequences for p in self.phases)

    @cached_property
    def counts(self) -> np.ndarray:
        """int64 [phases, domains]: planned sequences."""
        return np.array([[p.planned[d] for d in self.domains] for p in self.phases], np.int64)

    def planned(self, domain: str) -> int:
        """Sequences of a domain over all phases."""
        return sum(p.planned[domain] for p in self.phases)

    def asked(self, domain: str) -> Fraction:
        """The exact share of the plan that the spec asks for."""
        return sum((p.asked[domain] * p.sequences for p in self.phases), Fraction(0)) / self.sequences

    def order(self) -> Order:
        """The training order of this plan."""
        return Order(self.domains, self.counts)


@dataclass(frozen=True)
class Segment:
    """The positions [first, first + sequences) of a run: the first `sequences` of a plan. `offsets` tells, for every
    domain, how many tokens of its stream were drawn before."""

    plan: Plan
    first: int
    sequences: int
    offsets: Mapping[str, int]

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """Sequences of every domain in this segment."""
        if self.sequences == self.plan.sequences:
            return {d: self.plan.planned(d) for d in self.plan.domains}
        counts = self.plan.order().prefix_counts(self.sequences)
        return dict(zip(self.plan.domains, counts.tolist(), strict=True))

    def drawn(self) -> dict[str, int]:
        """Tokens of every domain's stream drawn by the end of this segment."""
        return {d: self.offsets[d] + self.counts[d] * self.plan.sequence_length for d in self.plan.domains}


@dataclass(frozen=True)
class Run:
    """A whole run: its segments, one after the other."""

    segments: tuple[Segment, ...]

    @property
    def domains(self) -> tuple[str, ...]:
        return self.segments[0].plan.domains

    @property
    def sequences(self) -> int:
        return sum(s.sequences for s in self.segments)

    @property
    def tokens(self) -> int:
        return sum(s.sequences * s.plan.sequence_length for s in self.segments)

    @property
    def budget(self) -> int:
        """Tokens that were to be planned: those of the kept part, and the budget of the last plan."""
        kept = sum(s.sequences * s.plan.sequence_length for s in self.segments[:-1])
        return kept + self.segments[-1].plan.budget

    def sequences_of(self, domain: str) -> int:
        """Sequences of a domain over the run."""
        return sum(s.counts[domain] for s in self.segments)

    def tokens_of(self, domain: str) -> int:
        """Tokens of a domain over the run."""
        return self.segments[-1].drawn()[domain]

    def asked(self, domain: str) -> Fraction:
        """The exact share of the run's tokens that the specs ask for."""
        parts = (
            (phase.asked[domain], span * segment.plan.sequence_length)
            for segment in self.segments
            for phase, _, span in phases_in(segment)
        )
        return sum((share * tokens for share, tokens in parts), Fraction(0)) / self.tokens

    def epochs(self, domain: str, supply: Supply) -> Fraction:
        """Planned passes over the domain's unique training tokens."""
        return Fraction(self.tokens_of(domain), supply.tokens) if supply.tokens else Fraction(0)


def phases_in(segment: Segment) -> list[tuple[Phase, int, int]]:
    """The phases of a segment: phase, first position in the run, sequences within the segment (0 after a cut)."""
    found, first, left = [], segment.first, segment.sequences
    for phase in segment.plan.phases:
        span = min(phase.sequences, left)
        found.append((phase, first, span))
        first, left = first + span, left - span
    return found


def plan_run(domains: Domains, supply: Mapping[str, Supply] | None, budget: int | None = None) -> Run:
    """Compile a spec, with its amendments, into a run. A sample gives its own `budget` in tokens.

    Raises UserError for what cannot be planned; with a supply also when a domain passes its cap and `on_shortfall`
    is `error`, or nothing can be redistributed any more.
    """
    spec = domains.spec
    tokens = None if supply is None else {d: s.tokens for d, s in supply.items()}
    first = _plan(domains, spec.phases, spec.sequence_length, budget or spec.budget, tokens, {}, whole=budget is None)
    run = Run((Segment(first, 0, first.sequences, dict.fromkeys(first.domains, 0)),))
    for amendment in spec.amendments:
        kept = cut(run, amendment.at)
        drawn = kept.segments[-1].drawn()
        left = run.budget - kept.tokens if amendment.budget is None else amendment.budget
        length = amendment.sequence_length or kept.segments[-1].plan.sequence_length
        plan = _plan(domains, amendment.phases, length, left, tokens, drawn, whole=True)
        run = Run((*kept.segments, Segment(plan, kept.sequences, plan.sequences, drawn)))
    return run


def cut(run: Run, at: int) -> Run:
    """The first `at` sequences of a run. Raises UserError unless 0 < at < the run's length."""
    if not 0 < at < run.sequences:
        raise UserError(f"cannot amend at sequence {at}: the run has the sequences 0 to {run.sequences - 1}")
    kept = [s for s in run.segments if s.first < at]
    kept[-1] = replace(kept[-1], sequences=at - kept[-1].first)
    return Run(tuple(kept))


def _plan(
    domains: Domains,
    phases: Sequence[Any],
    length: int,
    budget: int,
    supply: Mapping[str, int] | None,
    drawn: Mapping[str, int],
    whole: bool,
) -> Plan:
    spec, sequences = domains.spec, budget // length
    if sequences < 1:
        raise UserError(f"mixture {spec.mixture}: {budget} tokens are less than one sequence of {length}")
    scale = Fraction(1) if whole else Fraction(budget, spec.budget)
    asked = asked_shares(domains, phases, budget, supply, drawn, scale)
    caps = {leaf.name: leaf.max_epochs for leaf in domains.leaves}
    floors = {leaf.name: leaf.spec.min_share for leaf in domains.leaves if leaf.spec and leaf.spec.min_share}
    given = [shares for _, _, shares in asked]
    if supply is not None:
        there = {d: _left(supply[d], drawn.get(d, 0), caps[d]) for d in caps}
        demand = Demand(length, sequences, asked, there, caps, {k: v for k, v in floors.items() if v is not None})
        if spec.on_shortfall == "redistribute":
            given = redistribute(demand)
        else:
            given = raise_to_floors(demand) if floors else given
            if spec.on_shortfall == "error":
                _refuse_overdrafts(spec.mixture, demand.with_shares(given), supply, drawn)
    plan = Plan(length, _phases(asked, given, sequences), budget)
    for domain in plan.domains:
        if supply is not None and plan.planned(domain) and not supply[domain]:
            need = plan.planned(domain) * length
            raise UserError(f"mixture {spec.mixture}: domain {domain} needs {need} tokens; its cells have none")
    if whole:
        _refuse_empty(spec.mixture, plan, asked, drawn)
    return plan


def _left(supply: int, drawn: int, cap: Fraction) -> Fraction:
    """The supply of which `cap` passes are as many tokens as may still be drawn."""
    return max(Fraction(0), supply - drawn / cap) if cap else Fraction(0)


def _phases(asked: Asked, given: Sequence[Mapping[str, Fraction]], sequences: int) -> tuple[Phase, ...]:
    lengths = split_phases(sequences, [share for _, share, _ in asked])
    return tuple(
        Phase(name, size, shares, new, apportion(size, new))
        for (name, _, shares), new, size in zip(asked, given, lengths, strict=True)
    )


def _refuse_overdrafts(mixture: str, demand: Demand, supply: Mapping[str, int], drawn: Mapping[str, int]) -> None:
    """Raise UserError for every domain over its cap: what it needs, what there is, and the smallest changes that do."""
    complaints = []
    for over in overdrawn(demand):
        need, have = over.need + drawn.get(over.domain, 0), supply[over.domain]
        if not have:
            complaints.append(f"domain {over.domain}: needs {need} tokens and has none; its cells are empty")
            continue
        text = (
            f"domain {over.domain}: needs {need} tokens and has {have}, that is {need / have:.3f} epochs over its "
            f"max_epochs of {float(over.max_epochs):g}"
        )
        if not drawn.get(over.domain) and len(complaints) < ADVISED:
            changes = smallest_changes(demand, over.domain)
            options = [f"max_epochs: {float(changes.max_epochs):.3f}"] if changes.max_epochs is not None else []
            if demand.cap[over.domain]:
                options += (
                    [f"a share of at most {float(changes.share) * 100:.4f}%"] if changes.share is not None else []
                )
                options += [f"a budget of at most {changes.budget}"] if changes.budget else []
            text += f"; the smallest change is {', or '.join(options)}"
        complaints.append(f"{text}; or say `on_shortfall: redistribute`")
    if complaints:
        raise UserError("\n".join(f"mixture {mixture}: {c}" for c in complaints))


def _refuse_empty(mixture: str, plan: Plan, asked: Asked, drawn: Mapping[str, int]) -> None:
    """Raise UserError when rounding leaves a domain that asks for something without a single sequence in the run."""
    for domain in plan.domains:
        weighed = [(p.given[domain], length) for p, (_, length, _) in zip(plan.phases, asked, strict=True)]
        if plan.planned(domain) or drawn.get(domain) or not any(share and length for share, length in weighed):
            continue
        # With so many sequences some phase's quota of the domain is at least one, whatever is rounded.
        needed = min(ceil(ceil(1 / share) / length) for share, length in weighed if share and length)
        raise UserError(
            f"mixture {mixture}: domain {domain} asks for a share but {plan.sequences} sequences of "
            f"{plan.sequence_length} tokens leave it none; a budget of {needed * plan.sequence_length} tokens gives it "
            "one, or remove the domain"
        )


def feasible_budget(domains: Domains, supply: Mapping[str, Supply]) -> int:
    """A budget up to the spec's at which no domain passes its cap, while one sequence more would; a sample is built
    with it.

    Raises UserError naming a domain of which the sample has nothing, or that has too little for any sequence.
    """
    spec = domains.spec
    sizes = {d: s.tokens for d, s in supply.items()}
    caps = {leaf.name: leaf.max_epochs * sizes[leaf.name] for leaf in domains.leaves}

    def plan_of(sequences: int) -> dict[str, int]:
        budget = sequences * spec.sequence_length
        asked = asked_shares(domains, spec.phases, budget, sizes, scale=Fraction(budget, spec.budget))
        phases = _phases(asked, [shares for _, _, shares in asked], sequences)
        return {d: sum(p.planned[d] for p in phases) for d in caps}

    def fits(sequences: int) -> bool:
        try:
            return all(n * spec.sequence_length <= caps[d] for d, n in plan_of(sequences).items())
        except UserError:
            return False

    low, high = 0, spec.budget // spec.sequence_length
    if fits(high):
        return high * spec.sequence_length
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    for sequences in (spec.budget // spec.sequence_length, low + 1):
        try:
            planned = plan_of(sequences)
        except UserError:
            if sequences == 1:
                raise
            continue
        for domain in (d for d, n in planned.items() if n and not sizes[d]):
            raise UserError(f"domain {domain}: the sample holds nothing of it; take more of each source with --shards")
    if not low:
        least = min(caps, key=lambda d: (caps[d], d))
        raise UserError(
            f"mixture {spec.mixture}: the sample is too small for one sequence of {spec.sequence_length} tokens; "
            f"domain {least} has {sizes[least]} tokens. Take more of each source with --shards"
        )
    return low * spec.sequence_length
