"""What the model saw: the contents of a training step, and the steps in which a document is seen."""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from mixer.mixture import Mixture, open_mixture
from mixer.order import Order
from mixer.plan import phases_in
from mixer.reader import Dataset, StoreReader, stretches
from stages.errors import UserError
from stages.store import StorePart
from stages.tokenizing import tokenizer_copy


def trace_step(path: Path, step: int, batch_size: int) -> dict[str, Any]:
    """What the reader's batch number `step` holds: phases, domains, sources, and every piece of a document with its
    source, epoch and place, in the order of training.

    Raises UserError when the run has no such step.
    """
    mixture, manifest = open_mixture(path)
    data = Dataset(manifest, StoreReader(mixture))
    steps = data.batch_count(batch_size)
    if not 0 <= step < steps:
        raise UserError(f"step {step}: the run has the steps 0 to {steps - 1} at {batch_size} sequences a step")
    first, stop = data.batch_span(step, batch_size)
    pieces = list(_pieces(mixture, first, stop))
    domains = _shares(pieces, "domain", dict.fromkeys(mixture.names, 0))
    epochs: dict[str, list[int]] = {}
    for piece in pieces:
        span = epochs.setdefault(piece["domain"], [piece["epoch"], piece["epoch"]])
        span[:] = [min(span[0], piece["epoch"]), max(span[1], piece["epoch"])]
    return {
        "mixture": manifest["mixture"],
        "root": manifest["root"],
        "step": step,
        "batch_size": batch_size,
        "first": first,
        "sequences": stop - first,
        "tokens": sum(p["end"] - p["start"] for p in pieces),
        "phases": _phases(mixture, first, stop),
        "domains": domains,
        "epochs": epochs,
        "sources": _shares(pieces, "source", {}),
        "pieces": pieces,
    }


def trace_document(path: Path, document: str, batch_size: int | None = None) -> dict[str, Any]:
    """Where the document whose id starts so (8 to 32 hex digits) is seen in training: positions, epochs, and steps when
    a batch size is given.

    Raises UserError when the mixture's store has no such document.
    """
    mixture, manifest = open_mixture(path)
    prefix = document.lower()
    if not 8 <= len(prefix) <= 32 or set(prefix) - set("0123456789abcdef"):
        raise UserError(f"{document!r} is no document id; give 8 to 32 of its hex digits")
    found = list(_documents(mixture, prefix))
    if not found:
        raise UserError(f"{manifest['mixture']}: the store has no document {prefix}; `mixer explain` tells why")
    if len(found) > 1:
        raise UserError(f"{len(found)} documents have an id that starts with {prefix}; give more digits")
    number, place, part, row = found[0]
    seen = sorted(_sightings(mixture, number, place, row), key=lambda s: int(s["position"]))
    if batch_size is not None:
        seen = [{"step": _step_of(manifest, s["position"], batch_size), **s} for s in seen]
    return {
        "id": part.index.column("id")[row].as_py().hex(),
        "domain": mixture.names[number],
        "source": part.index.column("source")[row].as_py(),
        "tokens": int(part.length[row]),
        "seen": seen,
    }


def _documents(mixture: Mixture, prefix: str) -> Iterator[tuple[int, int, StorePart, int]]:
    """Domain, place of the part in the domain, part and row of every document whose id starts with the prefix."""
    low, high = (np.uint64(int(prefix.ljust(32, digit)[:16], 16)) for digit in "0f")
    for number, domain in enumerate(mixture.domains):
        for place, shard in enumerate(domain.shards(mixture.store)):
            part = mixture.part(shard)
            hi, _ = part.ids
            for row in range(int(np.searchsorted(hi, low)), int(np.searchsorted(hi, high, "right"))):
                if part.index.column("id")[row].as_py().hex().startswith(prefix):
                    yield number, place, part, row


def _step_of(manifest: Mapping[str, Any], position: int, batch_size: int) -> int | None:
    """The step that reads a position; None for one in a batch that is not full."""
    before = 0
    for first, stop in stretches(manifest):
        if position < stop:
            step = (position - first) // batch_size
            return before + step if step < (stop - first) // batch_size else None
        before += (stop - first) // batch_size
    return None


