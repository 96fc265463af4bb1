"""The manifest: what a mixture is made of, in numbers and digests, and nothing that differs from run to run.

The root digest is the sha256 over the manifest's canonical JSON without `root`, `software`, and the bytes and sha256
of the shard files: those belong to a copy, the root to the content. `MANIFEST` is the published schema.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stages.artifact import Artifact, write_json
from stages.errors import UserError
from stages.recipe import digest_of

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
    """A domain. `available_tokens`: what the store holds of it for training; `pool`: about how many of them a rung of
    the ladder is confined to, null in a full run."""

    cells: list[str]
    max_epochs: str
    available_tokens: int
    pool: int | None
    asked: Asked
    planned: Planned
    realized: Realized
    validation: Validation


class PhaseDomain(_Part):
    """What a domain asks of a phase and what it is given, exact shares of the phase, and its planned sequences."""

    asked: str
    given: str
    sequences: int


class Phase(_Part):
    """A phase covers the positions [first, first + sequences) of the run. `planned` is how many sequences its plan has:
    more than `sequences` only where an amendment cut it."""

    name: str
    segment: int
    first: int
    sequences: int
    planned: int
    domains: dict[str, PhaseDomain]


class Segment(_Part):
    """A part of the run with one plan. `offsets`: tokens of every domain's stream that were drawn before it."""

    first: int
    sequences: int
    sequence_length: int
    offsets: dict[str, int]


class LogEntry(_Part):
    """A change in mid-run: the root of the manifest before it, the position from which it holds, and half the L1
    distance between the shares of the tokens that were planned from there on and those that are now, as a fraction."""

    parent: str
    at: int
    reason: str
    distance: str


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
    rung: str | None
    materialized: bool
    sample: int | None = Field(description="Units read of each source for a sample; null for a whole build.")
    totals: Totals
    tokenizer: TokenizerRecord
    specs: dict[Literal["mixture", "corpus"], SpecRecord]
    sources: dict[str, Source]
    cells: dict[str, dict[str, CellCount]]
    domains: dict[str, Domain]
    segments: list[Segment]
    phases: list[Phase]
    log: list[LogEntry]
    shards: list[ManifestShard]
    stages: list[StageRecord]


def root_digest(data: Mapping[str, Any]) -> str:
    """The root digest of a manifest given as plain data; see the module's docstring."""
    kept = {k: v for k, v in data.items() if k not in ("root", "software")}
    shards = [{k: v for k, v in shard.items() if k not in COPY_FIELDS} for shard in data["shards"]]
    return digest_of(kept | {"shards": shards})


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
