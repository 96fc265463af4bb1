"""Metrics of documents as columns: one pass over a text column for all families asked."""

from collections.abc import Callable, Mapping
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stages.errors import UserError
from stages.filters import c4, fineweb, gopher, length
from stages.filters.c4 import C4Measure
from stages.filters.config import Counts, MeasureConfig, Values
from stages.filters.fineweb import FineWebMeasure
from stages.filters.gopher import GopherQualityMeasure
from stages.kernels.boilerplate import LineRules
from stages.kernels.document import COUNTERS, Rules, count_documents
from stages.kernels.scratch import make_scratch
from stages.kernels.text import first_slot, table_bits
from stages.kernels.words import split, word_digest

VERSION = 1
"""Version of the metrics; a change that alters any value raises it."""

FAMILIES: dict[str, Callable[[Counts], dict[str, Values]]] = {
    length.FAMILY: length.columns,
    gopher.QUALITY: gopher.quality_columns,
    gopher.REPETITION: gopher.repetition_columns,
    c4.FAMILY: c4.columns,
    fineweb.FAMILY: fineweb.columns,
}
"""For each family, the function that turns counts into its columns."""


def text_buffers(texts: pa.LargeStringArray) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Bytes and offsets (int64, one more than documents) of a text column, without a copy.

    Raises `UserError` on nulls and on a column that is no `large_string`.
    """
    if texts.type != pa.large_string():
        raise UserError(f"a text column has type {texts.type}: cast it to large_string before measuring")
    if texts.null_count:
        raise UserError(f"{texts.null_count} of {len(texts)} texts are null: drop or quarantine these rows")
    _, offsets, data = texts.buffers()
    if offsets is None or data is None:
        return np.empty(0, np.uint8), np.zeros(len(texts) + 1, np.int64)
    return (
        np.frombuffer(data, np.uint8),
        np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1],
    )


def _stop_word_table(stop_words: tuple[str, ...]) -> npt.NDArray[np.uint64]:
    bits = table_bits(2 * len(stop_words))
    table = np.zeros(1 << bits, np.uint64)
    for word in stop_words:
        if split(word) != [word]:
            raise UserError(f"gopher_quality: stop word {word!r} is not one word ({split(word)}): remove or split it")
        encoded = np.frombuffer(word.encode(), np.uint8)
        digest = np.uint64(word_digest(encoded, 0, len(encoded)))
        slot = first_slot(digest, bits)
        while table[slot] not in (0, digest):
            slot = (slot + 1) % len(table)
        table[slot] = digest
    return table


def _rules(families: Mapping[str, MeasureConfig]) -> Rules:
    quality = cast(GopherQualityMeasure, families.get(gopher.QUALITY, GopherQualityMeasure(stop_words=())))
    lines = cast(C4Measure, families.get(c4.FAMILY, C4Measure()))
    web = cast(FineWebMeasure, families.get(fineweb.FAMILY, FineWebMeasure()))
    return Rules(
        repetition=gopher.REPETITION in families,
        duplicate_lines=gopher.REPETITION in families or fineweb.FAMILY in families,
        feed_lines=fineweb.FAMILY in families,
        boilerplate=c4.FAMILY in families,
        stop_words=_stop_word_table(quality.stop_words),
        stop_chars=np.array(sorted(map(ord, web.stop_chars)), np.int32),
        short_line=web.short_line_length,
        line_rules=LineRules(
            min_words=-1 if lines.min_words_per_line is None else lines.min_words_per_line,
            max_word_length=-1 if lines.max_word_length is None else lines.max_word_length,
            remove_citations=lines.remove_citations,
            terminal_punctuation=lines.terminal_punctuation,
            javascript=lines.javascript,
            policy=lines.policy,
        ),
    )


def measure(texts: pa.LargeStringArray, families: Mapping[str, MeasureConfig]) -> pa.RecordBatch:
    """Metrics of `families`, one row a text, columns `family.metric` (int64, or float64 for ratios), no
    nulls.

    A row depends on its text and the configs alone. Memory is that of the columns plus up to some 50 bytes
    for every byte of the largest text (touched only as far as its words and lines need). Runs in one thread
    and releases the GIL.

    Raises `UserError` on null texts and on a stop word that is not one word, `KeyError` on an unknown family.
    """
    columns = {family: FAMILIES[family] for family in families}
    data, offsets = text_buffers(texts)
    rules = _rules(families)
    counts = np.zeros((len(texts), len(COUNTERS)), np.int64)
    largest = int(np.diff(offsets).max(initial=0))
    seen = np.full(len(rules.stop_words), -1, np.int64)
    count_documents(data, offsets, rules, make_scratch(largest), seen, counts)
    by_name = {name: np.ascontiguousarray(counts[:, number]) for number, name in enumerate(COUNTERS)}
    found = {
        f"{family}.{name}": pa.array(values)
        for family, derive in columns.items()
        for name, values in derive(by_name).items()
    }
    fields = [pa.field(name, values.type, nullable=False) for name, values in found.items()]
    return pa.RecordBatch.from_arrays(list(found.values()), schema=pa.schema(fields))
