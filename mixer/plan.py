"""The plan: how many sequences of each domain in each phase, as integers that anybody can check.

budget // sequence_length sequences are split over phases, and within a phase over domains, by largest remainder on
exact weights. The plan needs no data; with the supply of the store it also tells the epochs and refuses what the
caps forbid.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from math import ceil, floor
from typing import Any

import numpy as np

from mixer.apportion import apportion, split_phases
from mixer.order import Order
from mixer.spec import MixtureSpec
from stages.errors import UserError


@dataclass(frozen=True)
class Supply:
    """Unique documents and tokens of a domain, for training and held out."""

    documents: int
    tokens: int
    validation_documents: int = 0
    validation_tokens: int = 0


@dataclass(frozen=True)
class Phase:
    """A phase as planned: its sequences, and for every domain what was asked (an exact share of the phase) and what is
    planned (sequences)."""

    name: str
    sequences: int
    asked: Mapping[str, Fraction]
    planned: Mapping[str, int]


@dataclass(frozen=True)
class Plan:
    """The integers of a mixture. Domains are in the order of their names everywhere."""

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
        """The exact share of the run that the spec asks for."""
        return sum((p.asked[domain] * p.sequences for p in self.phases), Fraction(0)) / self.sequences

    def epochs(self, domain: str, supply: Supply) -> Fraction:
        """Planned passes over the domain's unique training tokens."""
        return Fraction(self.planned(domain) * self.sequence_length, supply.tokens) if supply.tokens else Fraction(0)

    def order(self) -> Order:
        """The training order of this plan."""
        return Order(self.domains, self.counts)

    def to_json(self) -> dict[str, Any]:
        """The integers, as plain data."""
        return {
            "budget": self.budget,
            "sequence_length": self.sequence_length,
            "sequences": self.sequences,
            "unused_tokens": self.budget - self.sequences * self.sequence_length,
            "phases": [
                {"name": p.name, "sequences": p.sequences, "domains": {d: p.planned[d] for d in self.domains}}
                for p in self.phases
            ],
        }


def plan_mixture(spec: MixtureSpec, budget: int | None = None) -> Plan:
    """Compile a spec into integers. A sample gives its own `budget` in tokens; rounding may leave it no sequence of a
    domain of small weight.

    Raises UserError when the spec's own budget leaves a domain with a positive weight no sequence at all.
    """
    whole_run = budget is None
    budget = spec.budget if budget is None else budget
    sequences = budget // spec.sequence_length
    asked = spec.phase_list()
    lengths = split_phases(sequences, [share for _, share, _ in asked])
    phases = []
    for (name, _, weights), length in zip(asked, lengths, strict=True):
        total = sum(weights.values(), Fraction(0))
        shares = {d: w / total for d, w in weights.items()}
        phases.append(Phase(name, length, shares, apportion(length, shares)))
    plan = Plan(spec.sequence_length, tuple(phases), budget)
    for domain in plan.domains:
        if whole_run and not plan.planned(domain) and any(p.asked[domain] for p in phases):
            needed = _sequences_for_one(plan, [share for _, share, _ in asked], domain) * spec.sequence_length
            raise UserError(
                f"mixture {spec.mixture}: domain {domain} asks for a share but {sequences} sequences of "
                f"{spec.sequence_length} tokens leave it none; a budget of {needed} tokens gives it one, or remove the "
                "domain"
            )
    return plan


def _sequences_for_one(plan: Plan, shares: Sequence[Fraction], domain: str) -> int:
    """A number of sequences with which some phase's quota of the domain is at least one, whatever is rounded."""
    whole = sum(shares, Fraction(0))
    weighed = [(p.asked[domain], share / whole) for p, share in zip(plan.phases, shares, strict=True)]
    return min(ceil(ceil(1 / weight) / share) for weight, share in weighed if weight and share)


def check_supply(spec: MixtureSpec, plan: Plan, supply: Mapping[str, Supply]) -> None:
    """Raise UserError for every domain whose planned tokens exceed its cap: what it needs, what there is, and the
    smallest changes that would do."""
    complaints = []
    for domain in plan.domains:
        if _fits(spec, plan, domain, supply[domain]):
            continue
        need, have = plan.planned(domain) * plan.sequence_length, supply[domain].tokens
        if have == 0:
            complaints.append(
                f"domain {domain}: needs {need} tokens and has none; see `mixer inspect` for what dropped them"
            )
            continue
        cap, epochs = max_epochs(spec, domain), Fraction(need, have)
        # Each phase rounds the domain's sequences by less than one, and all of them together by less than their number.
        spare = floor(cap * have / plan.sequence_length) - sum(1 for p in plan.phases if p.asked[domain]) + 1
        share = Fraction(max(0, spare), plan.sequences)
        budget = _largest_budget(spec, partial(_fits, spec, domain=domain, supply=supply[domain]))
        complaints.append(
            f"domain {domain}: needs {need} tokens and has {have}, that is {float(epochs):.2f} epochs over its "
            f"max_epochs of {float(cap):g}; the smallest change is max_epochs: {ceil(epochs * 100) / 100:.2f}, or a "
            f"share of at most {floor(share * 10**6) / 10**4:.4f}%, or a budget of at most {budget}"
        )
    if complaints:
        raise UserError("\n".join(f"mixture {spec.mixture}: {c}" for c in complaints))


def max_epochs(spec: MixtureSpec, domain: str) -> Fraction:
    """The cap on a domain's planned passes."""
    own = spec.domains[domain].max_epochs
    return spec.max_epochs if own is None else own


def _fits(spec: MixtureSpec, plan: Plan, domain: str, supply: Supply) -> bool:
    """Whether the plan stays within the domain's cap."""
    return plan.planned(domain) * plan.sequence_length <= max_epochs(spec, domain) * supply.tokens


def _largest_budget(spec: MixtureSpec, fits: Callable[[Plan], bool]) -> int:
    """A budget in tokens whose plan fits while that of one more sequence does not, by bisection below the spec's; 0
    always fits."""
    low, high = 0, spec.budget // spec.sequence_length
    if fits(plan_mixture(spec, high * spec.sequence_length)):
        return high * spec.sequence_length
    while high - low > 1:
        middle = (low + high) // 2
        if fits(plan_mixture(spec, middle * spec.sequence_length)):
            low = middle
        else:
            high = middle
    return low * spec.sequence_length


def feasible_budget(spec: MixtureSpec, supply: Mapping[str, Supply]) -> int:
    """The largest budget up to the spec's at which no domain passes its cap; a sample is built with it.

    Raises UserError naming a domain of which the sample has nothing, or that has too little for any sequence.
    """
    shares = plan_mixture(spec)
    for domain in shares.domains:
        if shares.planned(domain) and not supply[domain].tokens:
            raise UserError(f"domain {domain}: the sample holds nothing of it; take more of each source with --shards")
    budget = _largest_budget(spec, lambda plan: all(_fits(spec, plan, d, supply[d]) for d in plan.domains))
    if not budget:
        least = min((d for d in shares.domains if shares.planned(d)), key=lambda d: supply[d].tokens)
        raise UserError(
            f"mixture {spec.mixture}: the sample is too small for one sequence of {spec.sequence_length} tokens; "
            f"domain {least} has {supply[least].tokens} tokens. Take more of each source with --shards"
        )
    return budget
