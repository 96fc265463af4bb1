"""One pass over the bytes of a document: words, lines and marks, for all filter families together.

Two kinds of lines live side by side, since the published rules count differently: *lines* end at any break
that `str.splitlines` knows; *feed lines* are the text cut at runs of newlines.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from stages.kernels.boilerplate import (
    CURLY_BRACKET,
    KEPT,
    LOREM_IPSUM,
    LineRules,
    judge_line,
    without_citations,
)
from stages.kernels.classes import (
    ALPHABETIC,
    ASCII,
    BREAK,
    KIND,
    LETTER,
    PUNCTUATION,
    SPACE,
    UNSPACED,
    class_of,
)
from stages.kernels.repetition import (
    duplicate_grams,
    duplicate_lines,
    duplicate_paragraphs,
    top_grams,
)
from stages.kernels.scratch import AFTER, BREAKS, CHARACTERS_AFTER, FIRST, FIRST_CHARACTER, SOLID, Scratch
from stages.kernels.sentences import count_sentences
from stages.kernels.text import Bytes, Int, decode, first_slot, last_code
from stages.kernels.words import scan_word

Counts = npt.NDArray[np.int64]

COUNTERS = (
    "bytes",
    "chars",
    "words",
    "punctuation_words",
    "letter_chars",
    "alphabetic_words",
    "stop_words",
    "hashes",
    "ellipses",
    "newlines",
    "lines",
    "bullet_lines",
    "ellipsis_lines",
    "solid_feed_lines",
    "punctuated_feed_lines",
    "short_feed_lines",
    "feed_lines",
    "duplicate_feed_lines",
    "duplicate_feed_line_chars",
    "duplicate_solid_feed_line_chars",
    "paragraphs",
    "duplicate_paragraphs",
    "duplicate_paragraph_chars",
    *(f"top_{size}_gram_chars" for size in (2, 3, 4)),
    *(f"duplicate_{size}_gram_chars" for size in (5, 6, 7, 8, 9, 10)),
    "kept_lines",
    "long_word_lines",
    "no_terminal_lines",
    "few_words_lines",
    "javascript_lines",
    "policy_lines",
    "lorem_ipsum_lines",
    "curly_bracket_lines",
    "sentences",
)
"""Names of the columns of the counts, int64 each. `letter_chars` are the characters of words that are not
punctuation.
"""

(
    _BYTES,
    _CHARS,
    _WORDS,
    _PUNCTUATION_WORDS,
    _LETTER_CHARS,
    _ALPHABETIC_WORDS,
    _STOP_WORDS,
    _HASHES,
    _ELLIPSES,
    _NEWLINES,
    _LINES,
    _BULLET_LINES,
    _ELLIPSIS_LINES,
    _SOLID_FEED_LINES,
    _PUNCTUATED_FEED_LINES,
    _SHORT_FEED_LINES,
    _FEED_LINES,
) = range(17)
_PARAGRAPHS = COUNTERS.index("paragraphs")
_TOP = COUNTERS.index("top_2_gram_chars")
_DUPLICATE_GRAMS = COUNTERS.index("duplicate_5_gram_chars")
_KEPT_LINES = COUNTERS.index("kept_lines")
_LOREM_IPSUM_LINES = COUNTERS.index("lorem_ipsum_lines")
_SENTENCES = COUNTERS.index("sentences")


class Rules(NamedTuple):
    """What a caller wants counted, and the settings that change counts."""

    repetition: bool
    """Count duplicate paragraphs and n-grams."""
    duplicate_lines: bool
    feed_lines: bool
    """Count punctuated and short feed lines."""
    boilerplate: bool
    """Apply the line rules of C4."""
    stop_words: npt.NDArray[np.uint64]
    """Open-addressing table of word digests, size a power of two, 0 for free."""
    stop_chars: npt.NDArray[np.int32]
    """Code points that end a punctuated line, ascending."""
    short_line: int
    """Characters up to which a line is short."""
    line_rules: LineRules


@njit(cache=True, nogil=True)
def _ends_with_ellipsis(data: Bytes, start: Int, stop: Int) -> bool:
    if stop - start < 3:
        return False
    a, b, c = data[stop - 3], data[stop - 2], data[stop - 1]
    return (a == 0x2E and b == 0x2E and c == 0x2E) or (a == 0xE2 and b == 0x80 and c == 0xA6)


@njit(cache=True, nogil=True)
def _apply_line_rules(
    data: Bytes,
    span: tuple[Int, Int],
    tokens: Int,
    longest: Int,
    bracket: bool,
    rules: Rules,
    line: Bytes,
    counts: Counts,
) -> None:
    start, stop = span
    if bracket and rules.line_rules.remove_citations:
        stop = without_citations(data, start, stop, line)
        start = 0
        data = line
    verdict = judge_line(data, start, stop, tokens, longest, rules.line_rules)
    counts[_KEPT_LINES + (verdict & 7)] += 1
    if verdict & LOREM_IPSUM:
        counts[_LOREM_IPSUM_LINES] += 1
    if verdict & CURLY_BRACKET:
        counts[_LOREM_IPSUM_LINES + 1] += 1
    if verdict & 7 == KEPT:
        counts[_SENTENCES] += count_sentences(data, start, stop)


@njit(cache=True, nogil=True)
def _count_feed_lines(data: Bytes, feeds: Int, rules: Rules, scratch: Scratch, counts: Counts) -> None:
    for number in range(feeds):
        line = scratch.lines[number]
        if not line[SOLID]:
            continue
        counts[_SOLID_FEED_LINES] += 1
        if line[CHARACTERS_AFTER] - line[FIRST_CHARACTER] <= rules.short_line:
            counts[_SHORT_FEED_LINES] += 1
        code = last_code(data, line[FIRST], line[AFTER])
        place = np.searchsorted(rules.stop_chars, code)
        if place < rules.stop_chars.size and rules.stop_chars[place] == code:
            counts[_PUNCTUATED_FEED_LINES] += 1


@njit(cache=True, nogil=True)
def count_document(
    data: Bytes,
    start: Int,
    stop: Int,
    rules: Rules,
    scratch: Scratch,
    stop_word_seen: npt.NDArray[np.int64],
    document: Int,
    counts: Counts,
) -> None:
    """Count the document data[start:stop] into `counts`, a zeroed row of `COUNTERS`.

    `stop_word_seen` has a number for each slot of `rules.stop_words`, the last `document` in which the word
    stood.
    """
    at = start
    chars = 0
    words = 0
    feeds = 0
    feed_first = start
    feed_first_character = 0
    feed_solid = False
    line_first = start
    solid_first = -1
    solid_code: Int = 0
    solid_after = start
    solid_characters_after = 0
    body_first = -1
    body_first_character = 0
    tokens = 0
    token = 0
    longest = 0
    bracket = False
    dots = 0
    dot_expected = -1
    stop_mask = rules.stop_words.size - 1
    stop_bits = 0
    while (1 << stop_bits) <= stop_mask:
        stop_bits += 1
    scratch.reach[0] = 0
    while at <= stop:
        if at < stop:
            code: Int = np.int64(data[at])
            after = at + 1
            if code < 0x80:
                found: Int = np.int64(ASCII[code])
            else:
                code, after = decode(data, at, stop)
                found = np.int64(class_of(code))
        else:
            if line_first == stop:
                break
            code, after, found = 0x85, stop + 1, SPACE | BREAK
        if found & SPACE == 0:
            if solid_first < 0:
                solid_first = at
                solid_code = code
                if body_first < 0:
                    body_first = at
                    body_first_character = chars
            if token == 0:
                tokens += 1
            feed_solid = True
            kind = found & KIND
            if kind in (LETTER, UNSPACED):
                after, length, some, every, digest = scan_word(data, at, stop)
                scratch.digests[words] = digest
                words += 1
                scratch.reach[words] = scratch.reach[words - 1] + length
                if some & ALPHABETIC:
                    counts[_ALPHABETIC_WORDS] += 1
                if every & PUNCTUATION:
                    counts[_PUNCTUATION_WORDS] += 1
                else:
                    counts[_LETTER_CHARS] += length
                slot = first_slot(digest, stop_bits)
                while rules.stop_words[slot] != np.uint64(0):
                    if rules.stop_words[slot] == digest:
                        if stop_word_seen[slot] != document:
                            stop_word_seen[slot] = document
                            counts[_STOP_WORDS] += 1
                        break
                    slot = (slot + 1) & stop_mask
                chars += length
                token += length
            else:
                chars += 1
                token += 1
                if code == 0x2E:
                    dots = dots + 1 if at == dot_expected else 1
                    dot_expected = after
                    if dots == 3:
                        counts[_ELLIPSES] += 1
                        dots = 0
                elif code == 0x23:
                    counts[_HASHES] += 1
                elif code == 0x5B:
                    bracket = True
                elif code == 0x2026:
                    counts[_ELLIPSES] += 1
            solid_after = after
            solid_characters_after = chars
            at = after
            continue
        longest = max(longest, token)
        token = 0
        if found & BREAK:
            if not (code == 0x0A and at > start and data[at - 1] == 0x0D):
                counts[_LINES] += 1
                if solid_first >= 0:
                    if solid_code == 0x2022 or solid_code == 0x2D:
                        counts[_BULLET_LINES] += 1
                    if _ends_with_ellipsis(data, solid_first, solid_after):
                        counts[_ELLIPSIS_LINES] += 1
                if rules.boilerplate:
                    span = (solid_first, solid_after) if solid_first >= 0 else (at, at)
                    _apply_line_rules(data, span, tokens, longest, bracket, rules, scratch.line, counts)
            line_first = after
            solid_first = -1
            tokens = 0
            longest = 0
            bracket = False
            if code == 0x0A:
                counts[_NEWLINES] += 1
                if feeds > 0 and feed_first == at:
                    scratch.lines[feeds - 1, BREAKS] += 1
                else:
                    feed = scratch.lines[feeds]
                    feed[FIRST] = feed_first
                    feed[AFTER] = at
                    feed[FIRST_CHARACTER] = feed_first_character
                    feed[CHARACTERS_AFTER] = chars
                    feed[BREAKS] = 1
                    feed[SOLID] = feed_solid
                    feeds += 1
                feed_first = after
                feed_first_character = chars + 1
                feed_solid = False
        chars += after <= stop
        at = after
    if stop > start:
        feed = scratch.lines[feeds]
        feed[FIRST] = feed_first
        feed[AFTER] = stop
        feed[FIRST_CHARACTER] = feed_first_character
        feed[CHARACTERS_AFTER] = chars
        feed[BREAKS] = 0
        feed[SOLID] = feed_solid
        feeds += 1
    counts[_BYTES] = stop - start
    counts[_CHARS] = chars
    counts[_WORDS] = words
    counts[_FEED_LINES] = feeds
    if rules.feed_lines:
        _count_feed_lines(data, feeds, rules, scratch, counts)
    if rules.duplicate_lines:
        repeated, repeated_chars, solid_chars = duplicate_lines(data, feeds, scratch)
        counts[_FEED_LINES + 1] = repeated
        counts[_FEED_LINES + 2] = repeated_chars
        counts[_FEED_LINES + 3] = solid_chars
    if rules.repetition and stop > start:
        body = (body_first, solid_after, body_first_character, solid_characters_after)
        if body_first < 0:
            body = (start, start, 0, 0)
        paragraphs, repeated, repeated_chars = duplicate_paragraphs(data, feeds, body, scratch)
        counts[_PARAGRAPHS] = paragraphs
        counts[_PARAGRAPHS + 1] = repeated
        counts[_PARAGRAPHS + 2] = repeated_chars
        top_grams(words, scratch, counts[_TOP : _TOP + 3])
        duplicate_grams(words, scratch, counts[_DUPLICATE_GRAMS : _DUPLICATE_GRAMS + 6])


@njit(cache=True, nogil=True)
def count_documents(
    data: Bytes,
    offsets: npt.NDArray[np.int64],
    rules: Rules,
    scratch: Scratch,
    stop_word_seen: npt.NDArray[np.int64],
    counts: Counts,
) -> None:
    """Count every document of an Arrow text column into its row of `counts`, int64 zeros of (documents,
    `COUNTERS`).

    `offsets` are int64 of shape (documents + 1,); `stop_word_seen` is filled with -1.
    """
    for document in range(offsets.size - 1):
        count_document(
            data,
            offsets[document],
            offsets[document + 1],
            rules,
            scratch,
            stop_word_seen,
            document,
            counts[document],
        )
