"""The mixture spec: domains of cells, their weights, the budget, the phases, and what must hold of the result."""

import re
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from stages.corpus import CorpusSpec, Name, resolve
from stages.errors import UserError
from stages.quantity import Amount, Share, parse_amount, parse_share
from stages.specfile import Spec, load_spec

_BOUND = re.compile(r"(>=|<=|>|<)\s*(\S+)|(\S+)\s*\+-\s*(\S+)")


class Bound(Spec):
    """What an expectation says about a number: an interval with both ends included unless `open`."""

    text: str
    low: Fraction | None
    high: Fraction | None
    open: bool

    def holds(self, value: Fraction) -> bool:
        """Whether the value lies in the interval."""
        if self.open:
            return (self.low is None or value > self.low) and (self.high is None or value < self.high)
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


def _number(text: str) -> Fraction:
    try:
        return parse_share(text)
    except ValueError:
        return Fraction(parse_amount(text))


def _parse_bound(value: Any) -> Bound:
    if isinstance(value, Bound):
        return value
    match = _BOUND.fullmatch(str(value).strip())
    if match is None:
        raise ValueError(f"{value!r} is not a bound; write '>= 50%', '<= 3' or '25% +- 0.1%'")
    if match[1]:
        number = _number(match[2])
        low, high = (number, None) if match[1][0] == ">" else (None, number)
        return Bound(text=str(value), low=low, high=high, open=len(match[1]) == 1)
    centre, margin = _number(match[3]), _number(match[4])
    return Bound(text=str(value), low=centre - margin, high=centre + margin, open=False)


BoundText = Annotated[
    Bound,
    BeforeValidator(_parse_bound),
    PlainSerializer(lambda b: b.text, return_type=str),
    WithJsonSchema({"type": "string", "description": "'>= 50%', '<= 3' or '25% +- 0.1%'."}),
]
SOURCE_FACTS = ("kept", "documents", "tokens")
DOMAIN_FACTS = ("share", "epochs", "sequences", "tokens")


class Expectation(Spec):
    """Something that must hold of the result, about one source or one domain; its name tells it apart when it fails.

    Of a source: `kept` (share of its readable documents that reach the store), `documents`, `tokens` (in the store).
    Of a domain: `share` (of the training sequences), `epochs`, `sequences`, `tokens` (of training).
    """

    name: str | None = None
    source: str | None = None
    domain: str | None = None
    kept: BoundText | None = None
    documents: BoundText | None = None
    share: BoundText | None = None
    epochs: BoundText | None = None
    sequences: BoundText | None = None
    tokens: BoundText | None = None

    @model_validator(mode="after")
    def _one_subject(self) -> "Expectation":
        if (self.source is None) == (self.domain is None):
            raise ValueError("an expectation is about one `source` or one `domain`")
        facts = SOURCE_FACTS if self.source is not None else DOMAIN_FACTS
        said = [f for f in dict.fromkeys(SOURCE_FACTS + DOMAIN_FACTS) if getattr(self, f) is not None]
        if len(said) != 1 or said[0] not in facts:
            raise ValueError(f"say exactly one of {', '.join(facts)} here")
        return self

    @property
    def fact(self) -> str:
        """Which number it is about."""
        return next(f for f in dict.fromkeys(SOURCE_FACTS + DOMAIN_FACTS) if getattr(self, f) is not None)

    @property
    def label(self) -> str:
        """The given name, or what it says."""
        subject = f"source {self.source}" if self.source is not None else f"domain {self.domain}"
        return self.name or f"{subject}: {self.fact} {getattr(self, self.fact).text}"


class DomainSpec(Spec):
    """A named set of cells with a weight."""

    cells: tuple[str, ...] = Field(min_length=1)
    weight: Share
    max_epochs: Share | None = Field(None, description="Most planned passes over the domain; default of the mixture.")


class PhaseSpec(Spec):
    """A share of the budget; its `weights`, when given, stand for all domains (one left out has none here)."""

    name: Name
    share: Share
    weights: dict[str, Share] | None = None


