from math import exp, isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixer.advice import DECAY, effective_tokens, repetition_advice


@pytest.mark.parametrize("tokens", [0, 1, 500, 1000])
def test_up_to_one_epoch_tokens_are_worth_themselves(tokens: int) -> None:
    assert effective_tokens(1000, tokens) == tokens
    assert "nothing repeats" in repetition_advice(1000, tokens)


def test_by_the_formula() -> None:
    """At R* repetitions the repeated tokens are worth 1 - 1/e of fresh ones; 4 epochs are 95% of fresh (paper,
    figure 1: close to fresh), 60 are near the limit of 1 + R*."""
    assert isclose(effective_tokens(10**6, 16_387_756), 10**6 * (1 + DECAY * (1 - exp(-1))))
    assert round(effective_tokens(100, 400), 1) == 372.6
    assert round(effective_tokens(100, 6000) / 100, 2) == 16.06


@given(unique=st.integers(1, 10**13), tokens=st.integers(0, 10**15), more=st.integers(1, 10**15))
def test_never_more_than_the_tokens_and_never_less_for_more(unique: int, tokens: int, more: int) -> None:
    worth = effective_tokens(unique, tokens)
    assert worth <= tokens * (1 + 1e-12)
    assert worth * (1 - 1e-12) <= effective_tokens(unique, tokens + more) <= unique * (1 + DECAY) * (1 + 1e-12)


def test_advice() -> None:
    assert repetition_advice(0, 0) == "0.00 epochs: nothing repeats"
    assert repetition_advice(1000, 3000) == "3.0 epochs: worth about 2.9 epochs of fresh tokens (96%)"
    assert repetition_advice(1000, 6700) == (
        "6.7 epochs: worth about 5.8 epochs of fresh tokens (86%); a further pass would add about 0.67"
    )
    step = effective_tokens(1000, 7700) - effective_tokens(1000, 6700)
    assert f"{step / 1000:.2f}" == "0.67"


@pytest.mark.parametrize(("unique", "tokens"), [(0, 5), (-1, 0), (5, -1)])
def test_impossible_counts(unique: int, tokens: int) -> None:
    with pytest.raises(ValueError, match=str(tokens)):
        effective_tokens(unique, tokens)
