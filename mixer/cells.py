"""Cells: their table, read from CSV, and patterns that choose among them."""

import csv
import difflib
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from fractions import Fraction
from itertools import chain
from pathlib import Path

from stages.errors import UserError
from stages.quantity import parse_amount, parse_share

Scalar = str | int | bool | None
Predicate = Mapping[str, Scalar | Sequence[Scalar]]
Pattern = str | Predicate

_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
_ORDER = re.compile(r"(>=|<=|>|<)\s*(.+)", re.DOTALL)
_COMPARE: dict[str, Callable[[Fraction | str, Fraction | str], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


@dataclass(frozen=True)
class CellTable:
    """What is known about cells: `names` sorted, `tokens` of each, and `columns[column][cell]` as the file has them."""

    names: tuple[str, ...]
    tokens: dict[str, int]
    columns: dict[str, dict[str, str]]

    def column(self, name: str) -> Mapping[str, str]:
        """The values of a column by cell; `cell` and `tokens` are columns as well.

        Raises UserError, with the nearest name and those that exist, when there is none of that name.
        """
        if name == "cell":
            return {cell: cell for cell in self.names}
        if name == "tokens":
            return {cell: str(count) for cell, count in self.tokens.items()}
        if name not in self.columns:
            raise UserError(f"the cells have no column {name!r}{_nearest(name, self._known())}; {self._columns()}")
        return self.columns[name]

    def numbers(self, name: str, cells: Iterable[str]) -> dict[str, Fraction]:
        """The exact values of a column of numbers for some cells. Raises UserError naming a cell without one."""
        values = self.column(name)
        found = {}
        for cell in cells:
            number = _number(values[cell])
            if number is None:
                raise UserError(f"cell {cell}: its {name} is {values[cell]!r}, which is no number; mend the table")
            found[cell] = number
        return found

    def _known(self) -> list[str]:
        return ["cell", "tokens", *sorted(self.columns)]

    def _columns(self) -> str:
        return f"the columns are {', '.join(self._known())}"


def read_cells(path: Path) -> CellTable:
    """Read a CSV with the header `cell,tokens,...` in any order, one cell a row; tokens as `812`, `20M` or `1.5T`.

    Lines at the top that start with `#` are comments. Raises UserError with file, line and column for a missing column,
    a row of another length, a cell that occurs twice, and tokens that are no whole number.
    """
    tokens: dict[str, int] = {}
    columns: dict[str, dict[str, str]] = {}
    for line, cell, row in _keyed_rows(path, "cell", "tokens"):
        try:
            tokens[cell] = parse_amount(row.pop("tokens"))
        except ValueError as error:
            raise UserError(f"{path}:{line}: tokens of cell {cell}: {error}") from None
        for column, value in row.items():
            columns.setdefault(column, {})[cell] = value
    return CellTable(tuple(sorted(tokens)), tokens, columns)


def read_column(path: Path, column: str, key: str = "cell") -> dict[str, Fraction]:
    """A column of exact non-negative decimals or percentages of a CSV, by the values of its column `key`.

    Comments and errors as for `read_cells`.
    """
    values = {}
    for line, cell, row in _keyed_rows(path, key, column):
        try:
            values[cell] = parse_share(row[column])
        except ValueError as error:
            raise UserError(f"{path}:{line}: {column} of {cell}: {error}") from None
    return values


def _keyed_rows(path: Path, key: str, needed: str) -> list[tuple[int, str, dict[str, str]]]:
    """Line, key, and the other values by column, of every row; the key occurs once."""
    rows = _rows(path)
    line, header = rows[0]
    for column in (key, needed):
        if column not in header:
            near = _nearest(column, header)
            raise UserError(f"{path}:{line}: no column {column!r}{near}; the columns are {', '.join(header)}")
    for i, column in enumerate(header):
        if not column or column in header[:i]:
            raise UserError(f"{path}:{line}: column {i + 1} is {column!r}; every column needs a name of its own")
    first: dict[str, int] = {}
    found = []
    for line, fields in rows[1:]:
        if len(fields) != len(header):
            raise UserError(f"{path}:{line}: {len(fields)} fields for {len(header)} columns ({', '.join(header)})")
        row = dict(zip(header, fields, strict=True))
        cell = row.pop(key)
        if not cell:
            raise UserError(f"{path}:{line}: column {key} is empty; every row needs a name")
        if cell in first:
            raise UserError(f"{path}:{line}: column {key}: {cell!r} is already on line {first[cell]}; remove one")
        first[cell] = line
        found.append((line, cell, row))
    if not found:
        raise UserError(f"{path}: no rows below the header")
    return found


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    """Number of the last line, and stripped fields, of the header and of every row that is not blank."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            comments, start = 0, ""
            for start in file:
                if not start.startswith("#"):
                    break
                comments, start = comments + 1, ""
            reader = csv.reader(chain([start] if start else [], file), strict=True)
            try:
                rows = [(comments + reader.line_num, [field.strip() for field in row]) for row in reader if row]
            except csv.Error as error:
                raise UserError(f"{path}:{comments + reader.line_num}: not valid CSV: {error}") from None
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; write a CSV with a header") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as CSV: {error}") from None
    if not rows:
        raise UserError(f"{path}: empty; the first line after the comments is the header")
    return rows


def select(table: CellTable, patterns: Iterable[Pattern]) -> tuple[str, ...]:
    """The cells that any of the patterns chooses, sorted.

    A pattern is the name of a cell, a glob over names (`c*q4`; `*` also matches a slash), or a predicate that maps
    columns to what must hold of all of them: a value, a glob, `>= 3`, `<= 3`, `> 3`, `< 3`, or a list of which one
    must hold. Values and bounds that are both numbers are compared as exact numbers (`3` equals `3.0`, a bound may be
    `10B`), otherwise as text; a value that is no number lies on no side of a bound that is one.

    Raises UserError for a pattern that chooses nothing, naming it, what is nearest, and the columns.
    """
    chosen: set[str] = set()
    for pattern in patterns:
        found = _by_name(table, pattern) if isinstance(pattern, str) else _by_predicate(table, pattern)
        chosen.update(found)
    return tuple(sorted(chosen))


def _by_name(table: CellTable, pattern: str) -> list[str]:
    if pattern in table.tokens:
        return [pattern]
    found = [cell for cell in table.names if fnmatchcase(cell, pattern)]
    if not found:
        raise UserError(f"no cell is named {pattern!r}{_nearest(pattern, table.names)}; {table._columns()}")
    return found


def _by_predicate(table: CellTable, predicate: Predicate) -> list[str]:
    if not predicate:
        raise UserError("an empty predicate; write '*' to choose every cell")
    found = list(table.names)
    for column, wanted in predicate.items():
        values = table.column(column)
        options = [wanted] if isinstance(wanted, str | int | bool | None) else list(wanted)
        if not any(_holds(value, option) for value in values.values() for option in options):
            near = _nearest(_text(options[0]) if options else "", set(values.values()))
            raise UserError(f"no cell has {_shown({column: wanted})}{near}; {table._columns()}")
        found = [cell for cell in found if any(_holds(values[cell], option) for option in options)]
    if not found:
        raise UserError(
            f"no cell has {_shown(predicate)}: each of the conditions holds for some cell, but all of them for none; "
            f"{table._columns()}"
        )
    return found


def _holds(value: str, wanted: Scalar) -> bool:
    if isinstance(wanted, bool):
        return value.lower() == _text(wanted)
    text = _text(wanted)
    match = _ORDER.fullmatch(text)
    number = _number(value)
    if match is None:
        asked = _number(text)
        equal = value == text or (number is not None and number == asked)
        return equal or (bool(text) and fnmatchcase(value, text))
    bound = _bound(match[2].strip())
    if bound is None:
        return _COMPARE[match[1]](value, match[2].strip())
    return number is not None and _COMPARE[match[1]](number, bound)


def _text(scalar: Scalar) -> str:
    """A scalar as a table has it; `true` and `false` are what YAML makes booleans of, null is empty."""
    if scalar is None:
        return ""
    return str(scalar).lower() if isinstance(scalar, bool) else str(scalar).strip()


def _number(text: str) -> Fraction | None:
    return Fraction(text) if _NUMBER.fullmatch(text) else None


def _bound(text: str) -> Fraction | None:
    number = _number(text)
    if number is not None:
        return number
    try:
        return Fraction(parse_amount(text))
    except ValueError:
        return None


def _shown(predicate: Predicate) -> str:
    return ", ".join(
        f"{column}: {_text(wanted) if isinstance(wanted, str | int | bool | None) else list(wanted)}"
        for column, wanted in predicate.items()
    )


def _nearest(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0)
    return f"; the nearest is {close[0]!r}" if close else ""
