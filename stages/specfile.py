"""Spec files: YAML read without losing a digit, checked by pydantic, and blamed by file and line.

Scalars stay text (only `true`, `false` and `null` are read as such), so that `0.1` is one tenth. A key that
occurs twice is an error. Every complaint of the models is turned into `file:line: key: what is wrong`.
"""

import difflib
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from stages.errors import UserError

Model = TypeVar("Model", bound=BaseModel)
Lines = dict[tuple[str | int, ...], int]
_WORDS = {"true": True, "True": True, "false": False, "False": False, "null": None, "~": None, "": None}


class Spec(BaseModel):
    """Base of every spec model: unknown keys are errors, values do not change after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


def read_yaml(path: Path) -> tuple[Any, Lines]:
    """Parse `path`; return the plain data and the line on which each key path starts.

    Raises UserError when the file is missing, is not YAML, or says a key twice.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        near = difflib.get_close_matches(path.name, [p.name for p in path.parent.glob("*.yaml")], n=1)
        hint = f"; did you mean {path.parent / near[0]}?" if near else ""
        raise UserError(f"{path}: no such spec file{hint}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as a spec: {error}") from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UserError(f"{path}:{line}: not valid YAML: {error.problem}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise UserError(f"{path}:{line}: not valid YAML: {error.reason}") from None
    lines: Lines = {}
    try:
        return _construct(node, (), lines, path), lines
    except RecursionError:
        raise UserError(f"{path}:1: not a spec: an alias that holds itself, or too deep") from None


def _construct(node: yaml.Node | None, where: tuple[str | int, ...], lines: Lines, path: Path) -> Any:
    if node is None:
        return None
    lines.setdefault(where, node.start_mark.line + 1)
    if isinstance(node, yaml.ScalarNode):
        return _WORDS.get(node.value, node.value) if node.style is None else node.value
    if isinstance(node, yaml.SequenceNode):
        return [_construct(item, (*where, i), lines, path) for i, item in enumerate(node.value)]
    result: dict[str, Any] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise UserError(f"{path}:{line}: {_dotted(where) or 'spec'}: a key here is not a plain word")
        if key.value in result:
            raise UserError(f"{path}:{line}: {_dotted((*where, key.value))}: this key is here twice")
        lines[(*where, key.value)] = line
        result[key.value] = _construct(value, (*where, key.value), lines, path)
    return result


def load_spec(path: Path, model: type[Model]) -> Model:
    """Read and validate a spec file.

    Raises UserError listing every mistake with file, line and key, and the nearest valid key for an unknown one.
    """
    data, lines = read_yaml(path)
    if not isinstance(data, dict):
        raise UserError(f"{path}:1: a spec is a mapping of keys; see `mixer schema`")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise UserError("\n".join(_complaint(path, lines, model, e) for e in error.errors())) from None


def _complaint(path: Path, lines: Lines, model: type[BaseModel], error: Any) -> str:
    where = tuple(error["loc"])
    named = _named(where, lines, error["type"])
    known = named if named in lines else named[:-1]
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        keys = _keys_at(model, where[:-1])
        near = difflib.get_close_matches(str(where[-1]), keys, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"the keys here are {', '.join(keys)}"
        message = f"unknown key; {hint}"
    elif error["type"] == "missing":
        message = "this key is missing"
    return f"{path}:{lines.get(known, 1)}: {_dotted(named) or 'spec'}: {message}"


def _named(where: tuple[str | int, ...], lines: Lines, kind: str) -> tuple[str | int, ...]:
    """The keys of the file that a location leads through, without the steps that name a member of a union."""
    named: tuple[str | int, ...] = ()
    for i, step in enumerate(where):
        if (*named, step) in lines or (i == len(where) - 1 and kind == "missing"):
            named = (*named, step)
    return named


def _keys_at(model: type[BaseModel], where: tuple[str | int, ...]) -> list[str]:
    """The valid keys of the model that a location inside `model` belongs to."""
    here: Any = model
    for step in where:
        if isinstance(here, type) and issubclass(here, BaseModel):
            field = here.model_fields.get(str(step)) or next(
                (f for f in here.model_fields.values() if f.alias == step), None
            )
            here = field.annotation if field else None
        else:
            here = _pick(get_args(here), step)
        if here is None:
            return []
    options = [here, *_flatten(here)]
    return sorted(
        {
            f.alias or n
            for o in options
            if isinstance(o, type) and issubclass(o, BaseModel)
            for n, f in o.model_fields.items()
        }
    )


def _pick(args: tuple[Any, ...], step: str | int) -> Any:
    """From the arguments of a container or union, the one that a step of an error location leads to."""
    models = [a for a in _flatten_all(args) if isinstance(a, type) and issubclass(a, BaseModel)]
    for candidate in models:
        tags = [get_args(f.annotation) for n, f in candidate.model_fields.items() if n in ("format", "kind")]
        if any(step in t for t in tags):
            return candidate
    return models[0] if models else (args[-1] if args else None)


def _flatten(annotation: Any) -> list[Any]:
    return [leaf for arg in get_args(annotation) for leaf in (arg, *_flatten(arg))]


def _flatten_all(args: tuple[Any, ...]) -> list[Any]:
    return [leaf for arg in args for leaf in (arg, *_flatten(arg))]


def _dotted(where: tuple[str | int, ...]) -> str:
    text = ""
    for step in where:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text
