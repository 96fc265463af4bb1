"""Resemblance and containment of two sets as exact ratios, and their comparison with an exact threshold.

A ratio is a pair of ``int64`` arrays, numerator and denominator. All decisions are on whole numbers, so none depends
on how a float was rounded.
"""

from fractions import Fraction

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]

LARGEST_DENOMINATOR = 10**6
"""Of a threshold; with sets below 2^42 no product overflows."""


def resemblance(common: Numbers, size_a: Numbers, size_b: Numbers) -> tuple[Numbers, Numbers]:
    """|A ∩ B| and |A ∪ B|, the Jaccard similarity (Broder 1997, section 2). Two empty sets give 0/0."""
    return common, size_a + size_b - common


def containment(common: Numbers, size_a: Numbers, size_b: Numbers) -> tuple[Numbers, Numbers]:
    """|A ∩ B| and the size of the smaller set: how much of it the larger one contains (after Broder 1997, section 2,
    who names the container). It is at least the resemblance. An empty set gives 0/0.
    """
    return common, np.minimum(size_a, size_b)


def reaches(numerator: Numbers, denominator: Numbers, threshold: Fraction) -> npt.NDArray[np.bool_]:
    """``bool[n]``: whether numerator / denominator >= threshold; never for 0/0, which says nothing.

    Raises ValueError unless the threshold is above 0, at most 1, and a fraction with a denominator of at most
    `LARGEST_DENOMINATOR`.
    """
    if not 0 < threshold <= 1 or threshold.denominator > LARGEST_DENOMINATOR:
        raise ValueError(f"threshold {threshold}: above 0, at most 1, denominator at most {LARGEST_DENOMINATOR}")
    reached: npt.NDArray[np.bool_] = numerator * threshold.denominator >= denominator * threshold.numerator
    return reached & (denominator > 0)
