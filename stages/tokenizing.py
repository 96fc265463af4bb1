"""The `tokenize` stage: token ids of every document that its source's own filters keep.

Hugging Face `tokenizers` is the reference. A document's ids are those of its text followed by one end-of-text id.
Text that looks like a control token is encoded as plain text: added tokens that the file marks as special, or that are
written like one (`<|name|>`), are switched off for encoding. Added tokens that stand for content, such as runs of
spaces, stay.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from stages.artifact import new_file
from stages.columns import Columns
from stages.errors import UserError
from stages.recipe import Recipe

VERSION = 1
CHUNK_BYTES = 1 << 20
SCHEMA = pa.schema([pa.field("token_count", pa.int64(), nullable=False)])
_CONTROL = re.compile(r"<[|｜].*[|｜]>|\[(?:CLS|SEP|PAD|MASK|UNK)\]|</?s>|<(?:pad|unk|mask|bos|eos)>")


@dataclass(frozen=True)
class TokenizerFile:
    """A `tokenizer.json`, with what the token files need to know of it."""

    path: Path
    sha256: str
    end_of_text: int
    vocabulary: int

    @property
    def dtype(self) -> np.dtype:
        """Little-endian uint16 when every id fits, else uint32."""
        return np.dtype("<u2") if self.vocabulary <= 1 << 16 else np.dtype("<u4")


def open_tokenizer(path: Path, sha256: str, end_of_text: str) -> TokenizerFile:
    """Look up the end-of-text id and the size of the vocabulary (highest id + 1, added tokens included).

    Raises UserError when the file is no tokenizer.json or has no such token.
    """
    try:
        data = json.loads(path.read_bytes())
        ids = _vocabulary(data["model"]["vocab"])
        added = {t["content"]: t["id"] for t in data.get("added_tokens", [])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: is not a tokenizer.json of Hugging Face tokenizers: {error}") from None
    ids |= added
    if end_of_text not in ids:
        names = ", ".join(sorted(added)[:8])
        raise UserError(f"{path}: has no token {end_of_text!r} for tokenizer.end_of_text; its added tokens are {names}")
    return TokenizerFile(path, sha256, ids[end_of_text], max(ids.values()) + 1)


def _vocabulary(vocab: Any) -> dict[str, int]:
    return dict(vocab) if isinstance(vocab, dict) else {entry[0]: i for i, entry in enumerate(vocab)}


@lru_cache(maxsize=1)
def load_encoder(tokenizer: TokenizerFile) -> Any:
    """The reference encoder: no special tokens added, no control token recognized, no truncation, no padding.

    Raises UserError when the file is gone or no longer the bytes of its digest.
    """
    from tokenizers import Tokenizer

    try:
        content = tokenizer.path.read_bytes()
    except OSError as error:
        raise UserError(f"{tokenizer.path}: cannot be read: {error}") from None
    if hashlib.sha256(content).hexdigest() != tokenizer.sha256:
        raise UserError(f"{tokenizer.path}: the tokenizer has changed while the build ran; build again")
    data = json.loads(content)
    _hide_controls(data, tokenizer.end_of_text)
    data["truncation"] = data["padding"] = None
    encoder = Tokenizer.from_str(json.dumps(data))
    encoder.encode_special_tokens = True
    return encoder


def _hide_controls(data: dict[str, Any], end_of_text: int) -> None:
    """Mark control tokens as special and put a NUL before their names, so that no text spells one: models that look up
    whole words or pieces, and merges that arrive at such a name, would find it in the vocabulary all the same."""
    model, added = data["model"], data.get("added_tokens", [])
    for token in added:
        token["special"] = token["special"] or _CONTROL.fullmatch(token["content"]) is not None
    hidden = {t["content"]: "\0" + t["content"] for t in added if t["special"]}
    hidden |= {name: "\0" + name for name, i in _vocabulary(model["vocab"]).items() if i == end_of_text}
    for token in added:
        token["content"] = hidden.get(token["content"], token["content"])
    if isinstance(model["vocab"], dict):
        model["vocab"] = {hidden.get(name, name): i for name, i in model["vocab"].items()}
    else:
        model["vocab"] = [[hidden.get(name, name), score] for name, score in model["vocab"]]
    if model.get("unk_token") is not None:
        model["unk_token"] = hidden.get(model["unk_token"], model["unk_token"])
    if "merges" in model:
        pairs = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
        model["merges"] = [pair for pair in pairs if hidden.keys().isdisjoint([*pair, "".join(pair)])]


def encode(encoder: Any, texts: Sequence[str], end_of_text: int, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Token ids of the texts, each with the end-of-text id after it, one after the other; and the counts (int64)."""
    pieces, counts = [], np.zeros(len(texts), np.int64)
    end = np.array([end_of_text], dtype)
    for i, encoding in enumerate(encoder.encode_batch_fast(list(texts), add_special_tokens=False)):
        ids = np.asarray(encoding.ids, dtype)
        pieces += [ids, end]
        counts[i] = len(ids) + 1
    return (np.concatenate(pieces) if pieces else np.zeros(0, dtype)), counts


