"""Generator of the NFC table: ``python -m stages.kernels.make_nfc`` writes ``nfc-VERSION.npz`` beside itself.

It reads the Unicode data of the package ``unicodedata2`` (a development aid, not a dependency), whose Unicode version
becomes VERSION. Moving to a newer version changes what documents with newly assigned characters become: it is a change
of ``stages.normalize.NORMALIZE_VERSION``.

Arrays, code points as uint32, each list ascending in its first array:

- ``ccc_points, ccc``: code points whose canonical combining class is not 0, and the class (uint8).
- ``suspects``: code points whose NFC_Quick_Check is No or Maybe (UAX #15, section 9).
- ``decomposable, pieces``: code points with a canonical decomposition, and the full one, zeros up to 4 columns.
  Hangul syllables are left out: they are computed (The Unicode Standard, section 3.12).
- ``pairs, composites``: primary composites, keyed by ``first << 32 | second`` (uint64).
"""

import importlib
from pathlib import Path
from typing import Any

import numpy as np

HANGUL_SYLLABLES = range(0xAC00, 0xAC00 + 11172)
HANGUL_SECONDS = [*range(0x1161, 0x1161 + 21), *range(0x11A8, 0x11A8 + 27)]


def table(unicode: Any) -> dict[str, np.ndarray]:
    """The arrays above from a module with the interface of ``unicodedata``."""
    characters = [(point, chr(point)) for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    classes = [(point, unicode.combining(c)) for point, c in characters if unicode.combining(c)]
    decompositions: list[tuple[int, list[int]]] = []
    pairs: list[tuple[int, int]] = []
    suspects = set(HANGUL_SECONDS)
    for point, c in characters:
        canonical = unicode.decomposition(c)
        if not canonical or canonical.startswith("<") or point in HANGUL_SYLLABLES:
            continue
        pieces = [ord(piece) for piece in unicode.normalize("NFD", c)]
        decompositions.append((point, pieces + [0] * (4 - len(pieces))))
        if unicode.normalize("NFC", c) != c:
            suspects.add(point)
        else:
            first, second = (int(piece, 16) for piece in canonical.split())
            pairs.append((first << 32 | second, point))
            suspects.add(second)
    pairs.sort()
    return {
        "ccc_points": np.array([point for point, _ in classes], np.uint32),
        "ccc": np.array([ccc for _, ccc in classes], np.uint8),
        "suspects": np.array(sorted(suspects), np.uint32),
        "decomposable": np.array([point for point, _ in decompositions], np.uint32),
        "pieces": np.array([pieces for _, pieces in decompositions], np.uint32),
        "pairs": np.array([pair for pair, _ in pairs], np.uint64),
        "composites": np.array([point for _, point in pairs], np.uint32),
    }


if __name__ == "__main__":
    source = importlib.import_module("unicodedata2")
    arrays: dict[str, Any] = table(source)
    np.savez_compressed(Path(__file__).with_name(f"nfc-{source.unidata_version}.npz"), **arrays)
