"""Character classes of every code point, fixed at Unicode 14.0.0 so that all Pythons cut the same words.

A class is one byte: a kind in the low three bits and flags above. The tables live in `classes.npz`, which
`make_classes` wrote once from `unicodedata`; a code point that Unicode 14 does not assign has class 0 and
cuts words.
"""

from pathlib import Path

import numpy as np
from numba import njit

UNICODE = "14.0.0"
"""Version of the Unicode Character Database behind the tables."""

BLOCK = 128
"""Code points in a block of the two-level table; block 0 is ASCII."""

KIND = 0x07
"""Mask of the kind: one of the eight values below."""
OTHER, LETTER, MARK, UNSPACED, JOINER, TERMINAL, WIDE_TERMINAL, CLOSER = range(8)
"""LETTER: letters and numbers of scripts with spaces. UNSPACED: letters of scripts without. MARK: combining
marks. JOINER: holds two word characters together. TERMINAL, WIDE_TERMINAL: end a sentence. CLOSER: closing
quote or bracket.
"""

ALPHABETIC = 0x08
"""Flag: a letter (general category L), as in `str.isalpha`."""
SPACE = 0x10
"""Flag: white space, as in `str.isspace`."""
BREAK = 0x20
"""Flag: ends a line, as in `str.splitlines`."""
PUNCTUATION = 0x40
"""Flag: may stand in a word but is in datatrove's `PUNCTUATION_SET`; see `PUNCTUATION_IN_WORDS`."""
DECIMAL = 0x80
"""Flag: a decimal digit of any script (general category Nd), as `\\d` in `re`."""

PUNCTUATION_IN_WORDS = "'’_\uff11"
"""Word characters that datatrove lists as punctuation; its list has the fullwidth digit one, so ours has it
too.
"""

_DATA = np.load(Path(__file__).with_name("classes.npz"))

BLOCK_OF = _DATA["block_of"]
"""uint16, shape (0x110000 / BLOCK,): number of the block that describes BLOCK code points."""
BLOCKS = _DATA["blocks"]
"""uint8: classes of all distinct blocks, one after the other."""
ASCII = BLOCKS[int(BLOCK_OF[0]) * BLOCK :][:BLOCK].copy()
"""uint8, shape (128,): classes of the ASCII characters."""
TERMINALS = _DATA["terminals"]
"""int32, ascending: the code points whose kind is TERMINAL or WIDE_TERMINAL."""


@njit(cache=True, nogil=True, forceinline=True)
def class_of(code: int) -> int:
    """Class of a code point (0 to 0x10FFFF)."""
    return BLOCKS[(np.int64(BLOCK_OF[code >> 7]) << 7) | (code & 127)]
