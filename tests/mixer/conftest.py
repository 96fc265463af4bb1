"""Token stores made by hand."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from stages.artifact import Artifact, File, Shard
from stages.documents import words_to_ids
from stages.store import INDEX

Documents = Mapping[int, Sequence[int]]


@pytest.fixture
def make_store(tmp_path: Path) -> Callable[..., Artifact]:
    """`make_store({cell: {id: tokens}}, parts=1, width="<u2")`: a store in which every cell is cut into so many parts
    of equal ranges of documents."""
    made = 0

    def make(cells: Mapping[str, Documents], parts: int = 1, width: str = "<u2") -> Artifact:
        nonlocal made
        made += 1
        folder = tmp_path / f"store-{made}"
        shards = []
        for cell, documents in sorted(cells.items()):
            ids = sorted(documents)
            for number in range(parts):
                mine = ids[len(ids) * number // parts : len(ids) * (number + 1) // parts]
                shards.append(_part(folder, f"{cell}/{number:05d}", cell, {i: documents[i] for i in mine}, width))
        return Artifact(folder, "d" * 64, {"config": {"dtype": width}}, tuple(shards), {})

    return make


def _part(folder: Path, name: str, cell: str, documents: Documents, width: str) -> Shard:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    lengths = np.array([len(tokens) for tokens in documents.values()], np.int64)
    words = [(i >> 64, i & (1 << 64) - 1) for i in documents]
    hi, lo = (np.array([w[k] for w in words], np.uint64) for k in (0, 1))
    source = pa.array(["source"] * len(lengths)).dictionary_encode()
    index = pa.RecordBatch.from_arrays(
        [
            words_to_ids(hi, lo),
            pa.DictionaryArray.from_arrays(source.indices, pa.array(["source"])),
            pa.array(np.cumsum(lengths) - lengths),
            pa.array(lengths),
            pa.array(lengths * 4),
        ],
        schema=INDEX,
    )
    tokens = np.array([t for tokens in documents.values() for t in tokens], width)
    tokens.tofile(folder / f"{name}.bin")
    with pa.ipc.new_file(folder / f"{name}.arrow", INDEX) as writer:
        writer.write_batch(index)
    files = tuple(File(f"{name}{s}", (folder / f"{name}{s}").stat().st_size, "") for s in (".bin", ".arrow"))
    return Shard(name, len(lengths), "", files, {"cell": cell, "tokens": int(lengths.sum())})
