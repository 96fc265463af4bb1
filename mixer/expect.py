"""Expectations: what a spec says must hold of the result, and the check against the manifest's numbers."""

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema, model_validator

from stages.errors import UserError
from stages.quantity import parse_amount, parse_share
from stages.specfile import Spec

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


def check_expectations(expect: Sequence[Expectation], manifest: Mapping[str, Any]) -> None:
    """Raise UserError naming every expectation that does not hold, with the number that was found."""
    failed = []
    for expectation in expect:
        value = measured(expectation, manifest)
        if not getattr(expectation, expectation.fact).holds(value):
            failed.append(f"expectation failed: {expectation.label}: it is {_show(expectation, value)}")
    if failed:
        raise UserError("\n".join(failed))


def measured(expectation: Expectation, manifest: Mapping[str, Any]) -> Fraction:
    """The number that an expectation is about."""
    if expectation.source is not None:
        return _of_source(expectation.source, expectation.fact, manifest)
    realized = manifest["domains"][expectation.domain]["realized"]
    return Fraction(realized["weight" if expectation.fact == "share" else expectation.fact])


def _of_source(name: str, fact: str, manifest: Mapping[str, Any]) -> Fraction:
    stored = [sources[name] for sources in manifest["cells"].values() if name in sources]
    documents = sum(s["documents"] for s in stored)
    if fact == "tokens":
        return Fraction(sum(s["tokens"] for s in stored))
    if fact == "documents":
        return Fraction(documents)
    readable = manifest["sources"][name]["funnel"][0]["kept"]["documents"]
    return Fraction(documents, readable) if readable else Fraction(0)


def _show(expectation: Expectation, value: Fraction) -> str:
    if expectation.fact in ("kept", "share"):
        return f"{float(value) * 100:.4g}%"
    return f"{float(value):.4g}" if value.denominator != 1 else str(value)