class MixtureSpec(Spec):
    """`mixtures/NAME.yaml`."""

    mixture: Name
    corpus: str = Field(description="The corpus spec, relative to this file.")
    seed: int = Field(0, ge=0)
    sequence_length: int = Field(ge=1)
    budget: Amount = Field(ge=1, description="Training tokens.")
    validation: Share = Field(Fraction(0), description="Share of the documents held out, chosen by id.")
    domains: dict[Name, DomainSpec] = Field(min_length=1)
    phases: tuple[PhaseSpec, ...] = Field((), description="Default: one phase, main, of the whole budget.")
    max_epochs: Share = Field(Fraction(4), description="For domains that say nothing else.")
    on_shortfall: Literal["error"] = "error"
    normalize: bool = Field(False, description="Scale weights and shares that do not sum to 1.")
    expect: tuple[Expectation, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> "MixtureSpec":
        if self.budget < self.sequence_length:
            raise ValueError(f"budget: {self.budget} tokens are less than one sequence of {self.sequence_length}")
        if self.validation >= 1:
            raise ValueError(f"validation: {self.validation} leaves nothing to train on; write a share such as 0.5%")
        for phase in self.phases:
            for name in phase.weights or {}:
                if name not in self.domains:
                    raise ValueError(
                        f"phases: {phase.name} weighs {name!r}, which is no domain; the domains are "
                        f"{', '.join(sorted(self.domains))}"
                    )
        seen: dict[str, str] = {}
        for name, domain in self.domains.items():
            for cell in domain.cells:
                if cell in seen:
                    raise ValueError(
                        f"domains: the cell {cell} is in {seen[cell]} and in {name}; a cell has one domain"
                    )
                seen[cell] = name
        return self

    def phase_list(self) -> list[tuple[str, Fraction, dict[str, Fraction]]]:
        """Name, share and weights by domain of every phase, as asked.

        Raises UserError, printing the sum, when shares or a phase's weights do not sum to 1 and `normalize` is off.
        """
        base = {name: d.weight for name, d in self.domains.items()}
        phases = [(p.name, p.share, dict(p.weights) if p.weights is not None else base) for p in self.phases]
        phases = phases or [("main", Fraction(1), base)]
        self._check_sum("the shares of the phases", sum((share for _, share, _ in phases), Fraction(0)))
        for name, _, weights in phases:
            self._check_sum(f"the weights of phase {name}", sum(weights.values(), Fraction(0)))
        return [
            (name, share, {d: weights.get(d, Fraction(0)) for d in sorted(self.domains)})
            for name, share, weights in phases
        ]

    def _check_sum(self, what: str, total: Fraction) -> None:
        if total == 0:
            raise UserError(f"mixture {self.mixture}: {what} are all zero")
        if total != 1 and not self.normalize:
            raise UserError(
                f"mixture {self.mixture}: {what} sum to {_decimal(total)}, not 1; mend them, or say `normalize: true` "
                "to have them scaled"
            )


def _decimal(value: Fraction) -> str:
    """A fraction of decimals, written out exactly."""
    text = f"{value.numerator / value.denominator:.12g}"
    return text if Fraction(text) == value else f"{value} ({text})"


def load_mixture(path: Path) -> tuple[MixtureSpec, CorpusSpec, Path]:
    """A mixture spec, its corpus spec, and the folder of the corpus spec, to which its paths are relative.

    Raises UserError with file, line and key for every mistake.
    """
    mixture = load_spec(path, MixtureSpec)
    corpus_path = resolve(path.parent, mixture.corpus)
    corpus = load_spec(corpus_path, CorpusSpec)
    for name, domain in mixture.domains.items():
        for cell in domain.cells:
            if cell not in corpus.sources:
                raise UserError(
                    f"{path}: domains.{name}.cells: {cell!r} is no cell of {corpus_path}; "
                    f"the cells are {', '.join(sorted(corpus.sources))}"
                )
    for expectation in mixture.expect:
        _check_subject(path, expectation, mixture, corpus)
    mixture.phase_list()
    return mixture, corpus, corpus_path.parent


def _check_subject(path: Path, expectation: Expectation, mixture: MixtureSpec, corpus: CorpusSpec) -> None:
    known = corpus.sources if expectation.source is not None else mixture.domains
    subject = expectation.source or expectation.domain
    if subject not in known:
        raise UserError(
            f"{path}: expect: {expectation.label}: there is no {subject!r}; there are {', '.join(sorted(known))}"
        )
