"""Counting a mixture again, from the rows of its artifacts instead of their counters."""

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mixer.streams import ENDS, held_out
from stages.artifact import Artifact
from stages.documents import document_shards, read_columns, shard_name
from stages.exact_duplicates import read_raw
from stages.funnel import Count, Funnel, count_causes
from stages.store import DUPLICATE_COLUMNS, open_part


def recount_funnel(source: str, artifacts: Mapping[str, Artifact]) -> list[Any]:
    """The funnel of a source as a manifest holds it, from the columns of its artifacts (by stage)."""
    ingest = artifacts["ingest"]
    entered, filtered = Funnel(), Funnel()
    lost = {cause: Funnel() for cause in DUPLICATE_COLUMNS}
    tokenized, lost_tokens = 0, dict.fromkeys(DUPLICATE_COLUMNS, 0)
    for shard in document_shards(ingest):
        name = shard_name(shard)
        sizes = read_columns(ingest.path(shard, ".parquet"), ["bytes"]).column("bytes").to_numpy()
        entered += Funnel(_count(sizes), _count(sizes))
        causes = read_columns(artifacts["filters"].folder / f"{name}.parquet")
        masks = {c: causes.column(c).to_numpy() for c in causes.column_names if c != "kept"}
        funnel, kept = count_causes(masks, sizes)
        filtered += funnel
        counts = read_columns(artifacts["tokenize"].folder / f"{name}.parquet", ["token_count"]).column(0).to_numpy()
        tokenized += int(counts.sum())
        for cause, column in DUPLICATE_COLUMNS.items():
            mask = read_columns(artifacts[cause].folder / source / f"{name}.parquet", [column]).column(0).to_numpy()
            lost[cause] += count_causes({cause: mask[kept]}, sizes[kept])[0]
            lost_tokens[cause] += int(counts[kept & mask].sum())
            kept &= ~mask
    reasons = _quarantined(ingest)
    bad = sum(reasons.values())
    first = Funnel(Count(entered.kept.documents + bad, entered.kept.bytes), entered.kept)
    no_bytes = {r: Count(n) for r, n in reasons.items()}
    stages = [
        _stage("ingest", first.entered, first.kept, no_bytes, no_bytes, (None, None), {}),
        _stage("filters", filtered.entered, filtered.kept, filtered.first, filtered.every, (None, tokenized), {}),
    ]
    left = tokenized
    for cause, funnel in lost.items():
        tokens = (left, left - lost_tokens[cause])
        dropped = {cause: lost_tokens[cause]}
        stages.append(_stage(cause, funnel.entered, funnel.kept, funnel.first, funnel.every, tokens, dropped))
        left = tokens[1]
    return stages


def _count(sizes: np.ndarray) -> Count:
    return Count(len(sizes), int(sizes.sum()))


def _quarantined(ingest: Artifact) -> dict[str, int]:
    reasons: dict[str, int] = {}
    for shard in ingest.shards:
        if shard.name.startswith("quarantine/"):
            for known in shard.counters["funnel"]["dropped"]:
                reasons.setdefault(known, 0)
            for value in pc.value_counts(
                read_columns(ingest.path(shard, ".parquet"), ["reason"]).column(0)
            ).to_pylist():
                reasons[value["values"]] = reasons.get(value["values"], 0) + value["counts"]
    return reasons


def _stage(
    stage: str,
    entered: Count,
    kept: Count,
    first: Mapping[str, Count],
    every: Mapping[str, Count],
    tokens: tuple[int | None, int | None],
    lost: Mapping[str, int],
) -> dict[str, Any]:
    return {
        "stage": stage,
        "entered": entered.to_json() | {"tokens": tokens[0]},
        "kept": kept.to_json() | {"tokens": tokens[1]},
        "dropped": {c: n.to_json() | {"tokens": lost.get(c)} for c, n in sorted(first.items())},
        "every_cause": {c: n.to_json() | {"tokens": lost.get(c)} for c, n in sorted(every.items())},
    }


def recount_cells(store: Artifact) -> dict[str, dict[str, dict[str, int]]]:
    """The cells x sources table, from the store's index."""
    cells: dict[str, dict[str, dict[str, int]]] = {}
    for shard in store.shards:
        table = cells.setdefault(shard.counters["cell"], {})
        index = open_part(store, shard).index.select(["source", "length", "bytes"])
        sums = index.group_by("source").aggregate([("length", "count"), ("length", "sum"), ("bytes", "sum")])
        for row in sums.to_pylist():
            entry = table.setdefault(row["source"], {"documents": 0, "tokens": 0, "bytes": 0})
            entry["documents"] += row["length_count"]
            entry["tokens"] += row["length_sum"]
            entry["bytes"] += row["bytes_sum"]
    return cells


def recount_supply(store: Artifact, cells: list[str], validation: Fraction) -> dict[str, int]:
    """Training and held-out documents and tokens of a domain, from the ids in the store."""
    totals = {"documents": 0, "tokens": 0, "validation_documents": 0, "validation_tokens": 0}
    for shard in store.shards:
        if shard.counters["cell"] in cells:
            part = open_part(store, shard)
            out = held_out(*part.ids, validation)
            totals["documents"] += int((~out).sum())
            totals["tokens"] += int(part.length[~out].sum())
            totals["validation_documents"] += int(out.sum())
            totals["validation_tokens"] += int(part.length[out].sum())
    return totals


def recount_shard(path: Path) -> tuple[int, dict[str, int], int | None]:
    """Rows, sequences of each domain, and the first position of a training or validation shard file."""
    table = pq.read_table(path, columns=["domain", "position"])
    domains = {v["values"]: v["counts"] for v in pc.value_counts(table.column("domain")).to_pylist()}
    first = table.column("position")[0].as_py() if table.num_rows else None
    return table.num_rows, dict(sorted(domains.items())), first


def recount_stream(stream: Artifact) -> int:
    """The tokens of one pass over a domain's training stream, from the ends of its documents."""
    shard = next(s for s in stream.shards if s.name == "train")
    ends = read_raw(stream.path(shard, ".ends.bin"), ENDS)
    return int(ends[-1]) // int(stream.recipe["config"]["epochs"]) if len(ends) else 0
