"""From what a spec asks for to exact shares: groups flattened, cells chosen, asks turned into shares of every phase."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from mixer.cells import CellTable, select
from mixer.spec import DomainSpec, MixtureSpec, PhaseSpec, WeightsSpec
from mixer.weights import STRATEGIES
from stages.corpus import CorpusSpec
from stages.errors import UserError

Asked = tuple[tuple[str, Fraction, dict[str, Fraction]], ...]
"""For every phase: name, share of the run, and share of the phase by domain; both sum to 1."""
_SIZELESS = ("csv", "uniform")


@dataclass(frozen=True)
class Node:
    """A domain or a group. A leaf is a domain that sequences are drawn from; `spec` is None for a cell of `each`."""

    name: str
    spec: DomainSpec | None
    cells: tuple[str, ...]
    children: tuple["Node", ...]
    max_epochs: Fraction
    where: str

    @property
    def leaves(self) -> tuple["Node", ...]:
        return tuple(leaf for child in self.children for leaf in child.leaves) if self.children else (self,)


@dataclass(frozen=True)
class Domains:
    """The resolved domains of a mixture: the tree at the top, and its leaves in the order of their names."""

    spec: MixtureSpec
    table: CellTable
    top: tuple[Node, ...]

    @property
    def leaves(self) -> tuple[Node, ...]:
        return tuple(sorted((leaf for node in self.top for leaf in node.leaves), key=lambda n: n.name))


def cells_of_corpus(corpus: CorpusSpec) -> CellTable:
    """The cells that a corpus' store will have, with the columns a predicate may use; tokens are not known yet."""
    names = tuple(sorted(corpus.sources))
    columns = {
        "source": {name: name for name in names},
        "licence": {name: corpus.sources[name].licence for name in names},
    }
    return CellTable(names, dict.fromkeys(names, 0), columns)


def resolve_domains(spec: MixtureSpec, table: CellTable) -> Domains:
    """Choose the cells of every domain.

    Raises UserError when a pattern chooses nothing, a cell is in two domains, or two domains have one name.
    """
    top = tuple(
        _resolve(name, d, table, spec.max_epochs, f"domains.{name}") for name, d in sorted(spec.domains.items())
    )
    seen: dict[str, str] = {}
    names: dict[str, str] = {}
    for leaf in (leaf for node in top for leaf in node.leaves):
        if leaf.name in names:
            raise UserError(f"mixture {spec.mixture}: {leaf.where} and {names[leaf.name]} have one name; rename one")
        names[leaf.name] = leaf.where
        for cell in leaf.cells:
            if cell in seen:
                raise UserError(
                    f"mixture {spec.mixture}: the cell {cell} is in {seen[cell]} and in {leaf.where}; "
                    "a cell has one domain"
                )
            seen[cell] = leaf.where
    return Domains(spec, table, top)


def _resolve(name: str, spec: DomainSpec, table: CellTable, cap: Fraction, where: str) -> Node:
    cap = cap if spec.max_epochs is None else spec.max_epochs
    if spec.domains is not None:
        members = sorted(spec.domains.items())
        children = tuple(_resolve(n, d, table, cap, f"{where}.domains.{n}") for n, d in members)
        return Node(name, spec, (), children, cap, where)
    try:
        cells = select(table, spec.cells)
    except UserError as error:
        raise UserError(f"{where}.cells: {error}") from None
    if spec.each:
        children = tuple(Node(cell, None, (cell,), (), cap, f"{where} (cell {cell})") for cell in cells)
        return Node(name, spec, (), children, cap, where)
    return Node(name, spec, cells, (), cap, where)


def asked_shares(
    domains: Domains,
    phases: Sequence[PhaseSpec],
    budget: int,
    supply: Mapping[str, int] | None,
    consumed: Mapping[str, int] | None = None,
    scale: Fraction = Fraction(1),
) -> Asked:
    """What the spec asks for in the given phases of a budget in tokens. `supply`: unique training tokens by domain,
    None before the store is built; `consumed`: tokens already drawn, of an amended run; `scale`: the part of the spec's
    budget that a sample has, and so of the tokens that a domain asks for.

    Raises UserError, printing the sum, when shares or weights do not sum to 1 and `normalize` is off; and when an ask
    needs the supply.
    """
    spec = domains.spec
    phases = phases or (PhaseSpec(name="main", share=Fraction(1)),)
    lengths = _summing(spec, "the shares of the phases", {p.name: p.share for p in phases})
    if len(lengths) != len(phases):
        raise UserError(f"mixture {spec.mixture}: two phases have one name; rename one")
    top = [_top_shares(domains, p, budget, supply, consumed or {}, scale) for p in phases]
    budgets = dict.fromkeys((node.name for node in domains.top), Fraction(0))
    for phase, shares in zip(phases, top, strict=True):
        for name in budgets:
            budgets[name] += lengths[phase.name] * shares.get(name, Fraction(0)) * budget
    inner = {node.name: _inner(domains, node, budgets[node.name], supply) for node in domains.top}
    asked = []
    for phase, shares in zip(phases, top, strict=True):
        if phase.strategy is not None:
            flat = dict(shares)
        else:
            flat = {leaf: shares[node] * share for node, leaves in inner.items() for leaf, share in leaves.items()}
        asked.append((phase.name, lengths[phase.name], {leaf: flat[leaf] for leaf in sorted(flat)}))
    return tuple(asked)


