"""The corpus spec: sources, how each is read and filtered, the tokenizer, and what the cells of the store are."""

import re
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from stages.errors import UserError
from stages.filters import FILTERS, parse
from stages.named_file import NamedFile
from stages.normalize import NormalizeConfig
from stages.quantity import Amount, Share
from stages.signatures import NearDuplicates
from stages.sources.spec import Read
from stages.specfile import Spec

NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")


def _check_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a name; use lower-case letters, digits, dots, dashes and underscores")
    return name


def _parse_filter(entry: Any) -> tuple[str, Any]:
    if isinstance(entry, tuple):
        return entry
    try:
        return parse(entry)
    except UserError as error:
        raise ValueError(str(error)) from None


Name = Annotated[str, AfterValidator(_check_name)]
FilterEntry = Annotated[
    tuple[str, Any],
    BeforeValidator(_parse_filter),
    PlainSerializer(lambda entry: {entry[0]: entry[1].model_dump(mode="json")}),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": sorted(FILTERS)},
                {
                    "type": "object",
                    "minProperties": 1,
                    "maxProperties": 1,
                    "additionalProperties": False,
                    "properties": {name: f.config.model_json_schema() for name, f in sorted(FILTERS.items())},
                },
            ]
        }
    ),
]


class TokenizerSpec(NamedFile):
    """A `tokenizer.json` (see `NamedFile`), and the token that ends every document."""

    end_of_text: str = Field(description="The token that ends every document, such as <|endoftext|>.")


class Ceilings(Spec):
    """How much of a source may be lost before the build stops."""

    bad_rows: Share = Field(Fraction(1, 100), validate_default=True, description="Share of unreadable rows.")
    removed: Share = Field(Fraction(1), description="Share of readable documents that all stages together may drop.")


class SourceSpec(Spec):
    """One source of text."""

    read: Read
    licence: str = Field(description="SPDX licence expression.")
    homepage: str | None = None
    filters: tuple[FilterEntry, ...] = ()
    normalize: NormalizeConfig = NormalizeConfig()
    priority: int = Field(0, description="Among equal documents, the source with the higher priority keeps its own.")
    max_document: Amount = Field(10_000_000, description="Bytes; a longer document is quarantined.")
    near_duplicates: NearDuplicates = NearDuplicates.model_validate({})
    ceiling: Ceilings = Field(default_factory=lambda: Ceilings.model_validate({}))

    @model_validator(mode="after")
    def _filters_once(self) -> "SourceSpec":
        names = [name for name, _ in self.filters]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"filters: {name} is listed {names.count(name)} times")
        return self


class CorpusSpec(Spec):
    """`mixtures/corpora/NAME.yaml`."""

    corpus: Name
    tokenizer: TokenizerSpec
    sources: dict[Name, SourceSpec] = Field(min_length=1)
    cells: Literal["source"] = "source"
    shard_bytes: Amount = Field(64 << 20, ge=1 << 16, description="Raw bytes that a document shard aims at.")


def resolve(base: Path, path: str) -> Path:
    """A path of a spec, relative to the folder of the spec file."""
    return Path(path) if Path(path).is_absolute() else (base / path)
