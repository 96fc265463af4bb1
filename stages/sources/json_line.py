"""The exact reading of one JSON line: what the columnar scanner leaves open is settled here."""

import json
from typing import NamedTuple

import orjson

from stages.sources.rows import Reason


class Row(NamedTuple):
    """A good row."""

    text: str
    source_id: str | None


def read_line(raw: bytes, text_key: str, id_key: str | None, max_line_bytes: int) -> Row | Reason:
    """A line without its newline to a row, or to the reason against it.

    JSON is RFC 8259 as orjson reads it: NaN, Infinity and numbers beyond a double are `invalid_json`
    wherever they stand, of duplicate keys the last counts, and a surrogate escape without its partner is
    `lone_surrogate` wherever it stands. An integer id becomes its decimal string; an id of any other type
    is `id_not_string`.
    """
    if len(raw) > max_line_bytes:
        return Reason.OVERSIZED
    try:
        decoded = raw.decode("utf-8")
    except UnicodeDecodeError:
        return Reason.INVALID_UTF8
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return Reason.LONE_SURROGATE if _has_lone_surrogate(decoded) else Reason.INVALID_JSON
    if not isinstance(value, dict):
        return Reason.NOT_AN_OBJECT
    if text_key not in value:
        return Reason.MISSING_TEXT
    text = value[text_key]
    if text is None:
        return Reason.NULL_TEXT
    if not isinstance(text, str):
        return Reason.TEXT_NOT_STRING
    if not text:
        return Reason.EMPTY_TEXT
    source_id = value.get(id_key) if id_key is not None else None
    if isinstance(source_id, int) and not isinstance(source_id, bool):
        source_id = str(source_id)
    if not (source_id is None or isinstance(source_id, str)):
        return Reason.ID_NOT_STRING
    return Row(text, source_id)


def _has_lone_surrogate(decoded: str) -> bool:
    try:
        value = json.loads(decoded)
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        return False
    return False
