"""Strategies that turn the tokens of cells into weights, exact and the same on every machine.

Each takes the tokens of the cells by name, and its own settings as keywords; all but `from_table` return weights that
sum to exactly 1. None depends on the order of the cells. Logarithms and powers go through `decimal` at a fixed
precision, whose `ln` and `exp` are rounded correctly by definition, unlike those of binary floats.
"""

from collections.abc import Callable, Mapping
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from itertools import pairwise

from stages.errors import UserError

_EXACT = Context(prec=60, rounding=ROUND_HALF_EVEN, Emin=MIN_EMIN, Emax=MAX_EMAX)
_DIGITS = Context(prec=30, rounding=ROUND_HALF_EVEN, Emin=MIN_EMIN, Emax=MAX_EMAX)
_STEPS = 2**40
STEEPEST_EXPONENT = 10


def proportional(cells: Mapping[str, int]) -> dict[str, Fraction]:
    """Weights in proportion to tokens: every cell is seen equally often. Raises UserError when there are no tokens."""
    return _normalised({cell: Fraction(count) for cell, count in cells.items()})


def uniform(cells: Mapping[str, int]) -> dict[str, Fraction]:
    """The same weight for every cell, also for one without tokens, which a plan then refuses. Raises UserError when
    there is no cell."""
    return _normalised(dict.fromkeys(cells, Fraction(1)))


def temperature(cells: Mapping[str, int], *, t: Fraction) -> dict[str, Fraction]:
    """Weights in proportion to tokens to the power `t`: 1 is proportional, 0 uniform, 0.3 what XLM-R took.

    `t` is the exponent, the alpha of XLM-R (Conneau et al. 2020, arXiv:1911.02116, section 3.1). The T of T5 and
    mT5 (arXiv:1910.10683, section 3.5.2) is 1/t: write `t: 1/2` for T = 2. For `t` that is not whole, the ratios to
    the largest cell have 30 significant digits.

    Raises UserError when `t` is not in [0, 10], or without tokens.
    """
    if not 0 <= t <= STEEPEST_EXPONENT:
        raise UserError(f"temperature: t is {t}; write an exponent from 0 (uniform) over 1 (proportional) to 10")
    _require_tokens(cells)
    if t.denominator == 1:
        return _normalised({cell: Fraction(count) ** int(t) for cell, count in cells.items()})
    largest = Fraction(max(cells.values()))
    return _normalised({cell: Fraction(_DIGITS.plus(_power(count / largest, t))) for cell, count in cells.items()})


def unimax(cells: Mapping[str, int], *, budget: int, max_epochs: Fraction) -> dict[str, Fraction]:
    """As even as `max_epochs` allows: UniMax (Chung et al. 2023, arXiv:2304.09151, algorithm 1), exact.

    From the smallest cell to the largest, each takes an equal part of what is left of `budget` tokens, or
    `max_epochs` times its tokens if that is less.

    Raises UserError, with the largest budget, when all cells together cannot fill it, or for a budget below 1.
    """
    _require_budget("unimax", budget)
    _require_tokens(cells)
    left = Fraction(budget)
    taken = {}
    order = sorted(cells, key=lambda cell: (cells[cell], cell))
    for i, cell in enumerate(order):
        taken[cell] = min(left / (len(order) - i), max_epochs * cells[cell])
        left -= taken[cell]
    if left:
        _too_large("unimax", budget, max_epochs * sum(cells.values()), "raise max_epochs")
    return {cell: taken[cell] / budget for cell in cells}


