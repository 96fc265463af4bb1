"""The mixture spec: domains of cells and what each asks for, the budget, the phases, what must hold of the result."""

import hashlib
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from mixer.cells import read_column
from mixer.expect import Expectation
from stages.corpus import Name, resolve
from stages.quantity import Amount, Share
from stages.specfile import Spec, load_spec

PLAIN_STRATEGIES = ("proportional", "uniform", "unimax")
Predicate = dict[str, str | bool | list[str | bool | None] | None]
Cells = Annotated[tuple[str | Predicate, ...], BeforeValidator(lambda v: (v,) if isinstance(v, str | dict) else v)]
"""Names of cells, globs over names, or predicates over the columns of cells (`{quality: '>= 3'}`)."""


class WeightsSpec(Spec):
    """Where the weights of a group's members come from; see `mixer.weights` for what each strategy computes.

    `proportional`, `uniform`, `unimax`, `{unimax: {max_epochs: 4}}`, `{temperature: 0.7}`,
    `{quality_curve: {column: quality, drop: 40%, power: 2, max_epochs: 7}}` or `{csv: FILE, column: weight}`.
    `values` are a file's weights, filled in when the spec is read, so that a manifest holds what was used.
    """

    strategy: Literal["proportional", "uniform", "temperature", "unimax", "quality_curve", "csv"]
    exponent: Share | None = None
    max_epochs: Share | None = None
    column: str | None = None
    drop: Share = Field(Fraction(0), validate_default=True)
    power: Share = Field(Fraction(2), validate_default=True)
    csv: str | None = None
    key: str = "cell"
    values: dict[str, Share] | None = None
    sha256: str | None = None

    @model_validator(mode="after")
    def _settings(self) -> "WeightsSpec":
        needed = {"temperature": "exponent", "quality_curve": "column", "csv": "csv"}.get(self.strategy)
        if needed is not None and getattr(self, needed) is None:
            raise ValueError(f"{self.strategy} needs its {needed}")
        return self


def _is_strategy(value: Any) -> bool:
    """Whether a value under `weights` names a strategy, rather than giving weights by name."""
    if isinstance(value, str | WeightsSpec):
        return True
    if not isinstance(value, dict):
        return False
    return "strategy" in value or "csv" in value or (len(value) == 1 and next(iter(value)) in _SETTINGS)


_SETTINGS = {"temperature": "exponent", "unimax": None, "quality_curve": None}


def _parse_weights(value: Any) -> Any:
    if isinstance(value, str):
        if value not in PLAIN_STRATEGIES:
            choices = f"{', '.join(PLAIN_STRATEGIES)}, temperature, quality_curve and csv"
            raise ValueError(f"{value!r} is no strategy without settings; there are {choices}")
        return {"strategy": value}
    if isinstance(value, dict) and "csv" in value and "strategy" not in value:
        return {"strategy": "csv", **value}
    if isinstance(value, dict) and len(value) == 1 and next(iter(value)) in _SETTINGS:
        ((name, settings),) = value.items()
        if name == "temperature":
            return {"strategy": name, "exponent": settings}
        return {"strategy": name, **(settings or {})}
    return value


Weights = Annotated[
    WeightsSpec,
    BeforeValidator(_parse_weights),
    WithJsonSchema(
        {
            "anyOf": [{"enum": list(PLAIN_STRATEGIES)}, {"type": "object"}],
            "description": "A strategy, with its settings where it has some.",
        }
    ),
]


class DomainSpec(Spec):
    """A named set of cells, or a group of domains, and what it asks for: one of `weight`, `tokens`, `epochs`, `rest`.

    A group has `domains`, or `each: true`, which makes every cell a domain of its own, named like it. Weights inside a
    group are shares of the group and come from its members or from `weights`.
    """

    cells: Cells = ()
    domains: dict[Name, "DomainSpec"] | None = None
    each: bool = False
    weight: Share | None = Field(None, description="Share of the group, or of the run at the top.")
    tokens: Amount | None = Field(None, description="Tokens over the whole run; only at the top.")
    epochs: Share | None = Field(None, description="Passes over its unique tokens; only at the top.")
    rest: bool = Field(False, description="What the others leave.")
    weights: Weights | None = None
    max_epochs: Share | None = Field(None, description="Most planned passes; default of the group, then the mixture.")
    min_share: Share | None = Field(None, description="Least share of the run.")

    @model_validator(mode="after")
    def _one_kind(self) -> "DomainSpec":
        if (self.domains is None) == (not self.cells):
            raise ValueError("a domain has `cells`, a group has `domains`; say one of them")
        if self.weights is not None and not self.is_group:
            raise ValueError("`weights` are for a group; say `each: true` to weigh the cells one by one")
        if self.each and self.domains is not None:
            raise ValueError("`each` goes with `cells`")
        asks = [name for name in ("weight", "tokens", "epochs") if getattr(self, name) is not None]
        asks += ["rest"] if self.rest else []
        if len(asks) > 1:
            raise ValueError(f"asks for {' and '.join(asks)}; say one of weight, tokens, epochs and rest")
        if self.weights is not None and any(d.asks for d in (self.domains or {}).values()):
            raise ValueError("`weights` weigh all members of the group, and some say themselves what they ask for")
        if self.min_share is not None and self.is_group:
            raise ValueError("`min_share` is for a domain, not for a group")
        return self

    @property
    def is_group(self) -> bool:
        return self.domains is not None or self.each

    @property
    def asks(self) -> bool:
        """Whether it says itself what it wants."""
        return self.rest or any(v is not None for v in (self.weight, self.tokens, self.epochs))


