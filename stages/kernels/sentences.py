"""The sentence definition `terminal-runs-1`: a kernel that counts sentences of a line and the same in plain
Python.

A sentence ends after a run of terminals (Unicode's Sentence_Terminal, see `make_classes.TERMINALS`) and
closing quotes or brackets that white space or the end of the line follows; after an East Asian wide
terminal (。！？) nothing need follow. Text behind the last terminal is a sentence of its own. So "3.14"
and "e.g.," hold no end and "Mr. Smith" holds one, which a trained splitter such as Punkt would not see;
a line never has fewer than one sentence.
"""

import re

import numpy as np
from numba import njit

from stages.kernels.classes import ASCII, CLOSER, KIND, SPACE, TERMINAL, WIDE_TERMINAL, class_of
from stages.kernels.text import Bytes, Int, decode
from stages.kernels.words import classes_of, kinds_of

SENTENCES = "terminal-runs-1"
"""Name of the sentence definition, for recipes and manifests."""

APOSTROPHES = (0x27, 0x2019)
"""Joiners inside a word that close a quotation after a terminal."""

_RUN = re.compile(r"[TW][TWC]*")


def spans(line: str) -> list[tuple[int, int]]:
    """(start, stop) of the sentences of one line in characters, in plain Python; spaces between them belong
    to none.
    """
    kinds = list(kinds_of(line))
    flags = classes_of(line)
    for at, character in enumerate(line):
        if flags[at] & SPACE:
            kinds[at] = "S"
        elif ord(character) in APOSTROPHES:
            kinds[at] = "C"
    marks = "".join(kinds)
    ends = [
        run.end()
        for run in _RUN.finditer(marks)
        if "W" in run.group() or run.end() == len(marks) or marks[run.end()] == "S"
    ]
    found = []
    start = 0
    for end in [*ends, len(line)]:
        body = marks[start:end]
        if body.strip("S"):
            found.append((start + len(body) - len(body.lstrip("S")), start + len(body.rstrip("S"))))
        start = end
    return found


@njit(cache=True, nogil=True)
def count_sentences(data: Bytes, start: Int, stop: Int) -> Int:
    """Sentences of the line data[start:stop], at least 1."""
    sentences = 0
    inside = False
    ended = False
    wide = False
    while start < stop:
        code = np.int64(data[start])
        if code < 0x80:
            found = ASCII[code]
            start += 1
        else:
            code, start = decode(data, start, stop)
            found = class_of(code)
        kind = found & KIND
        if found & SPACE:
            if ended:
                sentences += 1
                inside = False
            ended = False
        elif kind in (TERMINAL, WIDE_TERMINAL):
            wide = (ended and wide) or kind == WIDE_TERMINAL
            inside = True
            ended = True
        elif not (ended and (kind == CLOSER or code == 0x27 or code == 0x2019)):
            if ended and wide:
                sentences += 1
            inside = True
            ended = False
    if inside:
        sentences += 1
    return max(1, sentences)
