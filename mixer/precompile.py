"""`python -m mixer.precompile`: compile the kernels once, by building a mixture of a few words.

Numba keeps what it compiled beside the sources, for each type of argument; a build of real, tiny data meets exactly
the types that every later build meets.
"""

import json
import tempfile
from pathlib import Path

from mixer.build import Build
from stages.engine import LocalEngine

TEXT = (
    "Ein kleiner Text, \u4e00\u4e9b\u8bcd\u8bed, cafe\u0301 and some words.\r\nAnother line of it; and a third one.\n"
    * 8
)
CORPUS = """
corpus: tiny
tokenizer: {file: tokenizer.json, end_of_text: <|endoftext|>}
sources:
  words:
    read: {format: jsonl, path: words.jsonl}
    licence: CC0-1.0
    filters: [{length: {min_words: 1}}]
"""
MIXTURE = """
mixture: tiny
corpus: corpus.yaml
sequence_length: 16
budget: 512
validation: 50%
domains: {words: {cells: [words], weight: 1, max_epochs: 100}}
"""


class _Silent:
    """Nobody watches this build."""

    def start(self, stage: str, tasks: int, size: int) -> None: ...
    def advance(self, tasks: int, size: int) -> None: ...
    def stop(self) -> None: ...


def write_inputs(folder: Path) -> Path:
    """A corpus of sixty documents in threes that are alike, a tokenizer of single bytes, and the specs; returns the
    mixture's."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {symbol: i for i, symbol in enumerate([*alphabet, "<|endoftext|>"])}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    words = [" ".join(f"word{i // 3 * 1000 + k}" for k in range(300)) for i in range(60)]
    texts = [f"{TEXT} {own} {'end ' * (i % 3 // 2)}" for i, own in enumerate(words)]
    rows = [json.dumps({"id": str(i), "text": text}) for i, text in enumerate(texts)]
    (folder / "words.jsonl").write_text("\n".join(rows))
    (folder / "corpus.yaml").write_text(CORPUS)
    spec = folder / "tiny.yaml"
    spec.write_text(MIXTURE)
    return spec


def main() -> None:
    """Build the tiny mixture in a temporary folder, in this process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spec = write_inputs(folder)
        with LocalEngine(folder / "logs", 1, _Silent()) as engine:
            Build(spec, folder / "build", folder / "cache", lambda: engine).run()


if __name__ == "__main__":
    main()
