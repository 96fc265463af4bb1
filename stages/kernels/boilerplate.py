"""The line rules of C4, as a verdict on one line.

Raffel et al. 2020 (https://jmlr.org/papers/v21/20-074.html, section 2.2) name the rules; order, phrases and
the citation pattern follow datatrove 0.10.1 and the code of C4 that it cites.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from stages.kernels.classes import DECIMAL, class_of
from stages.kernels.text import Bytes, Int, decode


class LineRules(NamedTuple):
    """Which lines C4 leaves; -1 turns a number off."""

    min_words: int
    max_word_length: int
    remove_citations: bool
    terminal_punctuation: bool
    javascript: bool
    policy: bool


KEPT, LONG_WORD, NO_TERMINAL, FEW_WORDS, JAVASCRIPT, POLICY = range(6)
"""Verdicts on a line: kept, or the first rule that removes it."""

LOREM_IPSUM, CURLY_BRACKET = 8, 16
"""Flags beside a verdict: what the line holds, when the rules before have not removed it."""

_PHRASES = (
    "javascript",
    "lorem ipsum",
    "terms of use",
    "privacy policy",
    "cookie policy",
    "uses cookies",
    "use of cookies",
    "use cookies",
)
_JAVASCRIPT_BIT, _LOREM_BIT, _POLICY_BITS = 1, 2, 0xFC
PHRASES = np.frombuffer("".join(_PHRASES).encode(), np.uint8).copy()
PHRASE_ENDS = np.cumsum([len(phrase) for phrase in _PHRASES])
_STARTS = np.zeros((3, 256), np.uint8)
for _number, _phrase in enumerate(_PHRASES):
    for _place in range(3):
        _STARTS[_place, [ord(_phrase[_place]), ord(_phrase[_place].upper())]] |= 1 << _number
_CITATIONS = (b"[edit]", b"[citation needed]")
_EDIT = np.frombuffer(_CITATIONS[0], np.uint8).copy()
_NEEDED = np.frombuffer(_CITATIONS[1], np.uint8).copy()


@njit(cache=True, nogil=True)
def _is_phrase(data: Bytes, at: Int, stop: Int, phrase: Int) -> bool:
    for place in range(0 if phrase == 0 else PHRASE_ENDS[phrase - 1], PHRASE_ENDS[phrase]):
        if at >= stop:
            return False
        wanted = PHRASES[place]
        byte = data[at]
        if 0x41 <= byte <= 0x5A:
            byte |= 0x20
        if byte == wanted:
            at += 1
        elif wanted == 0x6B and at + 2 < stop and byte == 0xE2 and data[at + 1] == 0x84 and data[at + 2] == 0xAA:
            at += 3  # U+212A, the Kelvin sign, is the one other character whose lower case is an ASCII letter
        else:
            return False
    return True


@njit(cache=True, nogil=True)
def find_phrases(data: Bytes, start: Int, stop: Int) -> tuple[Int, bool]:
    """Bits of the phrases found in data[start:stop] in any case, and whether a curly bracket opens there."""
    found = 0
    curly = False
    for at in range(start, stop):
        curly |= data[at] == 0x7B
    for at in range(start, stop - 2):
        candidates = _STARTS[0, data[at]] & _STARTS[1, data[at + 1]] & _STARTS[2, data[at + 2]]
        if candidates:
            for phrase in range(8):
                if (candidates >> phrase) & 1 and _is_phrase(data, at, stop, phrase):
                    found |= 1 << phrase
    return found, curly


@njit(cache=True, nogil=True)
def _starts_with(data: Bytes, at: Int, stop: Int, wanted: Bytes) -> bool:
    if at + wanted.size > stop:
        return False
    same = True
    for place in range(wanted.size):
        same = same and data[at + place] == wanted[place]
    return same


@njit(cache=True, nogil=True)
def citation_end(data: Bytes, at: Int, stop: Int) -> Int:
    """Byte after the citation mark that starts at byte `at` ([12], [], [edit], [citation needed]); `at` if
    none does.
    """
    if data[at] != 0x5B:
        return at
    if _starts_with(data, at, stop, _EDIT):
        return at + _EDIT.size
    if _starts_with(data, at, stop, _NEEDED):
        return at + _NEEDED.size
    after = at + 1
    while after < stop:
        if data[after] == 0x5D:
            return after + 1
        code, after = decode(data, after, stop)
        if not class_of(code) & DECIMAL:
            return at
    return at


@njit(cache=True, nogil=True)
def without_citations(data: Bytes, start: Int, stop: Int, line: Bytes) -> Int:
    """Copy data[start:stop] without citation marks to `line`, return its length in bytes."""
    length = 0
    while start < stop:
        after = citation_end(data, start, stop)
        if after > start:
            start = after
        else:
            line[length] = data[start]
            length += 1
            start += 1
    return length


@njit(cache=True, nogil=True)
def _ends_sentence(data: Bytes, start: Int, stop: Int) -> bool:
    if stop <= start:
        return False
    last = data[stop - 1]
    if last == 0x2E:
        return not (stop - start >= 3 and data[stop - 2] == 0x2E and data[stop - 3] == 0x2E)
    return last == 0x3F or last == 0x21 or last == 0x22 or last == 0x27


@njit(cache=True, nogil=True)
def judge_line(data: Bytes, start: Int, stop: Int, words: Int, longest: Int, rules: LineRules) -> Int:
    """Verdict on the stripped line data[start:stop], citations already removed, with flags (see `KEPT`).

    `words` are those between white space before citations were removed, `longest` the longest of them in
    characters.
    """
    if rules.max_word_length != -1 and longest > rules.max_word_length:
        return LONG_WORD
    if rules.terminal_punctuation and not _ends_sentence(data, start, stop):
        return NO_TERMINAL
    if words < rules.min_words:
        return FEW_WORDS
    found, curly = find_phrases(data, start, stop)
    flags = LOREM_IPSUM if found & _LOREM_BIT else 0
    if rules.javascript and found & _JAVASCRIPT_BIT:
        return flags | JAVASCRIPT
    if curly:
        flags |= CURLY_BRACKET
    if rules.policy and found & _POLICY_BITS:
        return flags | POLICY
    return flags | KEPT