def needs_supply(spec: MixtureSpec) -> bool:
    """Whether the shares depend on what the store holds, so that only a build can tell whether they sum to 1."""
    strategies = [spec.weights, *(phase.strategy for phase in spec.phases)]
    return any(s is not None and s.strategy not in _SIZELESS for s in strategies) or any(
        _domain_needs_supply(domain) for domain in spec.domains.values()
    )


def _domain_needs_supply(spec: DomainSpec) -> bool:
    strategy = spec.weights.strategy if spec.weights is not None else "proportional" if spec.each else "uniform"
    members = (spec.domains or {}).values()
    return spec.epochs is not None or strategy not in _SIZELESS or any(map(_domain_needs_supply, members))


def _top_shares(
    domains: Domains,
    phase: PhaseSpec,
    budget: int,
    supply: Mapping[str, int] | None,
    consumed: Mapping[str, int],
    scale: Fraction,
) -> dict[str, Fraction]:
    """Shares of one phase by name at the top; by leaf when the phase has a strategy."""
    spec = domains.spec
    if phase.strategy is not None:
        sizes = _sizes(domains.leaves, supply, f"phase {phase.name}", phase.strategy)
        what, cap = f"the weights of phase {phase.name}", spec.max_epochs
        return _strategy(domains, what, phase.strategy, sizes, budget, domains.leaves, cap)
    if spec.weights is not None and phase.weights is None:
        sizes = _sizes(domains.top, supply, "weights", spec.weights)
        return _strategy(domains, "the weights", spec.weights, sizes, budget, domains.top, spec.max_epochs)
    shares: dict[str, Fraction] = {}
    rest = []
    for node in domains.top:
        own = _spec_of(node)
        if own.rest:
            rest.append(node.name)
        elif own.tokens is not None or own.epochs is not None:
            drawn = sum(consumed.get(leaf.name, 0) for leaf in node.leaves)
            shares[node.name] = max(Fraction(0), _amount(node, supply, scale) - drawn) / budget
        elif phase.weights is not None:
            shares[node.name] = phase.weights.get(node.name, Fraction(0))
        elif own.weight is None:
            raise UserError(
                f"mixture {spec.mixture}: {node.where} asks for nothing; say one of weight, tokens, epochs and rest"
            )
        else:
            shares[node.name] = own.weight
    if phase.weights is not None:
        for name, share in phase.weights.items():
            if (name in shares and shares[name] != share) or name in rest:
                raise UserError(
                    f"mixture {spec.mixture}: phase {phase.name} weighs {name}, which asks for tokens, epochs or rest; "
                    "leave it out there"
                )
    return _with_rest(spec, f"the weights of phase {phase.name}", shares, rest)


def _with_rest(spec: MixtureSpec, what: str, shares: dict[str, Fraction], rest: list[str]) -> dict[str, Fraction]:
    if not rest:
        return _summing(spec, what, shares)
    if len(rest) > 1:
        raise UserError(f"mixture {spec.mixture}: {' and '.join(rest)} all ask for the rest; one can have it")
    left = 1 - sum(shares.values(), Fraction(0))
    if left < 0:
        raise UserError(f"mixture {spec.mixture}: {what} sum to {decimal(1 - left)} and leave nothing for {rest[0]}")
    return shares | {rest[0]: left}


