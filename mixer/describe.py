"""Describing what was built: the manifest, generated from the artifacts."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from importlib.metadata import version
from typing import Any

from pydantic import BaseModel

from mixer.domains import Domains
from mixer.manifest import SCHEMA, counters_digest, root_digest
from mixer.mixture import Mixture
from mixer.plan import Run, Supply, phases_in
from mixer.spec import MixtureSpec
from stages.artifact import Artifact, Shard
from stages.audit import funnels
from stages.corpus import CorpusSpec
from stages.corpus_plan import CorpusPlan
from stages.recipe import digest_of
from stages.store import cells_of


@dataclass(frozen=True)
class Written:
    """A mixture with its run, what the store holds, and the artifact of its shards. `pools` are a rung's."""

    spec: MixtureSpec
    domains: Domains
    run: Run
    supply: Mapping[str, Supply]
    mixture: Mixture
    artifact: Artifact
    materialized: bool
    rung: str | None = None
    pools: Mapping[str, int] | None = None


def describe_corpus(
    corpus: CorpusSpec, line: CorpusPlan, artifacts: Mapping[str, Artifact], split: Artifact
) -> dict[str, Any]:
    """The parts of a manifest that do not depend on the mixture; `stages` are those up to the split."""
    made = [*(artifacts[recipe.digest] for recipe in line.recipes()), split]
    return {
        "sample": line.sample,
        "tokenizer": {
            "sha256": line.tokenizer.sha256,
            "vocabulary": line.tokenizer.vocabulary,
            "end_of_text": line.tokenizer.end_of_text,
            "dtype": line.tokenizer.dtype.str,
        },
        "corpus": spec_record(corpus),
        "sources": _sources(line, artifacts),
        "cells": cells_of(artifacts[line.store.digest]),
        "stages": [stage_record(artifact) for artifact in made],
    }


def make_manifest(corpus: Mapping[str, Any], written: Written, log: list[dict[str, Any]]) -> dict[str, Any]:
    """The manifest as plain data, root included. `corpus` is what `describe_corpus` gives, or the same of an older
    manifest of the same corpus; `log` are the changes in mid-run."""
    made = [*written.mixture.streams.values(), written.mixture.orders, written.artifact]
    planned = plan_records(written.domains, written.run, written.supply, written.pools)
    data = {
        "schema": SCHEMA,
        "software": {"name": "mixer", "version": version("mixer")},
        "mixture": written.spec.mixture,
        "rung": written.rung,
        "materialized": written.materialized,
        "sample": corpus["sample"],
        "tokenizer": corpus["tokenizer"],
        "specs": {"mixture": spec_record(written.spec), "corpus": corpus["corpus"]},
        "sources": corpus["sources"],
        "cells": corpus["cells"],
        **planned,
        "domains": {name: d | _realized(written, name) for name, d in planned["domains"].items()},
        "log": log,
        "shards": [_shard(written.artifact, s) for s in written.artifact.shards],
        "stages": [*corpus["stages"], *(stage_record(artifact) for artifact in made)],
    }
    data["root"] = root_digest(data)
    return data


def plan_records(
    domains: Domains, run: Run, supply: Mapping[str, Supply], pools: Mapping[str, int] | None
) -> dict[str, Any]:
    """What a manifest says of the run before anything is written: totals, segments, phases, and of every domain the
    cells, caps, and what is asked and planned."""
    return {
        "totals": {
            "budget": run.budget,
            "sequence_length": run.segments[-1].plan.sequence_length,
            "sequences": run.sequences,
            "tokens": run.tokens,
            "unused_tokens": run.budget - run.tokens,
            "seed": domains.spec.seed,
            "validation": str(domains.spec.validation),
        },
        "segments": [
            {
                "first": s.first,
                "sequences": s.sequences,
                "sequence_length": s.plan.sequence_length,
                "offsets": dict(s.offsets),
            }
            for s in run.segments
        ],
        "phases": [
            {
                "name": phase.name,
                "segment": number,
                "first": first,
                "sequences": span,
                "planned": phase.sequences,
                "domains": {
                    d: {"asked": str(phase.asked[d]), "given": str(phase.given[d]), "sequences": phase.planned[d]}
                    for d in run.domains
                },
            }
            for number, segment in enumerate(run.segments)
            for phase, first, span in phases_in(segment)
        ],
        "domains": {
            leaf.name: {
                "cells": sorted(leaf.cells),
                "max_epochs": str(leaf.max_epochs),
                "available_tokens": supply[leaf.name].tokens,
                "pool": None if pools is None else pools[leaf.name],
                "asked": {"weight": str(run.asked(leaf.name))},
                "planned": {
                    "weight": str(Fraction(run.tokens_of(leaf.name), run.tokens)),
                    "sequences": run.sequences_of(leaf.name),
                    "tokens": run.tokens_of(leaf.name),
                },
            }
            for leaf in domains.leaves
        },
    }


