"""The manifest: what a mixture is made of, in numbers and digests, and nothing that differs from run to run.

The root digest is the sha256 over the manifest's canonical JSON without `root`, `software`, and the bytes and sha256
of the shard files: those belong to a copy, the root to the content. `MANIFEST` is the published schema.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mixer.plan import Plan, Supply
from mixer.shards import Mixture
from mixer.spec import MixtureSpec
from stages.artifact import Artifact, write_json
from stages.audit import funnels
from stages.corpus import CorpusSpec
from stages.errors import UserError
from stages.line import CorpusPlan
from stages.recipe import digest_of
from stages.store import cells_of

SCHEMA = "mixer/manifest/1"
COPY_FIELDS = ("bytes", "sha256")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Tally(_Part):
    """How much: documents, UTF-8 bytes of normalized text, and tokens of the manifest's tokenizer (null before a
    document has been tokenized)."""

    documents: int
    bytes: int
    tokens: int | None


class FunnelStage(_Part):
    """What one stage did to a source. `dropped` counts each document once, under its first cause; `every_cause` counts
    it under every cause of this stage. Tokens of the causes are null where nothing was tokenized."""

    stage: str
    entered: Tally
    kept: Tally
    dropped: dict[str, Tally]
    every_cause: dict[str, Tally]


class Source(_Part):
    """One source: `identity` is the digest of its files' bytes and of how they are read."""

    identity: str
    licence: str
    homepage: str | None
    files: int
    raw_bytes: int = Field(description="Size of the source's files as stored.")
    documents: int = Field(description="Rows that the source holds, bad ones included.")
    funnel: list[FunnelStage]


class CellCount(_Part):
    documents: int
    tokens: int
    bytes: int


class Asked(_Part):
    """An exact share of the run, as a fraction."""

    weight: str


class Planned(_Part):
    weight: str
    sequences: int
    tokens: int
    epochs: str


class Realized(_Part):
    """What the shards hold. `unique_tokens` is what one epoch has; epochs = tokens / unique_tokens, as a fraction."""

    weight: str
    sequences: int
    tokens: int
    unique_tokens: int
    documents: int
    epochs: str


class Validation(_Part):
    """A domain's held-out documents. `tail_tokens` do not fill a sequence and are in no shard."""

    documents: int
    tokens: int
    sequences: int
    tail_tokens: int


class Domain(_Part):
    cells: list[str]
    max_epochs: str
    asked: Asked
    planned: Planned
    realized: Realized
    validation: Validation


class PhaseDomain(_Part):
    asked: str
    sequences: int


class Phase(_Part):
    """A phase covers the positions [first, first + sequences) of the training order."""

    name: str
    first: int
    sequences: int
    domains: dict[str, PhaseDomain]


class ManifestShard(_Part):
    """A shard file. `first` is the position of its first sequence in the training order (null for validation)."""

    path: str
    split: Literal["train", "validation"]
    bytes: int
    sha256: str
    content: str
    sequences: int
    first: int | None
    domains: dict[str, int]


class StageRecord(_Part):
    """A stage's artifact: its recipe digest, the content digest over its shards, the digest of its counters, and its
    folder in the build."""

    stage: str
    name: str
    version: int
    digest: str
    content: str
    counters: str
    rows: int
    folder: str


class SpecRecord(_Part):
    digest: str
    spec: dict[str, Any]


class Software(_Part):
    name: str
    version: str


class TokenizerRecord(_Part):
    sha256: str
    vocabulary: int
    end_of_text: int
    dtype: str


class Totals(_Part):
    budget: int
    sequence_length: int
    sequences: int
    tokens: int
    unused_tokens: int
    seed: int
    validation: str


class Manifest(_Part):
    """manifest.json of a mixture."""

    model_config = ConfigDict(extra="forbid", frozen=True, title="mixer manifest")

    schema_: Literal["mixer/manifest/1"] = Field(alias="schema")
    software: Software
    mixture: str
    root: str
    sample: int | None = Field(description="Units read of each source for a sample; null for a whole build.")
    totals: Totals
    tokenizer: TokenizerRecord
    specs: dict[Literal["mixture", "corpus"], SpecRecord]
    sources: dict[str, Source]
    cells: dict[str, dict[str, CellCount]]
    domains: dict[str, Domain]
    phases: list[Phase]
    shards: list[ManifestShard]
    stages: list[StageRecord]


@dataclass(frozen=True)
class Facts:
    """Everything that a manifest is generated from."""

    spec: MixtureSpec
    corpus: CorpusSpec
    line: CorpusPlan
    artifacts: Mapping[str, Artifact]
    split: Artifact
    plan: Plan
    supply: Mapping[str, Supply]
    mixture: Mixture
    written: Artifact


def make_manifest(facts: Facts) -> dict[str, Any]:
    """The manifest as plain data, root included."""
    plan = facts.plan
    data = {
        "schema": SCHEMA,
        "software": {"name": "mixer", "version": version("mixer")},
        "mixture": facts.spec.mixture,
        "sample": facts.line.sample,
        "totals": {
            "budget": plan.budget,
            "sequence_length": plan.sequence_length,
            "sequences": plan.sequences,
            "tokens": plan.sequences * plan.sequence_length,
            "unused_tokens": plan.budget - plan.sequences * plan.sequence_length,
            "seed": facts.spec.seed,
            "validation": str(facts.spec.validation),
        },
        "tokenizer": {
            "sha256": facts.line.tokenizer.sha256,
            "vocabulary": facts.line.tokenizer.vocabulary,
            "end_of_text": facts.line.tokenizer.end_of_text,
            "dtype": facts.mixture.dtype,
        },
        "specs": {"mixture": _spec(facts.spec), "corpus": _spec(facts.corpus)},
        "sources": _sources(facts),
        "cells": cells_of(facts.artifacts[facts.line.store.digest]),
        "domains": _domains(facts),
        "phases": phases_of(plan),
        "shards": [_shard(facts.written, s) for s in facts.written.shards],
        "stages": _stages(facts),
    }
    data["root"] = root_digest(data)
    return data