class PhaseSpec(Spec):
    """A share of the budget. `weights`, when given, replace those of the top for this phase: shares by name (one left
    out gets none, `tokens`, `epochs` and `rest` keep what they ask for), or a strategy over all domains."""

    name: Name
    share: Share
    weights: dict[str, Share] | None = None
    strategy: Weights | None = None

    @model_validator(mode="before")
    @classmethod
    def _weights_or_strategy(cls, value: Any) -> Any:
        if isinstance(value, dict) and value.get("strategy") is None and _is_strategy(value.get("weights")):
            return {**{k: v for k, v in value.items() if k != "weights"}, "strategy": value["weights"]}
        return value

    @model_validator(mode="after")
    def _one_of_both(self) -> "PhaseSpec":
        if self.weights is not None and self.strategy is not None:
            raise ValueError("has `weights` by name and a `strategy`; say one of them")
        return self


class Amendment(Spec):
    """A change of the mixture in mid-run: from position `at` on other phases hold; what came before stays.

    `budget` is in tokens from there on (default: what is left), `sequence_length` that of the new sequences. `parent`
    is the root digest of the manifest that was amended.
    """

    at: int = Field(ge=1)
    phases: tuple[PhaseSpec, ...] = Field(min_length=1)
    sequence_length: int | None = Field(None, ge=1)
    budget: Amount | None = None
    reason: str = Field(min_length=1)
    parent: str


class MixtureSpec(Spec):
    """`mixtures/NAME.yaml`."""

    mixture: Name
    corpus: str | None = Field(None, description="The corpus spec, relative to this file.")
    cells: str | None = Field(None, description="Instead of a corpus: a CSV of cells and tokens, to plan without data.")
    seed: int = Field(0, ge=0)
    sequence_length: int = Field(ge=1)
    budget: Amount = Field(ge=1, description="Training tokens.")
    validation: Share = Field(Fraction(0), description="Share of the documents held out, chosen by id.")
    domains: dict[Name, DomainSpec] = Field(min_length=1)
    weights: Weights | None = Field(None, description="A strategy for the domains, instead of what each asks for.")
    phases: tuple[PhaseSpec, ...] = Field((), description="Default: one phase, main, of the whole budget.")
    max_epochs: Share = Field(Fraction(4), description="For domains that say nothing else.")
    on_shortfall: Literal["error", "redistribute", "repeat"] = "error"
    normalize: bool = Field(False, description="Scale weights and shares that do not sum to 1.")
    ladder: dict[Name, Amount] = Field(default_factory=dict, description="Smaller budgets by name.")
    expect: tuple[Expectation, ...] = ()
    amendments: tuple[Amendment, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> "MixtureSpec":
        if (self.corpus is None) == (self.cells is None):
            raise ValueError("a mixture names a `corpus`, or `cells` to plan without data; say one of them")
        if self.budget < self.sequence_length:
            raise ValueError(f"budget: {self.budget} tokens are less than one sequence of {self.sequence_length}")
        if self.validation >= 1:
            raise ValueError(f"validation: {self.validation} leaves nothing to train on; write a share such as 0.5%")
        for name, domain in self.domains.items() if self.weights is not None else ():
            if domain.asks:
                raise ValueError(
                    f"`weights` weigh all domains, and {name} says itself what it asks for; say one of both"
                )
        for rung, budget in self.ladder.items():
            if not self.sequence_length <= budget <= self.budget:
                raise ValueError(f"ladder: {rung}: {budget} tokens are not between one sequence and the budget")
        for phase in (*self.phases, *(p for a in self.amendments for p in a.phases)):
            for name in phase.weights or {}:
                if name not in self.domains:
                    raise ValueError(
                        f"phases: {phase.name} weighs {name!r}, which is no domain at the top; there are "
                        f"{', '.join(sorted(self.domains))}"
                    )
        return self


def load_mixture_spec(path: Path) -> MixtureSpec:
    """A mixture spec with the files of its weights read into it.

    Raises UserError with file, line and key for every mistake.
    """
    spec = load_spec(path, MixtureSpec)
    return MixtureSpec.model_validate(with_weight_files(spec.model_dump(), path.parent))


def load_phases(path: Path) -> dict[str, Any]:
    """The `phases` of an amendment, with `sequence_length` and `budget` where the file says them, as plain data."""
    return dict(with_weight_files(load_spec(path, PhasesFile).model_dump(exclude_none=True), path.parent))


class PhasesFile(Spec):
    """The file that `mixer amend --phases` reads."""

    phases: tuple[PhaseSpec, ...] = Field(min_length=1)
    sequence_length: int | None = Field(None, ge=1)
    budget: Amount | None = None


def with_weight_files(data: Any, base: Path) -> Any:
    """The plain data of a spec, every `csv` strategy without `values` completed from its file."""
    if isinstance(data, dict):
        data = {k: with_weight_files(v, base) for k, v in data.items()}
        if data.get("strategy") == "csv" and data.get("values") is None:
            file = resolve(base, data["csv"])
            values = read_column(file, data.get("column") or "weight", data["key"])
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            data |= {"values": values, "sha256": digest}
        return data
    if isinstance(data, list | tuple):
        return [with_weight_files(v, base) for v in data]
    return data
