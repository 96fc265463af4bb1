"""Exact numbers as people write them in a spec: `20M`, `1.5T`, `0.25`, `12%`.

A spec's scalars reach these parsers as text, so nothing passes through a binary float on the way.
"""

import re
from fractions import Fraction
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

SUFFIXES = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "G": 10**9, "T": 10**12}
_AMOUNT = re.compile(r"([0-9][0-9_]*(?:\.[0-9]+)?)\s*([KMBGT]?)", re.ASCII)
_SHARE = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:[eE]-?[0-9]+)?|[0-9]+/[1-9][0-9]*)\s*(%?)", re.ASCII)


def parse_amount(value: Any) -> int:
    """A whole number of something (tokens, bytes, documents), with an optional decimal suffix K, M, B or G, T.

    Raises ValueError when the text is not of that form or does not come out whole.
    """
    match = _AMOUNT.fullmatch(str(value).strip())
    if match is None or isinstance(value, bool | float):
        raise ValueError(f"{value!r} is not an amount; write a whole number such as 2048, 20M or 1.5T")
    amount = Fraction(match[1].replace("_", "")) * SUFFIXES[match[2]]
    if amount.denominator != 1:
        raise ValueError(f"{value!r} is {float(amount)}, which is not a whole number")
    return int(amount)


def parse_share(value: Any) -> Fraction:
    """A non-negative exact decimal, fraction or percentage: `0.25`, `1/3`, `25%`, `1e-9`.

    Raises ValueError for anything else, also for a Python float, whose digits are not what somebody wrote.
    """
    if isinstance(value, Fraction):
        return value
    match = _SHARE.fullmatch(str(value).strip())
    if match is None or isinstance(value, bool | float):
        raise ValueError(f"{value!r} is not an exact share; write a decimal such as 0.25 or a percentage such as 25%")
    return Fraction(match[1]) / (100 if match[2] else 1)


def format_amount(amount: int) -> str:
    """A rounded amount for tables: `20.0M`, `1.50T`, `812`."""
    for suffix, factor in (("T", 10**12), ("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if amount >= factor:
            return f"{amount / factor:.2f}{suffix}" if amount < 10 * factor else f"{amount / factor:.1f}{suffix}"
    return str(amount)


def format_share(share: Fraction | float, digits: int = 2) -> str:
    """A share as a percentage for tables: `25.00%`."""
    return f"{float(share) * 100:.{digits}f}%"


Amount = Annotated[
    int,
    BeforeValidator(parse_amount),
    WithJsonSchema({"type": ["integer", "string"], "description": "A whole number, or one with K, M, B or T: 20M."}),
]
Share = Annotated[
    Fraction,
    BeforeValidator(parse_share),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": ["number", "string"], "description": "An exact decimal or a percentage: 0.25, 12%."}),
]
