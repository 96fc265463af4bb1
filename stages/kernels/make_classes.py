"""Write `classes.npz`, the character classes of `unicode-words-1`, from this Python's `unicodedata`.

Run once, with a Python whose `unicodedata.unidata_version` is the one named in `classes.UNICODE`:

    python -m stages.kernels.make_classes

The file is checked in, so a newer Python changes no word boundary. Tables of another Unicode version make
another word definition and need a new name beside `unicode-words-1`.
"""

import unicodedata
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stages.errors import UserError
from stages.kernels import classes

CODE_POINTS = 0x110000

UNSPACED_BLOCKS = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x1950, 0x19DF),  # Tai Le, New Tai Lue
    (0x1A20, 0x1AAF),  # Tai Tham
    (0x1B00, 0x1B7F),  # Balinese
    (0x2E80, 0x2FDF),  # CJK radicals
    (0x3005, 0x312F),  # Han iteration marks and numerals, Hiragana, Katakana, Bopomofo
    (0x31A0, 0x31FF),  # Bopomofo and Katakana extensions
    (0x3400, 0x4DBF),  # Han extension A
    (0x4E00, 0x9FFF),  # Han
    (0xA980, 0xA9FF),  # Javanese, Myanmar extended B
    (0xAA60, 0xAADF),  # Myanmar extended A, Tai Viet
    (0xF900, 0xFAFF),  # Han compatibility
    (0xFF66, 0xFF9F),  # halfwidth Katakana
    (0x16FE0, 0x18D8F),  # Tangut, Khitan
    (0x1AFF0, 0x1B2FF),  # Kana supplements, Nushu
    (0x20000, 0x3FFFD),  # Han extensions B and later
)
"""Blocks of scripts written without spaces between words; only their letters and letter numerals count."""

JOINERS = (0x27, 0x2019, 0x5F, 0xAD, 0xB7, 0x5F3, 0x5F4, 0x200C, 0x200D)
"""Apostrophes, underscore, soft hyphen, middle dot, geresh, gershayim, zero width non-joiner and joiner."""

TERMINALS = """
    21 2E 3F 589 61D-61F 6D4 700-702 7F9 837 839 83D-83E 964-965 104A-104B 1362 1367-1368 166E 1735-1736
    17D4-17D6 17D9-17DA 1803 1809 1944-1945 1AA8-1AAB 1B5A-1B5B 1B5E-1B5F 1B7D-1B7E 1C3B-1C3C 1C7E-1C7F
    203C-203D 2047-2049 2E2E 2E3C 2E53-2E54 3002 A4FF A60E-A60F A6F3 A6F7 A876-A877 A8CE-A8CF A92F
    A9C8-A9C9 AA5D-AA5F AAF0-AAF1 ABEB FE52 FE56-FE57 FF01 FF0E FF1F FF61 10A56-10A57 10F55-10F59
    10F86-10F89 11047-11048 110BE-110C1 11141-11143 111C5-111C6 111CD 111DE-111DF 11238-11239
    1123B-1123C 112A9 1144B-1144C 115C2-115C3 115C9-115D7 11641-11642 1173C-1173E 11944 11946
    11A42-11A43 11A9B-11A9C 11C41-11C42 11EF7-11EF8 11F43-11F44 16A6E-16A6F 16AF5 16B37-16B38 16B44
    16E98 1BC9F 1DA88
"""
"""Code points that end a sentence: Unicode's Sentence_Terminal as FineWeb-2 and datatrove use it (159 of
them).
"""

WIDE_TERMINALS = (0x3002, 0xFE52, 0xFE56, 0xFE57, 0xFF01, 0xFF0E, 0xFF1F, 0xFF61)
"""Terminals of East Asian typography, after which no space is written."""

CLOSERS = '")]}»”›’」』】》〉）］｝｣'
"""Closing quotes and brackets, which still belong to the sentence that a terminal ended."""


def terminals() -> npt.NDArray[np.int32]:
    """The code points of `TERMINALS`, ascending, int32."""
    found: list[int] = []
    for item in TERMINALS.split():
        first, _, last = item.partition("-")
        found.extend(range(int(first, 16), int(last or first, 16) + 1))
    return np.array(sorted(found), np.int32)


def character_classes() -> npt.NDArray[np.uint8]:
    """One byte a code point (shape (0x110000,)): a kind and flags, as named in `stages.kernels.classes`."""
    kinds = np.zeros(CODE_POINTS, np.uint8)
    for code in range(CODE_POINTS):
        category = unicodedata.category(chr(code))
        if category[0] in "LN":
            unspaced = category[0] == "L" or category == "Nl"
            unspaced = unspaced and any(first <= code <= last for first, last in UNSPACED_BLOCKS)
            kinds[code] = classes.UNSPACED if unspaced else classes.LETTER
            if category[0] == "L":
                kinds[code] |= classes.ALPHABETIC
        elif category[0] == "M":
            kinds[code] = classes.MARK
        if category == "Nd":
            kinds[code] |= classes.DECIMAL
        if chr(code).isspace():
            kinds[code] |= classes.SPACE
        if len(f"a{chr(code)}a".splitlines()) == 2:
            kinds[code] |= classes.BREAK
    kinds[terminals()] |= classes.TERMINAL
    kinds[list(WIDE_TERMINALS)] = classes.WIDE_TERMINAL
    kinds[[ord(mark) for mark in CLOSERS]] = classes.CLOSER
    kinds[list(JOINERS)] = classes.JOINER
    kinds[[ord(mark) for mark in classes.PUNCTUATION_IN_WORDS]] |= classes.PUNCTUATION
    return kinds


def main() -> None:
    """Write `classes.npz` beside this file; raises `UserError` under a Python of another Unicode version."""
    if unicodedata.unidata_version != classes.UNICODE:
        raise UserError(
            f"classes.npz holds Unicode {classes.UNICODE}, this Python has {unicodedata.unidata_version}: "
            "run make_classes with a Python of that Unicode version"
        )
    blocks = character_classes().reshape(-1, classes.BLOCK)
    distinct, block_of = np.unique(blocks, axis=0, return_inverse=True)
    np.savez_compressed(
        Path(__file__).with_name("classes.npz"),
        unicode=np.array(classes.UNICODE),
        block_of=block_of.ravel().astype(np.uint16),
        blocks=distinct.ravel(),
        terminals=terminals(),
    )


if __name__ == "__main__":
    main()
