"""Amounts and shares are exact, or refused."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.quantity import SUFFIXES, format_amount, format_share, parse_amount, parse_share


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", 0),
        ("2048", 2048),
        (2048, 2048),
        ("20M", 20_000_000),
        ("1.5T", 1_500_000_000_000),
        (" 3 K ", 3000),
        ("1_000", 1000),
        ("2G", 2 * 10**9),
        ("0.1K", 100),
    ],
)
def test_amounts(text, amount):
    assert parse_amount(text) == amount


def test_amounts_above_2_to_53_keep_every_digit():
    assert parse_amount("9007.199254740993T") == 9007199254740993
    assert parse_amount("9007199254740993") == 9007199254740993


@pytest.mark.parametrize(
    "text", ["", "-1", "1e6", "20m", "1.2.3", "1.5", "M", "٣", "0x10", True, 2.0, None, [], "1 MB"]
)
def test_what_is_no_amount(text):
    with pytest.raises(ValueError, match="amount|whole"):
        parse_amount(text)


@given(st.integers(0, 10**15), st.sampled_from(sorted(SUFFIXES)))
def test_suffixes_multiply(number, suffix):
    assert parse_amount(f"{number}{suffix}") == number * SUFFIXES[suffix]


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("0.1", Fraction(1, 10)),
        ("1/3", Fraction(1, 3)),
        ("12.5%", Fraction(1, 8)),
        ("1/2%", Fraction(1, 200)),
        ("1e-9", Fraction(1, 10**9)),
        ("0", Fraction(0)),
        (1, Fraction(1)),
        (Fraction(2, 7), Fraction(2, 7)),
    ],
)
def test_shares(text, share):
    assert parse_share(text) == share


def test_a_tenth_is_not_the_float():
    assert parse_share("0.1") == Fraction(1, 10) != Fraction(0.1)
    assert sum([parse_share("0.1")] * 10) == 1


@pytest.mark.parametrize("text", ["", "-0.1", "0,5", "1/0", "nan", "inf", ".5", "50 percent", 0.1, True, None])
def test_what_is_no_share(text):
    with pytest.raises(ValueError, match="not an exact share"):
        parse_share(text)


@given(st.integers(0, 10**9), st.integers(0, 12))
def test_decimals_are_exact(digits, places):
    text = f"{digits:0{places + 1}d}"
    text = f"{text[: len(text) - places]}.{text[len(text) - places :]}" if places else text
    assert parse_share(text) == Fraction(digits, 10**places)
    assert parse_share(text + "%") == Fraction(digits, 10**places * 100)


def test_formats():
    assert [format_amount(n) for n in (812, 20_000_000, 1_500_000_000_000, 1000)] == ["812", "20.0M", "1.50T", "1.00K"]
    assert format_share(Fraction(1, 4)) == "25.00%"
    assert format_share(Fraction(1, 3), 0) == "33%"
