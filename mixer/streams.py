"""Domain streams: the order in which a domain's documents are read, epoch after epoch.

Validation documents are chosen by id alone: a document is held out when the keyed hash of its id, as a fraction of
2^64, is below the asked share, so raising the share adds documents and moves none back. The others are a domain's
training documents. In each epoch they follow in the order of a hash keyed by (seed, domain name, epoch), ties by id;
epochs follow each other, and so a domain has one endless stream of tokens that sequences are cut from.

A rung of the ladder draws from a pool: the first tokens of the order of the first epoch. The document in which the pool
ends belongs to it with its first tokens.

A stream's shard is two raw files: `docs.bin` (uint32 part, uint32 row of every document in stream order) and
`ends.bin` (uint64, where it ends in the stream, in tokens). They are written in slices of the hash's range, so memory
does not grow with the domain.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mixer.plan import Supply
from stages.artifact import Artifact, Shard, commit, new_file
from stages.kernels.xxh3 import key, keyed_hash
from stages.recipe import Recipe, digest_of
from stages.store import StorePart, cell_parts, open_part
from stages.task import Task

VERSION = 1
DOCUMENTS_PER_SLICE = 4_000_000
DOCS = np.dtype([("part", "<u4"), ("row", "<u4")])
ENDS = np.dtype("<u8")
VALIDATION_KEY = key("validation")


class _Found(NamedTuple):
    """Documents in order: keyed hash and id words (uint64), place in the store (`DOCS`), tokens (int64)."""

    hashes: np.ndarray
    hi: np.ndarray
    lo: np.ndarray
    documents: np.ndarray
    lengths: np.ndarray


@dataclass(frozen=True)
class Domain:
    """A domain and the store's parts that hold its cells, in the order of cells and ids."""

    name: str
    cells: tuple[str, ...]

    def shards(self, store: Artifact) -> list[Shard]:
        return [shard for cell in sorted(self.cells) for shard in cell_parts(store, cell)]

    def parts(self, store: Artifact) -> list[StorePart]:
        return [open_part(store, shard) for shard in self.shards(store)]


class _Last(NamedTuple):
    """The last document of a pool in the order of the first epoch, and how many of its tokens belong to the pool."""

    hash: int
    hi: int
    lo: int
    tokens: int