def text_of(path: Path, piece: Mapping[str, Any]) -> str:
    """The text of a piece of a traced step, decoded from its tokens.

    Raises UserError when the build folder has lost its copy of the tokenizer.
    """
    from tokenizers import Tokenizer

    mixture, manifest = open_mixture(path)
    root = mixture.store.folder.parent.parent
    file = tokenizer_copy(root, manifest["tokenizer"]["sha256"])
    if not file.is_file():
        raise UserError(f"{file}: the copy of the tokenizer is gone; build again")
    domain = next(d for d in mixture.domains if d.name == piece["domain"])
    for shard in domain.shards(mixture.store):
        part = mixture.part(shard)
        row = _find(part, (np.uint64(int(piece["id"][:16], 16)), np.uint64(int(piece["id"][16:], 16))))
        if row is not None:
            begin = int(part.offset[row])
            tokens = part.tokens[begin + piece["start"] : begin + piece["end"]].tolist()
            text: str = Tokenizer.from_file(str(file)).decode(tokens, skip_special_tokens=False)
            return text
    raise UserError(f"the store has no document {piece['id']}; run `mixer verify`")


def _pieces(mixture: Mixture, first: int, stop: int) -> Iterator[dict[str, Any]]:
    reader = StoreReader(mixture)
    positions = np.arange(first, stop)
    domains, begins = reader.locate(positions)
    for position, number, begin in zip(positions.tolist(), domains.tolist(), begins.tolist(), strict=True):
        name = mixture.names[number]
        segment = next(s for s in mixture.segments if s.first <= position < s.first + s.sequences)
        stream = reader.stream(number)
        pieces = stream.pieces(np.array([begin]), segment.plan.sequence_length)
        ids = stream.ids(pieces)
        unique = mixture.unique_tokens(name)
        for i in range(len(pieces.part)):
            part = stream.parts[int(pieces.part[i])]
            yield {
                "position": position,
                "domain": name,
                "id": ids[i].tobytes().hex(),
                "source": part.index.column("source")[int(pieces.row[i])].as_py(),
                "start": int(pieces.start[i]),
                "end": int(pieces.end[i]),
                "epoch": (begin + int(pieces.place[i])) // unique,
            }


def _shares(pieces: list[dict[str, Any]], key: str, start: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    """Sequences (for domains), documents and tokens by a key of the pieces."""
    table: dict[str, dict[str, Any]] = {name: {"tokens": 0, "documents": set(), "sequences": set()} for name in start}
    for piece in pieces:
        row = table.setdefault(piece[key], {"tokens": 0, "documents": set(), "sequences": set()})
        row["tokens"] += piece["end"] - piece["start"]
        row["documents"].add(piece["id"])
        row["sequences"].add(piece["position"])
    total = sum(row["tokens"] for row in table.values())
    return {
        name: {
            "tokens": row["tokens"],
            "share": str(Fraction(row["tokens"], total)),
            "documents": len(row["documents"]),
            "sequences": len(row["sequences"]),
        }
        for name, row in sorted(table.items())
    }


def _phases(mixture: Mixture, first: int, stop: int) -> list[str]:
    return [
        phase.name
        for segment in mixture.segments
        for phase, begin, span in phases_in(segment)
        if span and begin < stop and begin + span > first
    ]


def _find(part: StorePart, word: tuple[np.uint64, np.uint64]) -> int | None:
    hi, lo = part.ids
    for row in range(int(np.searchsorted(hi, word[0])), int(np.searchsorted(hi, word[0], "right"))):
        if lo[row] == word[1]:
            return row
    return None


def _sightings(mixture: Mixture, number: int, place: int, row: int) -> Iterator[dict[str, Any]]:
    """Every sequence of the run that holds tokens of a document, which is row `row` of the domain's part `place`."""
    name = mixture.names[number]
    stream = mixture.open(mixture.domains[number], "train")
    hits = np.flatnonzero((stream.docs["part"] == place) & (stream.docs["row"] == row))
    unique = mixture.unique_tokens(name)
    for hit in hits.tolist():
        begin, end = int(stream.ends[hit - 1]) if hit else 0, int(stream.ends[hit])
        for index, segment in enumerate(mixture.segments):
            length, offset = segment.plan.sequence_length, segment.offsets[name]
            low, high = max(begin, offset), min(end, offset + segment.counts[name] * length)
            if low >= high:
                continue
            order = mixture.order(index)
            for sequence in range((low - offset) // length, (high - 1 - offset) // length + 1):
                opens = offset + sequence * length
                yield {
                    "position": segment.first + position_of(order, number, sequence),
                    "epoch": begin // unique,
                    "start": max(opens, begin) - begin,
                    "end": min(opens + length, end) - begin,
                }


def position_of(order: Order, domain: int, sequence: int) -> int:
    """The position at which a domain's sequence of that number comes, by bisection over the order's prefix counts."""
    low, high = 0, len(order)
    while high - low > 1:
        middle = (low + high) // 2
        if int(order.prefix_counts(middle)[domain]) <= sequence:
            low = middle
        else:
            high = middle
    return low