def spec_record(spec: BaseModel) -> dict[str, Any]:
    """A spec as a manifest holds it."""
    content = spec.model_dump(mode="json")
    return {"digest": digest_of(content), "spec": content}


def _sources(line: CorpusPlan, artifacts: Mapping[str, Artifact]) -> dict[str, Any]:
    dropped_tokens = artifacts[line.store.digest].counters["dropped_tokens"]
    sources = {}
    for name, stages in funnels(line, artifacts).items():
        plan = line.sources[name]
        tokenized = sum(s.counters["counts"]["tokens"] for s in artifacts[plan.tokenize.recipe.digest].shards)
        lost = dropped_tokens.get(name, {})
        funnel, left = [], tokenized
        for stage, counts in stages.items():
            entered, kept = (None, None)
            if stage == "filters":
                kept = tokenized
            elif stage in lost:
                entered, kept = left, left - lost[stage]
                left = kept
            funnel.append(
                {
                    "stage": stage,
                    "entered": counts.entered.to_json() | {"tokens": entered},
                    "kept": counts.kept.to_json() | {"tokens": kept},
                    "dropped": {c: n.to_json() | {"tokens": lost.get(c)} for c, n in sorted(counts.first.items())},
                    "every_cause": {c: n.to_json() | {"tokens": lost.get(c)} for c, n in sorted(counts.every.items())},
                }
            )
        sources[name] = {
            "identity": plan.identity.digest,
            "licence": plan.spec.licence,
            "homepage": plan.spec.homepage,
            **artifacts[plan.ingest.digest].counters,
            "documents": stages["ingest"].entered.documents,
            "funnel": funnel,
        }
    return sources


def _realized(written: Written, name: str) -> dict[str, Any]:
    """What the shards hold of a domain; of a virtual mixture, what its readers will see."""
    run, supply = written.run, written.supply[name]
    length = run.segments[-1].plan.sequence_length
    streams = {s.name: s for s in written.mixture.streams[name].shards}
    unique, held = streams["train"].counters["unique_tokens"], streams["validation"].counters["tokens"]
    sequences, tokens = run.sequences_of(name), run.tokens_of(name)
    if written.materialized:
        train = [s.counters for s in written.artifact.shards if s.name.startswith("train/")]
        sequences = sum(c["sequences"][name] for c in train)
        tokens = sum(c["sequences"][name] * c["length"] for c in train)
    return {
        "realized": {
            "weight": str(Fraction(tokens, run.tokens)),
            "sequences": sequences,
            "tokens": tokens,
            "unique_tokens": unique,
            "documents": supply.documents,
            "epochs": str(Fraction(tokens, unique)) if unique else "0",
        },
        "validation": {
            "documents": supply.validation_documents,
            "tokens": held,
            "sequences": held // length,
            "tail_tokens": held % length,
        },
    }


def _shard(written: Artifact, shard: Shard) -> dict[str, Any]:
    split = shard.name.partition("/")[0]
    return {
        "path": shard.files[0].path,
        "split": split,
        "bytes": shard.files[0].bytes,
        "sha256": shard.files[0].sha256,
        "content": shard.content,
        "sequences": shard.rows,
        "first": shard.counters.get("first"),
        "domains": {d: n for d, n in sorted(shard.counters["sequences"].items()) if n},
    }


def stage_record(artifact: Artifact) -> dict[str, Any]:
    """A stage's artifact as a manifest names it."""
    stage, folder = artifact.folder.parent.name, artifact.folder.name
    return {
        "stage": stage,
        "name": folder.rpartition("-")[0],
        "version": artifact.recipe["version"],
        "digest": artifact.digest,
        "content": artifact.content,
        "counters": counters_digest(artifact),
        "rows": artifact.rows,
        "folder": f"{stage}/{folder}",
    }