def root_digest(data: Mapping[str, Any]) -> str:
    """The root digest of a manifest given as plain data; see the module's docstring."""
    kept = {k: v for k, v in data.items() if k not in ("root", "software")}
    shards = [{k: v for k, v in shard.items() if k not in COPY_FIELDS} for shard in data["shards"]]
    return digest_of(kept | {"shards": shards})


def _spec(spec: BaseModel) -> dict[str, Any]:
    content = spec.model_dump(mode="json")
    return {"digest": digest_of(content), "spec": content}


def _sources(facts: Facts) -> dict[str, Any]:
    dropped_tokens = facts.artifacts[facts.line.store.digest].counters["dropped_tokens"]
    sources = {}
    for name, stages in funnels(facts.line, facts.artifacts).items():
        plan = facts.line.sources[name]
        tokenized = sum(s.counters["counts"]["tokens"] for s in facts.artifacts[plan.tokenize.recipe.digest].shards)
        lost = dropped_tokens.get(name, {})
        funnel = []
        for stage, counts in stages.items():
            tokens = {
                "filters": (None, tokenized),
                "exact_duplicates": (tokenized, tokenized - sum(lost.values())),
            }
            entered, kept = tokens.get(stage, (None, None))
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
            **facts.artifacts[plan.ingest.digest].counters,
            "documents": stages["ingest"].entered.documents,
            "funnel": funnel,
        }
    return sources


def _domains(facts: Facts) -> dict[str, Any]:
    plan, length = facts.plan, facts.plan.sequence_length
    domains = {}
    for domain in facts.mixture.domains:
        name, supply = domain.name, facts.supply[domain.name]
        planned = plan.planned(name)
        realized = sum(s.counters["sequences"][name] for s in facts.written.shards if s.name.startswith("train/"))
        held = next(s for s in facts.written.shards if s.name == f"validation/{name}")
        own = facts.spec.domains[name].max_epochs
        domains[name] = {
            "cells": list(domain.cells),
            "max_epochs": str(facts.spec.max_epochs if own is None else own),
            "asked": {"weight": str(plan.asked(name))},
            "planned": {
                "weight": str(Fraction(planned, plan.sequences)),
                "sequences": planned,
                "tokens": planned * length,
                "epochs": str(plan.epochs(name, supply)),
            },
            "realized": {
                "weight": str(Fraction(realized, plan.sequences)),
                "sequences": realized,
                "tokens": realized * length,
                "unique_tokens": supply.tokens,
                "documents": supply.documents,
                "epochs": str(Fraction(realized * length, supply.tokens) if supply.tokens else 0),
            },
            "validation": {
                "documents": supply.validation_documents,
                "tokens": supply.validation_tokens,
                "sequences": held.rows,
                "tail_tokens": held.counters["tail_tokens"],
            },
        }
    return domains


def phases_of(plan: Plan) -> list[dict[str, Any]]:
    """The phases of a manifest, from the plan."""
    phases, first = [], 0
    for phase in plan.phases:
        domains = {d: {"asked": str(phase.asked[d]), "sequences": phase.planned[d]} for d in plan.domains}
        phases.append({"name": phase.name, "first": first, "sequences": phase.sequences, "domains": domains})
        first += phase.sequences
    return phases


def _shard(written: Artifact, shard: Any) -> dict[str, Any]:
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


def _stages(facts: Facts) -> list[dict[str, Any]]:
    streams = facts.mixture.streams.values()
    made = [*(facts.artifacts[r.digest] for r in facts.line.recipes()), facts.split, *streams, facts.written]
    records = []
    for artifact in made:
        stage, folder = artifact.folder.parent.name, artifact.folder.name
        records.append(
            {
                "stage": stage,
                "name": folder.rpartition("-")[0],
                "version": artifact.recipe["version"],
                "digest": artifact.digest,
                "content": artifact.content,
                "counters": counters_digest(artifact),
                "rows": artifact.rows,
                "folder": f"{stage}/{folder}",
            }
        )
    return records


def counters_digest(artifact: Artifact) -> str:
    """The digest of everything that an artifact has counted."""
    return digest_of([artifact.counters, [[s.name, s.counters] for s in artifact.shards]])


def write_manifest(path: Path, data: dict[str, Any]) -> None:
    """Write the manifest unless the same one is there already."""
    if not path.exists() or json.loads(path.read_bytes()) != data:
        Manifest.model_validate(data)
        write_json(path, data)


def read_manifest(path: Path) -> dict[str, Any]:
    """A manifest as plain data. `path` may also be the folder that holds it.

    Raises UserError when it is missing, no manifest, or not of the published schema.
    """
    path = path / "manifest.json" if path.is_dir() else path
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise UserError(f"{path}: there is no manifest; build it with `mixer build SPEC`") from None
    except ValueError as error:
        raise UserError(f"{path}: is not JSON: {error}") from None
    try:
        Manifest.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"])
        raise UserError(f"{path}: is not a manifest of this version ({SCHEMA}): {where}: {first['msg']}") from None
    return data