def held_out(hi: np.ndarray, lo: np.ndarray, share: Fraction) -> np.ndarray:
    """Which ids (uint64 words) are validation documents at that share: bool."""
    limit = np.uint64(share.numerator * (1 << 64) // share.denominator)
    return keyed_hash(hi, lo, VALIDATION_KEY) < limit


def split_recipe(mixture: str, store: str, validation: Fraction) -> Recipe:
    """The recipe of the `split` stage: how much of every part of the store is held out."""
    return Recipe("split", VERSION, mixture, {"validation": str(validation)}, {"store": store})


@dataclass(frozen=True)
class Split:
    """Work: count the training and validation documents and tokens of one part of the store."""

    folder: Path
    store: Artifact
    validation: Fraction

    def __call__(self, task: Task) -> None:
        shard: Shard = task.payload
        part = open_part(self.store, shard)
        out = held_out(*part.ids, self.validation)
        counts = {
            "documents": int((~out).sum()),
            "tokens": int(part.length[~out].sum()),
            "validation_documents": int(out.sum()),
            "validation_tokens": int(part.length[out].sum()),
        }
        commit(self.folder, task.name, [Shard(shard.name, len(out), digest_of(counts), (), counts)])


def supply_of(split: Artifact, store: Artifact, domains: Sequence[Domain]) -> dict[str, Supply]:
    """What the store holds for each domain."""
    counted = {s.name: s.counters for s in split.shards}
    supply = {}
    for domain in domains:
        rows = [counted[s.name] for s in domain.shards(store)]
        supply[domain.name] = Supply(*(sum(r[k] for r in rows) for k in Supply.__dataclass_fields__))
    return supply


def whole_epochs(tokens: int, unique: int) -> int:
    """How many passes over `unique` tokens a stream of at least so many tokens is written with."""
    return max(1, -(-tokens // max(1, unique)))


def stream_recipe(
    domain: Domain, store: str, seed: int, validation: Fraction, epochs: int, pool: int | None = None
) -> Recipe:
    """The recipe of a domain's stream of that many epochs over all its documents, or over a pool of so many tokens."""
    config: dict[str, Any] = {
        "domain": domain.name,
        "cells": sorted(domain.cells),
        "seed": seed,
        "validation": str(validation),
        "epochs": epochs,
    }
    if pool is not None:
        config["pool"] = pool
    return Recipe("stream", VERSION, domain.name, config, {"store": store})


@dataclass(frozen=True)
class WriteStream:
    """Work: a domain's training stream (`train`), or its validation documents in id order (`validation`)."""

    folder: Path
    store: Artifact
    domain: Domain
    seed: int
    validation: Fraction
    epochs: int
    pool: int | None = None

    def __call__(self, task: Task) -> None:
        train = task.payload == "train"
        parts = self.domain.parts(self.store)
        keys = [self._key(e) for e in range(self.epochs)] if train else [None]
        last = self._last_of_pool(parts) if train and self.pool is not None else None
        total, rows = 0, 0
        with (
            new_file(self.folder, f"{task.name}.docs.bin") as (docs, d),
            new_file(self.folder, f"{task.name}.ends.bin") as (ends, e),
        ):
            for epoch_key in keys:
                for found in self._epoch(parts, train, epoch_key, last):
                    docs.write(found.documents)
                    ends.write((total + np.cumsum(found.lengths)).astype(ENDS))
                    total += int(found.lengths.sum())
                    rows += len(found.documents)
        content = digest_of([d[0].sha256, e[0].sha256])
        counters = {"tokens": total, "unique_tokens": total // max(1, len(keys))}
        commit(self.folder, task.name, [Shard(task.name, rows, content, (d[0], e[0]), counters)])

    def _key(self, epoch: int) -> int:
        return key("epoch", self.seed, self.domain.name, epoch)

    def _last_of_pool(self, parts: Sequence[StorePart]) -> _Last:
        """The document of the first epoch in which the pool ends, and how many of its tokens belong to the pool."""
        left, last = self.pool or 0, _Last(0, 0, 0, 0)
        for found in self._epoch(parts, True, self._key(0), None):
            ends = np.cumsum(found.lengths)
            reached = int(np.searchsorted(ends, left))
            if len(found.lengths):
                i = min(reached, len(found.lengths) - 1)
                within = left - int(ends[i] - found.lengths[i])
                within = min(within, int(found.lengths[i]))
                last = _Last(int(found.hashes[i]), int(found.hi[i]), int(found.lo[i]), within)
            if reached < len(found.lengths):
                return last
            left -= int(found.lengths.sum())
        return last

    def _epoch(
        self, parts: Sequence[StorePart], train: bool, epoch_key: int | None, last: _Last | None
    ) -> Iterator[_Found]:
        """One pass over the documents in order, in slices of the range of the hash."""
        slices = max(1, -(-sum(len(p.length) for p in parts) // DOCUMENTS_PER_SLICE))
        for number in range(slices):
            low = np.uint64(number * (1 << 64) // slices)
            high = np.uint64((number + 1) * (1 << 64) // slices - 1)
            picked = [self._pick(i, part, train, epoch_key, low, high, last) for i, part in enumerate(parts)]
            columns = (np.concatenate(column) for column in zip(*picked, strict=True))
            found = _Found(*columns)
            order = np.lexsort((found.lo, found.hi, found.hashes))
            yield _Found(*(column[order] for column in found))

    def _pick(
        self,
        number: int,
        part: StorePart,
        train: bool,
        epoch_key: int | None,
        low: np.uint64,
        high: np.uint64,
        last: _Last | None,
    ) -> _Found:
        hi, lo = part.ids
        hashes = hi if epoch_key is None else keyed_hash(hi, lo, epoch_key)
        mine = held_out(hi, lo, self.validation) != train
        if last is not None:
            mine &= _up_to(keyed_hash(hi, lo, self._key(0)), hi, lo, last)
        rows = np.flatnonzero(mine & (hashes >= low) & (hashes <= high))
        documents = np.empty(len(rows), DOCS)
        documents["part"], documents["row"] = number, rows
        lengths = part.length[rows]
        if last is not None:
            lengths = np.where((hi[rows] == last.hi) & (lo[rows] == last.lo), last.tokens, lengths)
        return _Found(hashes[rows], hi[rows], lo[rows], documents, lengths)


def _up_to(hashes: np.ndarray, hi: np.ndarray, lo: np.ndarray, last: _Last) -> np.ndarray:
    """Which documents come no later than `last` in the order of (hash, high word, low word)."""
    h, high, low = np.uint64(last.hash), np.uint64(last.hi), np.uint64(last.lo)
    same = hashes == h
    return (hashes < h) | (same & (hi < high)) | (same & (hi == high) & (lo <= low))


def stream_tasks(work: WriteStream, size: int) -> list[Task]:
    """The two tasks that write a domain's stream; `size` is about that of the files, in bytes."""
    return [Task("train", work, "train", size), Task("validation", work, "validation", 0)]
