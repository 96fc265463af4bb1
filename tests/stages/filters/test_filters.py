"""Decisions from metrics, and filter entries of a corpus spec."""

from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from stages.errors import UserError
from stages.filters import FILTERS, measure, parse

PROSE = "It is a truth that the people of the town have to be with their own kind and that is all there is.\n"


def causes(name: str, text: str, **settings: Any) -> set[str]:
    """The causes for which filter `name` drops `text`."""
    chosen = FILTERS[name]
    config = chosen.config(**settings)
    metrics = measure(pa.array([text], pa.large_string()), {chosen.family: chosen.measure_config(config)})
    decided = chosen.decide(metrics, config)
    assert tuple(sorted(decided)) == tuple(sorted(chosen.causes))
    return {cause.removeprefix(f"{name}.") for cause, dropped in decided.items() if dropped[0]}


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({"min_words": 3, "max_words": 3, "min_chars": 11, "max_chars": 11, "max_bytes": 14}, set()),
        ({"min_words": 4, "max_chars": 10}, {"too_few_words", "too_many_chars"}),
        ({"max_words": 2, "min_chars": 12}, {"too_many_words", "too_few_chars"}),
        ({"min_bytes": 15}, {"too_few_bytes"}),
        ({"max_bytes": 13}, {"too_many_bytes"}),
    ],
)
def test_length(bounds: dict[str, int], expected: set[str]) -> None:
    assert causes("length", "één woord é", **bounds) == expected


QUALITY: list[tuple[str, set[str]]] = [
    (PROSE * 3, set()),
    (PROSE, {"too_few_words"}),
    ("", {"too_few_words", "words_too_short", "too_few_alphabetic_words", "too_few_stop_words"}),
    (PROSE * 5000, {"too_many_words"}),
    ("the of a b " * 20, {"words_too_short"}),
    ("the of unwahrscheinlichkeitsrechnung " * 20, {"words_too_long"}),
    (PROSE * 3 + "# " * 20, {"too_many_hashes"}),
    (PROSE * 3 + "… ... " * 10 + "x", {"too_many_ellipses"}),
    (("- " + PROSE) * 3 + "  • item", {"too_many_bullet_lines"}),
    (PROSE.replace(".\n", "… \n") * 3, {"too_many_ellipsis_lines"}),
    (PROSE * 3 + "1234 " * 40, {"too_few_alphabetic_words"}),
    ("The Of And cat sat upon mats " * 9, {"too_few_stop_words"}),
]


@pytest.mark.parametrize(("text", "expected"), QUALITY)
def test_gopher_quality(text: str, expected: set[str]) -> None:
    assert causes("gopher_quality", text) == expected


def test_gopher_repetition() -> None:
    assert causes("gopher_repetition", "") == {"empty"}
    assert causes("gopher_repetition", " ".join(f"w{number}" for number in range(100))) == set()
    found = causes("gopher_repetition", PROSE * 3)
    assert found == {
        "duplicate_lines",
        "duplicate_line_chars",
        *(f"duplicate_{size}_grams" for size in (5, 6, 7, 8, 9, 10)),
    }
    found = causes("gopher_repetition", (PROSE + "\n") * 3)
    assert {"duplicate_paragraphs", "duplicate_paragraph_chars"} <= found
    assert {"top_2_gram", "top_3_gram", "top_4_gram"} <= causes("gopher_repetition", "spam eggs " * 9)
    off = dict.fromkeys(FILTERS["gopher_repetition"].config.model_fields)
    assert causes("gopher_repetition", PROSE * 3, **off) == set()


def test_c4() -> None:
    sentence = "This is a whole sentence here.\n"
    assert causes("c4", sentence * 5) == set()
    assert causes("c4", sentence * 4) == {"too_few_sentences"}
    assert causes("c4", sentence * 5 + "Lorem Ipsum dolor sit {amet}.") == {"lorem_ipsum", "curly_bracket"}
    assert causes("c4", sentence * 5 + "if (x) { return }") == set()
    assert causes("c4", sentence * 4 + "We use Cookies on this site.\nTurn on JavaScript now!") == {"too_few_sentences"}
    assert causes("c4", sentence * 4 + "We use Cookies on this site.", policy=False) == set()
    assert causes("c4", "{ a b c. d. e. f. g.", curly_bracket=False, min_words_per_line=None) == set()


def test_fineweb() -> None:
    line = "A line that is long enough to count as a line of text, number {}.\n"
    good = "".join(line.format(number) for number in range(9))
    assert causes("fineweb", good) == set()
    assert causes("fineweb", " \n\n") == {"empty", "too_many_newlines"}
    assert causes("fineweb", good.replace(".", "")) == {"too_few_punctuated_lines"}
    assert causes("fineweb", good.replace(".", ""), zero_punctuation_passes=True) == set()
    assert causes("fineweb", good + line.format(8)) == {"duplicate_line_chars"}
    items = "\n".join(f"item {number}" for number in range(9))
    assert causes("fineweb", items) == {"too_few_punctuated_lines", "too_many_short_lines", "too_many_newlines"}
    assert causes("fineweb", items, stop_chars="0123456789", short_line_length=5) == {"too_many_newlines"}


def test_thresholds_never_change_what_is_measured() -> None:
    for name, chosen in FILTERS.items():
        plain = chosen.config(**({"min_words": 1} if name == "length" else {}))
        measured = set(type(chosen.measure_config(plain)).model_fields)
        for key, field in chosen.config.model_fields.items():
            if key not in measured and field.default is not None and not isinstance(field.default, bool):
                changed = plain.model_copy(update={key: field.default + 1})
                assert chosen.measure_config(changed) == chosen.measure_config(plain)


def test_parse() -> None:
    assert parse("gopher_quality") == ("gopher_quality", FILTERS["gopher_quality"].config())
    name, config = parse({"length": {"min_words": 20}})
    assert (name, config.model_dump(exclude_none=True)) == ("length", {"min_words": 20})
    _, config = parse({"fineweb": {"max_short_line_ratio": "0.5"}})
    assert config.model_dump()["max_short_line_ratio"] == 0.5
    assert parse({"c4": None}) == parse("c4")
    with pytest.raises(ValidationError):
        config.max_short_line_ratio = 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("gopher_qualty", "filter 'gopher_qualty' does not exist: did you mean 'gopher_quality'"),
        ("zzz", "choose one of length, gopher_quality"),
        ({"length": {"min_word": 20}}, "filter length: unknown key 'min_word': did you mean 'min_words'"),
        ({"length": {"min_words": -1}}, "min_words: Input should be greater than or equal to 0"),
        ({"length": {"min_words": 9, "max_words": 3}}, "min_words 9 is above max_words 3"),
        ("length", "no bound is given"),
        ({"c4": 3}, "3 is no mapping"),
        ({"c4": {}, "length": {}}, "write a name, or one name with its thresholds"),
        ({"fineweb": {"max_short_line_ratio": "nan"}}, "max_short_line_ratio"),
    ],
)
def test_parse_names_the_mistake(entry: Any, message: str) -> None:
    with pytest.raises(UserError, match=message.replace("(", r"\(")):
        parse(entry)
