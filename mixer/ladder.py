"""The ladder: smaller runs of the same mixture that see every domain repeat as often as the full run will.

A rung has the full run's phases. In each of them the rung's sequences are shared in proportion to the full run's, and
a domain that has any sequence in the full run has at least one. A domain's pool is the first part of the order of its
first epoch: unique * (rung's sequences / full run's sequences) tokens, rounded up. The rung's epochs pass over the pool
alone. Pools of smaller rungs are prefixes of those of larger ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from mixer.apportion import apportion, split_phases
from mixer.plan import Phase, Plan, Run, Segment, Supply
from mixer.spec import MixtureSpec
from stages.errors import UserError


@dataclass(frozen=True)
class Rung:
    """A rung: its run, and the tokens of every domain's pool (None without a supply)."""

    name: str
    run: Run
    pools: Mapping[str, int] | None


def climb(spec: MixtureSpec, full: Run, supply: Mapping[str, Supply] | None) -> list[Rung]:
    """All rungs of a spec, the smallest first. Raises UserError when a rung cannot hold a sequence of every domain."""
    if len(full.segments) > 1:
        raise UserError(f"mixture {spec.mixture}: an amended run has no ladder; build the rungs of its parent")
    rungs: list[Rung] = []
    for name, budget in sorted(spec.ladder.items(), key=lambda item: (item[1], item[0])):
        plan = _plan(spec, full.segments[0].plan, name, budget)
        run = Run((Segment(plan, 0, plan.sequences, dict.fromkeys(plan.domains, 0)),))
        below = rungs[-1].pools if rungs else None
        rungs.append(Rung(name, run, None if supply is None else _pools(full, run, supply, below)))
    return rungs


def find_rung(spec: MixtureSpec, full: Run, supply: Mapping[str, Supply], name: str) -> Rung:
    """The rung of that name. Raises UserError naming those that there are."""
    for rung in climb(spec, full, supply):
        if rung.name == name:
            return rung
    known = ", ".join(sorted(spec.ladder)) or "none: add `ladder:` to the spec"
    raise UserError(f"mixture {spec.mixture}: there is no rung {name!r}; the rungs are {known}")


def _plan(spec: MixtureSpec, full: Plan, name: str, budget: int) -> Plan:
    sequences = budget // spec.sequence_length
    lengths = split_phases(sequences, [Fraction(p.sequences) for p in full.phases])
    counts = []
    for phase, size in zip(full.phases, lengths, strict=True):
        weights = {d: Fraction(n) for d, n in phase.planned.items()}
        counts.append(apportion(size, weights) if phase.sequences else dict.fromkeys(weights, 0))
    for domain in full.domains:
        if full.planned(domain) and not sum(c[domain] for c in counts):
            _give_one(spec, name, full, counts, domain)
    phases = tuple(
        Phase(p.name, size, p.asked, p.given, count)
        for p, size, count in zip(full.phases, lengths, counts, strict=True)
    )
    return Plan(spec.sequence_length, phases, budget)


def _give_one(spec: MixtureSpec, name: str, full: Plan, counts: list[dict[str, int]], domain: str) -> None:
    """One sequence for a domain that rounding left out, in the phase where it has most, from whoever can spare most."""
    for i in sorted(range(len(counts)), key=lambda i: (-full.phases[i].planned[domain], i)):
        totals = {d: sum(c[d] for c in counts) for d in counts[i]}
        spare = [d for d in counts[i] if counts[i][d] and totals[d] > 1]
        if spare and full.phases[i].planned[domain]:
            giver = min(spare, key=lambda d: (-counts[i][d], d))
            counts[i][giver] -= 1
            counts[i][domain] += 1
            return
    raise UserError(
        f"mixture {spec.mixture}: rung {name} has {sum(sum(c.values()) for c in counts)} sequences, too few for one of "
        f"each of its {len(full.domains)} domains; give it a larger budget"
    )


def _pools(full: Run, rung: Run, supply: Mapping[str, Supply], below: Mapping[str, int] | None) -> dict[str, int]:
    pools = {}
    for domain in full.domains:
        whole, part = full.sequences_of(domain), rung.sequences_of(domain)
        wanted = -(-supply[domain].tokens * part // whole) if whole else 0
        pools[domain] = min(supply[domain].tokens, max(wanted, below[domain] if below else 0))
    return pools