def quality_curve(
    cells: Mapping[str, int],
    *,
    quality: Mapping[str, Fraction],
    budget: int,
    max_epochs: Fraction,
    drop: Fraction = Fraction(0),
    power: Fraction = Fraction(2),
) -> dict[str, Fraction]:
    """The better a cell, the more passes over it: a ramp over token quantiles, as for the web part of OLMo 3
    (arXiv:2512.13961), with a power alone as its shape.

    Cells stand in the order of their `quality`, higher is better, and those of equal quality count as one. The lowest
    `drop` share of all tokens is worth 0 passes. A token at quantile x in (0, 1] of the rest is worth C * x^p passes,
    and a cell the mean over its tokens. A cell from a to b therefore draws C * (b^(p+1) - a^(p+1)) / (p+1) of the kept
    tokens; over all cells that telescopes to C / (p+1), so its weight is b^(p+1) - a^(p+1), whatever C is. With
    `budget` tokens to draw, the passes over the best cell are budget * weight / tokens, and they rise with p. So p is
    the largest exponent up to `power` (to 12 digits, by bisection) at which they are at most `max_epochs`: the cap is
    reached, unless `power` comes first. The quantile powers have 30 decimals.

    Raises UserError when even p = 0, the same passes over all that is kept, exceeds `max_epochs`, saying the largest
    budget; when `drop` is not in [0, 1) or `power` is not in [0, 10]; and without tokens.
    """
    if not 0 <= drop < 1:
        raise UserError(f"quality_curve: drop is {drop}; write a share of the tokens from 0 to below 1")
    if not 0 <= power <= STEEPEST_EXPONENT:
        raise UserError(f"quality_curve: power is {power}; write the steepest exponent, from 0 (flat) to 10")
    _require_budget("quality_curve", budget)
    _require_tokens(cells)
    levels = sorted({quality[cell] for cell, count in cells.items() if count})
    level_tokens = {level: sum(cells[c] for c in cells if quality[c] == level) for level in levels}
    total, below = sum(level_tokens.values()), 0
    edges = [Fraction(0)]
    for level in levels:
        below += level_tokens[level]
        edges.append(max(Fraction(0), Fraction(below, total) - drop) / (1 - drop))

    def level_weights(step: int) -> list[Fraction]:
        """The weights of the levels at the exponent power * step / _STEPS."""
        raised = [_rounded_power(edge, 1 + power * Fraction(step, _STEPS)) for edge in edges]
        return [upper - lower for lower, upper in pairwise(raised)]

    best_tokens = level_tokens[levels[-1]]

    def fits(step: int) -> bool:
        best = 1 - _rounded_power(edges[-2], 1 + power * Fraction(step, _STEPS))
        return budget * best <= max_epochs * best_tokens

    if not fits(0):
        most = max_epochs * best_tokens / (1 - edges[-2])
        _too_large("quality_curve", budget, most, "raise max_epochs, or lower drop")
    low, high = 0, _STEPS + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    weight = dict(zip(levels, level_weights(low), strict=True))
    return {
        cell: weight[quality[cell]] * count / level_tokens[quality[cell]] if count else Fraction(0)
        for cell, count in cells.items()
    }


def from_table(cells: Mapping[str, int], *, values: Mapping[str, Fraction], origin: str) -> dict[str, Fraction]:
    """Weights that somebody else computed (`mixer.cells.read_column`), as they are: their sum is the caller's to check.

    Raises UserError, naming `origin`, when a cell has no weight there or a weight belongs to no cell.
    """
    missing = sorted(cells.keys() - values.keys())
    unknown = sorted(values.keys() - cells.keys())
    if missing:
        raise UserError(f"{origin}: no weight for {_listed(missing)}; add rows, with weight 0 if none is wanted")
    if unknown:
        raise UserError(f"{origin}: weights for {_listed(unknown)}, which are no cells here; remove the rows")
    return {cell: values[cell] for cell in cells}


STRATEGIES: dict[str, Callable[..., dict[str, Fraction]]] = {
    "proportional": proportional,
    "uniform": uniform,
    "temperature": temperature,
    "unimax": unimax,
    "quality_curve": quality_curve,
    "csv": from_table,
}
"""Strategies by the name that a mixture spec uses."""


def _normalised(weights: Mapping[str, Fraction]) -> dict[str, Fraction]:
    total = sum(weights.values(), Fraction(0))
    if not total:
        raise UserError(f"the cells {_listed(sorted(weights))} have no tokens to weigh")
    return {cell: weight / total for cell, weight in weights.items()}


def _require_tokens(cells: Mapping[str, int]) -> None:
    if not any(cells.values()):
        raise UserError(f"the cells {_listed(sorted(cells))} have no tokens to weigh")


def _require_budget(strategy: str, budget: int) -> None:
    if budget < 1:
        raise UserError(f"{strategy}: the budget of these cells is {budget} tokens; it must be at least 1")


def _too_large(strategy: str, budget: int, most: Fraction, else_do: str) -> None:
    raise UserError(
        f"{strategy}: {budget} tokens are more than max_epochs allows; ask for at most {most.__floor__()}, or {else_do}"
    )


def _power(base: Fraction, exponent: Fraction) -> Decimal:
    """`base` to a positive `exponent`, to 60 digits or so."""
    if not base:
        return Decimal(0)
    logarithm = _EXACT.ln(_EXACT.divide(Decimal(base.numerator), Decimal(base.denominator)))
    scale = _EXACT.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    return _EXACT.exp(_EXACT.multiply(logarithm, scale))


def _rounded_power(base: Fraction, exponent: Fraction) -> Fraction:
    """`base` in [0, 1] to `exponent`, exact for 1 and else to 30 decimals."""
    if exponent == 1 or base == 1:
        return base
    return Fraction(_power(base, exponent).quantize(Decimal("1e-30"), context=_EXACT))


def _listed(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
