"""Why a document is in or out: every occurrence in every source, each stage's columns, and where its tokens are."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mixer.manifest import read_manifest
from mixer.streams import held_out
from mixer.trace import trace_document
from stages.artifact import Artifact, parse_artifact
from stages.documents import document_shards, ids_to_words, read_columns, read_groups, shard_name
from stages.errors import UserError
from stages.quantity import parse_share
from stages.store import DUPLICATE_COLUMNS, open_part

EXCERPT = 300


def explain(path: Path, document: str) -> dict[str, Any]:
    """What a build knows of the document whose id starts with `document` (at least 8 hex digits).

    Raises UserError when no document, or more than one id, fits, or when the build's artifacts are not there.
    """
    path = path / "manifest.json" if path.is_dir() else path
    manifest = read_manifest(path)
    prefix = document.lower()
    if not 8 <= len(prefix) <= 32 or set(prefix) - set("0123456789abcdef"):
        raise UserError(f"{document!r} is no document id; give 8 to 32 hex digits, such as those in a shard's pieces")
    stages = _artifacts(path.parent.parent.parent, manifest)
    occurrences = [o for name in sorted(manifest["sources"]) for o in _occurrences(stages, name, prefix)]
    ids = sorted({o["id"] for o in occurrences})
    if not ids:
        raise UserError(f"no document of {manifest['mixture']} has an id that starts with {prefix}")
    if len(ids) > 1:
        raise UserError(
            f"{len(ids)} documents have an id that starts with {prefix}: {', '.join(ids[:4])}; give more digits"
        )
    stored = _stored(next(iter(stages["store"].values())), ids[0])
    result: dict[str, Any] = {"id": ids[0], "occurrences": occurrences, "store": stored, "split": None, "sequences": []}
    if stored is not None:
        share = parse_share(manifest["totals"]["validation"])
        hi, lo = np.array([int(ids[0][:16], 16)], np.uint64), np.array([int(ids[0][16:], 16)], np.uint64)
        result["split"] = "validation" if held_out(hi, lo, share)[0] else "train"
        result["domain"] = next((n for n, d in manifest["domains"].items() if stored["cell"] in d["cells"]), None)
        result["sequences"] = _where(path, manifest, ids[0], result["split"])
    return result


def _artifacts(root: Path, manifest: Mapping[str, Any]) -> dict[str, dict[str, Artifact]]:
    import json

    stages: dict[str, dict[str, Artifact]] = {}
    for record in manifest["stages"]:
        folder = root / record["folder"]
        try:
            data = json.loads((folder / "artifact.json").read_bytes())
        except OSError:
            raise UserError(
                f"{folder}: the artifact is not here; explain needs the build folder that the manifest was made in"
            ) from None
        stages.setdefault(record["stage"], {})[record["name"]] = parse_artifact(folder, data)
    return stages


def _occurrences(stages: Mapping[str, Mapping[str, Artifact]], source: str, prefix: str) -> Iterator[dict[str, Any]]:
    ingest, position = stages["ingest"][source], 0
    low, high = int(prefix.ljust(32, "0"), 16) >> 64, int(prefix.ljust(32, "f"), 16) >> 64
    for shard in document_shards(ingest):
        path = ingest.path(shard, ".parquet")
        ids = read_columns(path, ["id"]).column("id")
        hi, _ = ids_to_words(ids)
        for row in np.flatnonzero((hi >= np.uint64(low)) & (hi <= np.uint64(high))).tolist():
            found = ids[row].as_py().hex()
            if found.startswith(prefix):
                yield _occurrence(stages, source, shard_name(shard), path, row, found, position + row)
        position += shard.rows


def _occurrence(
    stages: Mapping[str, Mapping[str, Artifact]],
    source: str,
    name: str,
    path: Path,
    row: int,
    found: str,
    position: int,
) -> dict[str, Any]:
    document = _row(path, row)
    folders = {s: stages[s][source].folder for s in ("metrics", "filters", "tokenize", "signatures")}
    folders |= {s: next(iter(stages[s].values())).folder / source for s in DUPLICATE_COLUMNS}
    columns = {stage: _row(folder / f"{name}.parquet", row) for stage, folder in folders.items()}
    causes = [c for c, hit in columns["filters"].items() if hit and c != "kept"]
    causes += [stage for stage, column in DUPLICATE_COLUMNS.items() if columns[stage][column]]
    return {
        "id": found,
        "source": source,
        "position": position,
        "file": document["file"],
        "row": document["row"],
        "source_id": document["source_id"],
        "bytes": document["bytes"],
        "text": document["text"][:EXCERPT],
        "kept": not causes,
        "causes": causes,
        "columns": columns,
    }


def _row(path: Path, row: int) -> dict[str, Any]:
    """One row of a shard, of all its columns."""
    for batch in read_groups(path):
        if row < batch.num_rows:
            found: dict[str, Any] = batch.slice(row, 1).to_pylist()[0]
            return found
        row -= batch.num_rows
    raise UserError(f"{path}: has no row {row}; run `mixer verify`")


def _stored(store: Artifact, document: str) -> dict[str, Any] | None:
    hi = np.uint64(int(document[:16], 16))
    lo = np.uint64(int(document[16:], 16))
    for shard in store.shards:
        part = open_part(store, shard)
        high, low = part.ids
        for row in range(int(np.searchsorted(high, hi)), int(np.searchsorted(high, hi, "right"))):
            if low[row] == lo:
                entry = part.index.slice(row, 1).to_pylist()[0]
                return {
                    "cell": shard.counters["cell"],
                    "file": str(store.path(shard, ".bin")),
                    "source": entry["source"],
                    "offset": entry["offset"],
                    "length": entry["length"],
                }
    return None


def _where(path: Path, manifest: Mapping[str, Any], document: str, split: str) -> list[dict[str, Any]]:
    """Where the document's pieces are: in the shards, or, of a virtual mixture, in the order of training."""
    if manifest["materialized"]:
        return list(_sequences(path.parent, manifest, document, split))
    if split != "train":
        return []
    found = trace_document(path, document)
    return [{"domain": found["domain"], "shard": None, **s} for s in found["seen"]]


def _sequences(folder: Path, manifest: Mapping[str, Any], document: str, split: str) -> Iterator[dict[str, Any]]:
    """Where the document's pieces are, in the order of training."""
    for shard in manifest["shards"]:
        if shard["split"] != split:
            continue
        with pq.ParquetFile(folder / shard["path"]) as file:
            for i in range(file.num_row_groups):
                table = file.read_row_group(i, columns=["domain", "position", "pieces"])
                pieces = pc.list_flatten(table.column("pieces")).combine_chunks()
                parents = pc.list_parent_indices(table.column("pieces")).combine_chunks()
                hits = pc.indices_nonzero(pc.equal(pc.struct_field(pieces, "id"), document))
                for hit in hits.to_pylist():
                    row = parents[hit].as_py()
                    piece = pieces[hit].as_py()
                    yield {
                        "position": table.column("position")[row].as_py(),
                        "domain": table.column("domain")[row].as_py(),
                        "shard": shard["path"],
                        "start": piece["start"],
                        "end": piece["end"],
                    }
