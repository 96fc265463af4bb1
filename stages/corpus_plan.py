"""The plan of a corpus: from the spec to the recipes of all its stages.

Planning reads the spec, lists the sources and digests their bytes; nothing is computed from text. Every recipe, and
with it every folder, is known before a stage runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from stages import exact_duplicates, ingest, near_duplicates, store
from stages.corpus import CorpusSpec, SourceSpec
from stages.filtering import Filtering
from stages.metrics import Metrics, measure_configs
from stages.recipe import Recipe
from stages.signatures import Signatures
from stages.sources.identity import Identity, identity
from stages.sources.listing import Listing, list_files
from stages.tokenizer_file import locate_tokenizer
from stages.tokenizing import Tokenize, TokenizerFile

STAGES = (
    "ingest",
    "metrics",
    "filters",
    "tokenize",
    "signatures",
    "exact_duplicates",
    "near_duplicates",
    "store",
)
SAMPLE_BYTES = 1 << 20


@dataclass(frozen=True)
class SourcePlan:
    """One source: its files, their identity, and the recipes of the stages that need no other source."""

    name: str
    spec: SourceSpec
    listing: Listing
    identity: Identity
    ingest: Recipe
    metrics: Metrics
    filters: Filtering
    tokenize: Tokenize
    signatures: Signatures

    @property
    def raw(self) -> dict[str, int]:
        """The source's files as they are stored, and their bytes."""
        return {"files": len(self.listing.files), "raw_bytes": sum(f.bytes for f in self.listing.files)}

    @property
    def columns(self) -> tuple[Metrics, Filtering, Tokenize, Signatures]:
        """The column stages, in the order in which they see a document."""
        return (self.metrics, self.filters, self.tokenize, self.signatures)


@dataclass(frozen=True)
class CorpusPlan:
    """All recipes of a corpus, by source name where they belong to one. `sample` is the number of units read of each
    source, or None for all."""

    spec: CorpusSpec
    tokenizer: TokenizerFile
    sources: Mapping[str, SourcePlan]
    sample: int | None

    @cached_property
    def exact_duplicates(self) -> Recipe:
        inputs = {name: (s.spec.priority, s.ingest.digest, s.filters.recipe.digest) for name, s in self.sources.items()}
        return exact_duplicates.recipe(self.spec.corpus, inputs)

    @cached_property
    def near_duplicates(self) -> Recipe:
        sources = {}
        for name, s in self.sources.items():
            digests = {"filters": s.filters.recipe.digest, "signatures": s.signatures.recipe.digest}
            sources[name] = (s.spec.priority, s.spec.near_duplicates, digests)
        return near_duplicates.recipe(self.spec.corpus, self.exact_duplicates.digest, sources)

    @cached_property
    def store(self) -> Recipe:
        inputs = {"near_duplicates": self.near_duplicates.digest}
        tokens = {name: s.tokenize.recipe.digest for name, s in self.sources.items()}
        return store.recipe(self.spec.corpus, self.tokenizer.dtype.str, self.spec.cells, inputs | {"tokenize": tokens})

    def recipes(self) -> list[Recipe]:
        """Every recipe, in the order in which a build makes them."""
        plans = self.sources.values()
        columns = [c.recipe for each in zip(*(s.columns for s in plans), strict=True) for c in each]
        return [*(s.ingest for s in plans), *columns, self.exact_duplicates, self.near_duplicates, self.store]


def plan_corpus(
    spec: CorpusSpec, base: Path, cache: Path, sample: int | None = None, rehash: bool = False
) -> CorpusPlan:
    """Resolve a corpus spec into recipes. `base` is the folder of the spec file, `cache` holds fetched packages and the
    remembered digests of files.

    Raises UserError for what is missing or unreadable.
    """
    tokenizer = locate_tokenizer(spec.tokenizer, base, cache)
    plans = {}
    for name in sorted(spec.sources):
        source = spec.sources[name]
        listing = list_files(source.read, base, cache / "packages", name)
        identified = identity(listing, cache / "files.json", rehash=rehash)
        plans[name] = plan_source(name, source, spec.shard_bytes, tokenizer, listing, identified, sample)
    return CorpusPlan(spec, tokenizer, plans, sample)


def plan_source(
    name: str,
    spec: SourceSpec,
    shard_bytes: int,
    tokenizer: TokenizerFile,
    listing: Listing,
    identified: Identity,
    sample: int | None,
) -> SourcePlan:
    """The recipes of one source; of its files only the identity plays a part."""
    limits = {"units": sample, "bytes": SAMPLE_BYTES} if sample else None
    first = ingest.recipe(name, identified.digest, spec.normalize, spec.max_document, shard_bytes, limits)
    metrics = Metrics(name, first.digest, measure_configs(spec.filters))
    filters = Filtering(name, metrics.recipe.digest, spec.filters)
    tokens = Tokenize(name, first.digest, filters.recipe.digest, tokenizer)
    shingles = Signatures(name, first.digest, spec.near_duplicates)
    return SourcePlan(name, spec, listing, identified, first, metrics, filters, tokens, shingles)
