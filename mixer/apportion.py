"""Weights into integers by largest remainder (Hamilton's method), on exact fractions."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from numbers import Rational


def apportion(total: int, weights: Mapping[str, Fraction]) -> dict[str, int]:
    """Share `total` sequences among named domains in proportion to their weights.

    Every domain gets its quota `total * weight / sum(weights)` rounded down or up, and the counts add up to
    `total`. The sequences left after rounding down go to the largest remainders; equal remainders go to the
    smaller name. A domain of weight 0 gets 0; a positive weight can also get 0 when its quota is below one,
    which the caller has to look for. The result has the keys of `weights` in their order, and its values do
    not depend on that order.

    Raises ValueError when `total` or a weight is negative or no weight is positive, TypeError for a weight
    that is not an exact rational (a float or a Decimal).
    """
    names = sorted(weights)
    counts = dict(zip(names, _largest_remainder(total, [weights[n] for n in names], names), strict=True))
    return {name: counts[name] for name in weights}


def split_phases(sequences: int, shares: Sequence[Fraction]) -> list[int]:
    """Share a budget of `sequences` among phases by largest remainder.

    Equal remainders go to the earlier phase. Shares are normalised by their exact sum. Raises as `apportion`
    does.
    """
    return _largest_remainder(sequences, shares, [f"phase {i}" for i in range(len(shares))])


def _largest_remainder(total: int, weights: Sequence[Fraction], labels: Sequence[str]) -> list[int]:
    if total < 0:
        raise ValueError(f"cannot share {total} sequences: the total must not be negative")
    for label, weight in zip(labels, weights, strict=True):
        if not isinstance(weight, Rational):
            raise TypeError(f"weight of {label} is {weight!r}: give an exact Fraction, not {type(weight).__name__}")
        if weight < 0:
            raise ValueError(f"weight of {label} is {weight}: weights must not be negative")
    whole = sum(weights, Fraction(0))
    if whole == 0:
        raise ValueError("the weights sum to zero: at least one must be positive")
    quotas = [total * Fraction(weight) / whole for weight in weights]
    counts = [quota.numerator // quota.denominator for quota in quotas]
    by_remainder = sorted(range(len(quotas)), key=lambda i: (counts[i] - quotas[i], i))
    for i in by_remainder[: total - sum(counts)]:
        counts[i] += 1
    return counts
