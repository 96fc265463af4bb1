"""The word definition `unicode-words-1`: a kernel that finds words in UTF-8 and the same in plain Python.

Published thresholds on words mean little without a definition of a word, so ours has a name that goes into
recipes:

- A word starts with a letter or number of any script and goes on over letters, numbers and combining marks.
  All other characters separate words, so punctuation alone is never a word; a combining mark without a base
  separates too.
- One joiner between two word characters stays in the word: ' ’ (don't, l’homme), _ (snake_case), middle dot
  (col·lega), geresh and gershayim, soft hyphen, zero width joiner and non-joiner. A joiner at the edge
  (_name, dogs') stays out. A hyphen cuts: "well-known" is two words, as are "3.14" and "and/or".
- Scripts written without spaces (Han, Kana, Bopomofo, Thai, Lao, Khmer, Myanmar, Javanese, Tangut, ...; the
  blocks are in `make_classes.UNSPACED_BLOCKS`) form runs of their own, cut from the left in pieces of `PIECE`
  characters, never before a combining mark. So word counts and mean word lengths keep the sense of rules made
  for spaced scripts.

Words keep their case. Classes are those of Unicode `classes.UNICODE`, whatever the Python.
"""

import re

import numpy as np
import numpy.typing as npt
from numba import njit

from stages.kernels.classes import ASCII, BLOCK, BLOCK_OF, BLOCKS, JOINER, KIND, LETTER, MARK, UNSPACED, class_of
from stages.kernels.text import ASCII_DIGITS, ASCII_PLACES, Bytes, Int, decode, digest_power, join_digests, reduce

WORDS = "unicode-words-1"
"""Name of the word definition, for recipes and manifests."""

PIECE = 4
"""Characters in a word of a script without spaces (more where combining marks follow, fewer at the end of a
run).
"""

_KIND_LETTERS = "OLMUJTWC"
_WORD = re.compile(rf"L(?:[LM]|J(?=[LM]))*|U[UM]{{0,{PIECE - 1}}}M*")


def classes_of(text: str) -> npt.NDArray[np.uint8]:
    """Class byte of every character of `text` (uint8, shape (len(text),))."""
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32).astype(np.int64)
    found: npt.NDArray[np.uint8] = BLOCKS[BLOCK_OF[codes // BLOCK].astype(np.int64) * BLOCK + codes % BLOCK]
    return found


def kinds_of(text: str) -> str:
    """One letter a character of `text`, its kind: O, L, M, U, J, T, W or C in the order of `classes`."""
    return (classes_of(text) & KIND).tobytes().translate(_KIND_LETTERS.encode().ljust(256, b"?")).decode()


def split(text: str) -> list[str]:
    """The words of `text`, in plain Python: the definition that tests hold the kernel against."""
    return [text[word.start() : word.end()] for word in _WORD.finditer(kinds_of(text))]


@njit(cache=True, nogil=True)
def scan_word(data: Bytes, at: Int, stop: Int) -> tuple[Int, Int, Int, Int, np.uint64]:
    """Read the word that starts at byte `at`, where a LETTER or UNSPACED character must stand.

    Returns the byte after the word, its length in characters, the OR and the AND of its classes, and its
    digest (see `text.join_digests`).
    """
    code, at = decode(data, at, stop)
    found = np.int64(class_of(code))
    unspaced = found & KIND == UNSPACED
    some = found
    every = found
    chars = 1
    digest = np.uint64(code + 1)
    while not unspaced and at < stop and chars < ASCII_PLACES:
        byte = data[at]
        if byte >= 0x80:
            break
        found = np.int64(ASCII[byte])
        kind = found & KIND
        if kind != LETTER:
            if kind == JOINER:
                break
            return at, chars, some, every, digest
        some |= found
        every &= found
        digest = reduce(digest + ASCII_DIGITS[chars, byte])
        chars += 1
        at += 1
    while at < stop:
        code, after = decode(data, at, stop)
        found = np.int64(class_of(code))
        kind = found & KIND
        if kind == LETTER:
            if unspaced:
                break
        elif kind == UNSPACED:
            if not unspaced or chars >= PIECE:
                break
        elif kind == JOINER:
            if unspaced or after >= stop:
                break
            following = class_of(decode(data, after, stop)[0]) & KIND
            if following != LETTER and following != MARK:
                break
        elif kind != MARK:
            break
        some |= found
        every &= found
        digest = join_digests(digest, digest_power(chars), np.uint64(code + 1))
        chars += 1
        at = after
    return at, chars, some, every, digest


@njit(cache=True, nogil=True)
def word_spans(data: Bytes, start: Int, stop: Int, spans: npt.NDArray[np.int64]) -> Int:
    """Write (first byte, byte after) of each word of data[start:stop] to `spans`, return the number of words.

    `spans` is int64 of shape (n, 2); n = (stop - start + 1) // 2 + 1 always suffices, since words in spaced
    scripts are apart and pieces of unspaced scripts have three bytes.
    """
    count = 0
    at = start
    while at < stop:
        code, after = decode(data, at, stop)
        kind = class_of(code) & KIND
        if kind in (LETTER, UNSPACED):
            after = scan_word(data, at, stop)[0]
            spans[count, 0] = at
            spans[count, 1] = after
            count += 1
        at = after
    return count


@njit(cache=True, nogil=True)
def word_digest(data: Bytes, start: Int, stop: Int) -> np.uint64:
    """Digest of the text data[start:stop], equal to the one `scan_word` gives for a word of the same
    characters.
    """
    digest = np.uint64(0)
    chars = 0
    while start < stop:
        code, start = decode(data, start, stop)
        digest = join_digests(digest, digest_power(chars), np.uint64(code + 1))
        chars += 1
    return digest