def _inner(domains: Domains, node: Node, budget: Fraction, supply: Mapping[str, int] | None) -> dict[str, Fraction]:
    """Shares of a node by leaf. `budget`: the node's tokens over the run, for strategies that need it."""
    if not node.children:
        return {node.name: Fraction(1)}
    spec, own = domains.spec, _spec_of(node)
    if own.weights is not None or own.each:
        strategy = own.weights or WeightsSpec.model_validate({"strategy": "proportional"})
        if not budget and strategy.strategy in ("unimax", "quality_curve"):
            # Nothing of the group is asked for, so these, which divide a budget, have none to divide.
            strategy = WeightsSpec.model_validate({"strategy": "uniform"})
        sizes = _sizes(node.children, supply, node.where, strategy)
        what, cap = f"the weights of {node.where}", node.max_epochs
        weights = _strategy(domains, what, strategy, sizes, int(budget), node.children, cap)
    else:
        shares, rest = {}, []
        for child in node.children:
            wanted = _spec_of(child)
            if wanted.tokens is not None or wanted.epochs is not None:
                raise UserError(
                    f"mixture {spec.mixture}: {child.where} asks for an amount; inside a group say a weight"
                )
            if wanted.rest:
                rest.append(child.name)
            elif wanted.weight is None:
                raise UserError(f"mixture {spec.mixture}: {child.where} asks for nothing; say weight or rest")
            else:
                shares[child.name] = wanted.weight
        weights = _with_rest(spec, f"the weights of {node.where}", shares, rest)
    return {
        leaf: weights[child.name] * share
        for child in node.children
        for leaf, share in _inner(domains, child, budget * weights[child.name], supply).items()
    }


def _spec_of(node: Node) -> DomainSpec:
    if node.spec is None:
        raise UserError(f"{node.where}: a cell of `each` asks for nothing by itself; give the group `weights`")
    return node.spec


def _amount(node: Node, supply: Mapping[str, int] | None, scale: Fraction) -> Fraction:
    own = _spec_of(node)
    if own.tokens is not None:
        return own.tokens * scale
    if supply is None:
        raise UserError(_needs_store(f"{node.where}.epochs"))
    return (own.epochs or Fraction(0)) * sum(supply[leaf.name] for leaf in node.leaves)


def _needs_store(what: str) -> str:
    return f"{what}: needs the token counts of the store; build it with `mixer build SPEC --until store`"


def _sizes(nodes: Sequence[Node], supply: Mapping[str, int] | None, what: str, strategy: WeightsSpec) -> dict[str, int]:
    """Unique tokens of every node; zeros where they do not matter."""
    if supply is None:
        if strategy.strategy in _SIZELESS:
            return {node.name: 0 for node in nodes}
        raise UserError(_needs_store(f"{what}: {strategy.strategy}"))
    return {node.name: sum(supply[leaf.name] for leaf in node.leaves) for node in nodes}


def _strategy(
    domains: Domains,
    what: str,
    strategy: WeightsSpec,
    sizes: dict[str, int],
    budget: int,
    nodes: Sequence[Node],
    default_cap: Fraction,
) -> dict[str, Fraction]:
    cap = default_cap if strategy.max_epochs is None else strategy.max_epochs
    settings: dict[str, object] = {}
    if strategy.strategy == "temperature":
        settings = {"t": strategy.exponent}
    elif strategy.strategy == "unimax":
        settings = {"budget": budget, "max_epochs": cap}
    elif strategy.strategy == "quality_curve":
        quality = _quality(domains.table, strategy.column or "", nodes)
        settings = {
            "quality": quality,
            "budget": budget,
            "max_epochs": cap,
            "drop": strategy.drop,
            "power": strategy.power,
        }
    elif strategy.strategy == "csv":
        settings = {"values": strategy.values, "origin": str(Path(strategy.csv or "").name)}
    try:
        weights = STRATEGIES[strategy.strategy](sizes, **settings)
    except UserError as error:
        raise UserError(f"mixture {domains.spec.mixture}: {what}: {error}") from None
    return _summing(domains.spec, what, weights)


def _quality(table: CellTable, column: str, nodes: Sequence[Node]) -> dict[str, Fraction]:
    found = {}
    for node in nodes:
        values = set(table.numbers(column, [c for leaf in node.leaves for c in leaf.cells]).values())
        if len(values) != 1:
            raise UserError(f"{node.where}: its cells have {len(values)} values of {column}; a curve needs one each")
        found[node.name] = values.pop()
    return found


def _summing(spec: MixtureSpec, what: str, weights: Mapping[str, Fraction]) -> dict[str, Fraction]:
    """The weights, checked to sum to 1, or scaled to it when the spec asks for that."""
    total = sum(weights.values(), Fraction(0))
    if total == 0:
        raise UserError(f"mixture {spec.mixture}: {what} are all zero")
    if total != 1 and not spec.normalize:
        raise UserError(
            f"mixture {spec.mixture}: {what} sum to {decimal(total)}, not 1; mend them, or say `normalize: true` "
            "to have them scaled"
        )
    return {name: weight / total for name, weight in weights.items()}


def decimal(value: Fraction) -> str:
    """A fraction of decimals, written out exactly where 12 digits do."""
    text = f"{value.numerator / value.denominator:.12g}"
    return text if Fraction(text) == value else f"{value} ({text})"
