from fractions import Fraction
from pathlib import Path

import pytest

from mixer.cells import CellTable, Pattern, read_cells, read_column, select
from stages.errors import UserError

TABLE = """\
# From the made-up report, table 2
# second comment
cell,topic,tokens,quality,collected
c1q4,law,20M,4,2024-05
c0q0,art,1000,0,2019-11
c0q4,art,812,4.0,2023-01
"c1q10","law, more",1.5K,10,2023-12
web/x,,7,unknown,2024-01
"""


@pytest.fixture
def table(tmp_path: Path) -> CellTable:
    return read_cells(write(tmp_path, TABLE))


def write(folder: Path, text: str) -> Path:
    path = folder / "cells.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_read(table: CellTable) -> None:
    assert table.names == ("c0q0", "c0q4", "c1q10", "c1q4", "web/x")
    assert table.tokens == {"c1q4": 20_000_000, "c0q0": 1000, "c0q4": 812, "c1q10": 1500, "web/x": 7}
    assert set(table.columns) == {"topic", "quality", "collected"}
    assert table.columns["topic"]["c1q10"] == "law, more"
    assert table.numbers("quality", ["c0q4", "c1q10"]) == {"c0q4": 4, "c1q10": 10}


def test_a_byte_order_mark_and_blank_lines_change_nothing(tmp_path: Path, table: CellTable) -> None:
    path = write(tmp_path, "\ufeff" + TABLE.replace("c0q0", "\nc0q0").replace("\n", "\r\n"))
    assert read_cells(path) == table


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "# c\ncell,token\na,1\n",
            r"cells.csv:2: no column 'tokens'; the nearest is 'token'; the columns are cell, token",
        ),
        ("name,tokens\na,1\n", r"cells.csv:1: no column 'cell'"),
        ("# c\ncell,tokens\na,1\nb,1\na,2\n", r"cells.csv:5: column cell: 'a' is already on line 3"),
        ("cell,tokens\na,1.5\n", r"cells.csv:2: tokens of cell a: '1.5'"),
        ("cell,tokens\na,-1\n", r"cells.csv:2: tokens of cell a: '-1'"),
        ("cell,tokens\na,\n", r"cells.csv:2: tokens of cell a: ''"),
        ("cell,tokens\na,1,2\n", r"cells.csv:2: 3 fields for 2 columns \(cell, tokens\)"),
        ("cell,tokens\n,1\n", r"cells.csv:2: column cell is empty"),
        ("cell,tokens,x,x\na,1,2,3\n", r"cells.csv:1: column 4 is 'x'"),
        ('cell,tokens\na,"1\n', r"cells.csv:\d: not valid CSV"),
        ("cell,tokens\n", r"cells.csv: no rows"),
        ("# only\n", r"cells.csv: empty"),
        ("", r"cells.csv: empty"),
    ],
)
def test_bad_tables(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(UserError, match=error):
        read_cells(write(tmp_path, text))


def test_missing_and_binary_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        read_cells(tmp_path / "none.csv")
    (tmp_path / "b.csv").write_bytes(b"cell,tokens\n\xff\xfe,1\n")
    with pytest.raises(UserError, match="cannot be read"):
        read_cells(tmp_path / "b.csv")


def test_read_column(tmp_path: Path) -> None:
    path = write(tmp_path, "domain,p1\na,0.1\nb,25%\nc,1e-9\n")
    assert read_column(path, "p1", key="domain") == {
        "a": Fraction(1, 10),
        "b": Fraction(1, 4),
        "c": Fraction(1, 10**9),
    }
    with pytest.raises(UserError, match=r":1: no column 'p2'; the nearest is 'p1'"):
        read_column(path, "p2", key="domain")
    with pytest.raises(UserError, match=r":3: p1 of b: '-1'"):
        read_column(write(tmp_path, "cell,p1\na,1\nb,-1\n"), "p1")


@pytest.mark.parametrize(
    ("patterns", "cells"),
    [
        (["c0q4"], ["c0q4"]),
        (["c*q4", "c1q4", "c0q4"], ["c0q4", "c1q4"]),
        (["*"], ["c0q0", "c0q4", "c1q10", "c1q4", "web/x"]),
        (["w*", "c?q0"], ["c0q0", "web/x"]),
        ([{"topic": "law"}], ["c1q4"]),
        ([{"topic": "law*"}], ["c1q10", "c1q4"]),
        ([{"topic": ["art", "law*"]}], ["c0q0", "c0q4", "c1q10", "c1q4"]),
        ([{"topic": ""}], ["web/x"]),
        ([{"topic": None}], ["web/x"]),
        ([{"quality": "4"}], ["c0q4", "c1q4"]),
        ([{"quality": 4}], ["c0q4", "c1q4"]),
        ([{"quality": ">= 4"}], ["c0q4", "c1q10", "c1q4"]),
        ([{"quality": "> 4"}], ["c1q10"]),
        ([{"quality": "<10"}], ["c0q0", "c0q4", "c1q4"]),
        ([{"quality": "<= 0"}], ["c0q0"]),
        ([{"quality": ["<= 0", "10"]}], ["c0q0", "c1q10"]),
        ([{"tokens": ">= 1.5K"}], ["c1q10", "c1q4"]),
        ([{"cell": "c0*", "quality": ">= 1"}], ["c0q4"]),
        ([{"collected": ">= 2023-12"}], ["c1q10", "c1q4", "web/x"]),
        ([{"topic": "art"}, {"quality": "10"}, "c0q0"], ["c0q0", "c0q4", "c1q10"]),
        ([], []),
    ],
)
def test_select(table: CellTable, patterns: list[Pattern], cells: list[str]) -> None:
    assert select(table, patterns) == tuple(cells)


def test_a_name_with_glob_characters_is_itself_first() -> None:
    table = CellTable(("a", "a[1]", "a1"), {"a": 1, "a[1]": 1, "a1": 1}, {})
    assert select(table, ["a[1]"]) == ("a[1]",)


def test_truth_values_as_a_table_and_yaml_write_them() -> None:
    table = CellTable(("a", "b"), {"a": 1, "b": 1}, {"code": {"a": "True", "b": "false"}})
    assert select(table, [{"code": True}]) == ("a",)
    assert select(table, [{"code": False}]) == ("b",)


@pytest.mark.parametrize(
    ("pattern", "error"),
    [
        ("c0q5", r"no cell is named 'c0q5'; the nearest is 'c0q4'; .*topic"),
        ("d*", r"no cell is named 'd\*'.*columns are cell, tokens, collected, quality, topic"),
        ({"topics": "law"}, r"no column 'topics'; the nearest is 'topic'; the columns are"),
        ({"topic": "low"}, r"no cell has topic: low; the nearest is 'law'; .*quality"),
        ({"quality": "> 10"}, r"no cell has quality: > 10"),
        ({"topic": []}, r"no cell has topic: \[\]"),
        ({"topic": "art", "quality": "10"}, r"no cell has topic: art, quality: 10: each of the conditions"),
        ({}, r"empty predicate"),
    ],
)
def test_a_pattern_that_chooses_nothing(table: CellTable, pattern: Pattern, error: str) -> None:
    with pytest.raises(UserError, match=error):
        select(table, ["c0q0", pattern])


def test_numbers_names_the_cell_without_one(table: CellTable) -> None:
    with pytest.raises(UserError, match=r"cell web/x: its quality is 'unknown'"):
        table.numbers("quality", table.names)
