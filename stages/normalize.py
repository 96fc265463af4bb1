"""Text normalization: what a document's text is before its id is taken.

The rules, in the order in which they apply, each of which can be turned off or sized in ``NormalizeConfig``:

1. **controls**: the controls of C0 and C1 and DEL (general category Cc) are removed, NUL among them, except tab and the
   line breaks of rule 2. A byte order mark (U+FEFF) is removed at the start of a text, that is where nothing but white
   space and controls precede it; elsewhere it is a zero width no-break space and stays.
2. **newlines**: every line break becomes LF: CR LF as one, CR, VT, FF, NEL (U+0085), LINE SEPARATOR (U+2028) and
   PARAGRAPH SEPARATOR (U+2029). These are the mandatory breaks of UAX #14 and the newline functions of The Unicode
   Standard, section 5.8. Afterwards a line means the same to every filter, whatever splits it, and two words that only
   such a character kept apart are not joined. With the rule off all of them stay, under rule 1 as well.
3. **spaces**: a run of more than ``max_space_run`` spaces and tabs keeps its first ``max_space_run``. The default
   of 100 is wider than any indentation or table column meant for reading.
4. **newline runs**: a run of more than ``max_newline_run`` LF keeps its first ``max_newline_run``.
5. **strip**: white space (Unicode's White_Space, no-break and ideographic spaces included) is removed at both ends.
6. **nfc**: Unicode Normalization Form C, of the Unicode version ``stages.kernels.nfc.UNICODE_VERSION``.

Nothing else changes: no case, no quotes, no compatibility characters, no white space inside a line. Normalizing twice
gives what normalizing once gives, and a document's result depends on its text and the config alone.

Readers hand over valid UTF-8. Should other bytes occur, they are kept and nothing combines with them.
"""

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from stages.kernels import nfc
from stages.kernels import normalize as kernels

NORMALIZE_VERSION = 1
"""Changes whenever any text may normalize to something else, a newer Unicode version included."""

RULES = ("controls", "newlines", "spaces", "newline_runs", "strip", "nfc")
"""Names of the rules in their order: the keys of the counters of ``normalize``."""


class NormalizeConfig(BaseModel):
    """Which rules of this module apply. Run lengths are in characters."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    controls: bool = True
    newlines: bool = True
    max_space_run: int = Field(default=100, ge=1, lt=2**31)
    max_newline_run: int = Field(default=10, ge=1, lt=2**31)
    strip: bool = True
    nfc: bool = True


def text_buffers(texts: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
    """``(data: uint8[:], offsets: int64[n + 1])`` of a text column, without a copy; a slice's offsets start above 0.

    Raises ValueError for nulls and TypeError for any other type of array.
    """
    if not isinstance(texts, pa.LargeStringArray):
        raise TypeError(f"a text column is a pyarrow.LargeStringArray, not {type(texts).__name__}")
    if texts.null_count:
        raise ValueError(f"{texts.null_count} of {len(texts)} texts are null; readers put such rows in quarantine")
    _, offsets, data = texts.buffers()
    if not len(texts):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    view = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
    return view, np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]


def normalize(texts: pa.LargeStringArray, config: NormalizeConfig) -> tuple[pa.LargeStringArray, dict[str, int]]:
    """Apply the rules to every text; returns the texts and, for each of RULES, how many documents it changed.

    A column that needs nothing is returned as it came, sharing its memory. Raises what ``text_buffers`` raises.
    """
    data, offsets = text_buffers(texts)
    runs = config.max_space_run, config.max_newline_run
    needs = kernels.scan(
        data, offsets, kernels.kinds(), config.nfc, config.newlines, config.controls, *runs, config.strip
    )
    changes = dict.fromkeys(RULES, 0)
    if (needs & (kernels.CLEAN | kernels.TRIM)).any():
        data, offsets, changed = kernels.clean(
            data, offsets, needs, config.newlines, config.controls, *runs, config.strip
        )
        for bit, rule in enumerate(RULES[:-1]):
            changes[rule] = int(np.count_nonzero(changed & (1 << bit)))
    if (needs & nfc.COMPOSE).any():
        data, offsets, composed = nfc.compose(data, offsets, needs, *nfc.composition())
        changes["nfc"] = int(np.count_nonzero(composed))
    if not any(changes.values()):
        return texts, changes
    return pa.LargeStringArray.from_buffers(len(texts), pa.py_buffer(offsets), pa.py_buffer(data)), changes