@dataclass(frozen=True)
class Tokenize:
    """Column stage: `token_count` (int64, end-of-text included; 0 for a document that the filters drop), and the
    tokens themselves in the shard's `.bin` file, in row order."""

    source: str
    documents: str
    filters: str
    tokenizer: TokenizerFile
    has_data: bool = True
    reads: Sequence[str] = ("documents", "filters")
    schema: pa.Schema = SCHEMA

    @cached_property
    def recipe(self) -> Recipe:
        known = self.tokenizer
        config = {"end_of_text": known.end_of_text, "vocabulary": known.vocabulary, "dtype": known.dtype.str}
        inputs = {"documents": self.documents, "filters": self.filters, "tokenizer": self.tokenizer.sha256}
        return Recipe("tokenize", VERSION, self.source, config, inputs)

    def columns(self, inputs: Mapping[str, pa.RecordBatch]) -> Columns:
        documents, kept = inputs["documents"], inputs["filters"].column("kept")
        texts = documents.column("text").filter(kept)
        sizes = documents.column("bytes").filter(kept).to_numpy()
        encoder = load_encoder(self.tokenizer)
        data, kept_counts = [], []
        for start, stop in _chunks(sizes):
            chunk = texts.slice(start, stop - start).to_pylist()
            ids, counts = encode(encoder, chunk, self.tokenizer.end_of_text, self.tokenizer.dtype)
            data.append(ids)
            kept_counts.append(counts)
        counts = np.zeros(documents.num_rows, np.int64)
        counts[kept.to_numpy(zero_copy_only=False)] = np.concatenate(kept_counts) if kept_counts else 0
        batch = pa.RecordBatch.from_arrays([pa.array(counts)], schema=self.schema)
        tokens = np.concatenate(data) if data else np.zeros(0, self.tokenizer.dtype)
        return Columns(batch, data=tokens, counters={"tokens": len(tokens), "documents": len(texts)})


def _chunks(sizes: np.ndarray) -> list[tuple[int, int]]:
    """Ranges of rows of about `CHUNK_BYTES` of text: an encoding takes a hundred times the memory of its text."""
    ends = np.cumsum(sizes)
    cuts = [0]
    while cuts[-1] < len(sizes):
        begun = ends[cuts[-1] - 1] if cuts[-1] else 0
        cuts.append(max(cuts[-1] + 1, int(np.searchsorted(ends, begun + CHUNK_BYTES, "right"))))
    return list(pairwise(cuts))


def tokenizer_copy(root: Path, sha256: str) -> Path:
    """Where a build folder keeps a copy of its tokenizer.json, to decode what it holds."""
    return root / "tokenizers" / f"{sha256}.json"


def keep_tokenizer(root: Path, tokenizer: TokenizerFile) -> None:
    """Copy the tokenizer into the build folder, once."""
    target = tokenizer_copy(root, tokenizer.sha256)
    if not target.is_file():
        with new_file(target.parent, target.name) as (file, _):
            file.write(tokenizer.path.read_bytes())
