"""The spec's expectations, checked against the manifest's numbers."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from mixer.spec import Expectation, MixtureSpec
from stages.errors import UserError


def check_expectations(spec: MixtureSpec, manifest: Mapping[str, Any]) -> None:
    """Raise UserError naming every expectation that does not hold, with the number that was found."""
    failed = []
    for expectation in spec.expect:
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
