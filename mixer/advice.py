"""What repeated tokens are worth: advice for people, never part of a plan."""

from fractions import Fraction
from math import exp, expm1

DECAY = 15.387756
"""Repetitions after which repeated tokens were worth 1 - 1/e of fresh ones on average: R_D* of Muennighoff et al.
2023, "Scaling Data-Constrained Language Models", arXiv:2305.16264, appendix A (fitted on 182 runs of 7M to 9B
parameters and up to 500 epochs)."""
NEGLIGIBLE = 4
"""Epochs up to which the same paper (abstract) found next to no difference from fresh tokens."""


def effective_tokens(unique: int, tokens: int) -> float:
    """How many fresh tokens `tokens` drawn from `unique` ones are worth, in tokens.

    D' = U + U * R* * (1 - exp(-R / R*)) with U the unique tokens that are used, R = tokens / U - 1 repetitions and
    R* = `DECAY` (arXiv:2305.16264, section 3.1). Up to one epoch they are worth themselves; the limit is
    16.4 epochs, which says that more never hurts. Later work finds that it does (arXiv:2605.01640), so take a value
    beyond a few epochs as a bound from above.

    Raises ValueError for negative counts, and for tokens drawn from none.
    """
    if unique < 0 or tokens < 0 or (tokens and not unique):
        raise ValueError(f"{tokens} tokens cannot be drawn from {unique}")
    if tokens <= unique:
        return float(tokens)
    repetitions = float(Fraction(tokens, unique) - 1)
    return unique - unique * DECAY * expm1(-repetitions / DECAY)


def repetition_advice(unique: int, tokens: int) -> str:
    """A line about the planned passes over a domain: `6.7 epochs: worth about 5.8 epochs of fresh tokens (86%); a
    further pass would add about 0.67`. Raises as `effective_tokens` does."""
    worth = effective_tokens(unique, tokens)
    if tokens <= unique:
        return f"{_short(tokens, unique)} epochs: nothing repeats"
    text = f"{_short(tokens, unique)} epochs: worth about {worth / unique:.1f} epochs of fresh tokens"
    text += f" ({100 * worth / tokens:.0f}%)"
    if tokens <= NEGLIGIBLE * unique:
        return text
    step = -DECAY * expm1(-1 / DECAY) * exp(-float(Fraction(tokens, unique) - 1) / DECAY)
    return f"{text}; a further pass would add about {step:.2f}"


def _short(tokens: int, unique: int) -> str:
    epochs = tokens / unique if unique else 0.0
    return f"{epochs:.1f}" if epochs >= 1 else f"{epochs:.2f}"
