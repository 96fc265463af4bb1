"""The recipes that a manifest's own specs, source identities and tokenizer lead to.

A recipe's digest holds every setting that can change its output, so comparing these with the digests that the manifest
records ties the specs to what was built, without any data.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mixer.order import ORDER_VERSION
from mixer.plan import Plan
from mixer.shards import Mixture, mixture_recipe
from mixer.spec import MixtureSpec
from mixer.streams import Domain, split_recipe, stream_recipe, whole_epochs
from stages.artifact import Artifact
from stages.corpus import CorpusSpec
from stages.line import CorpusPlan, plan_source
from stages.recipe import Recipe
from stages.sources.identity import Identity
from stages.sources.listing import Listing
from stages.tokenizing import TokenizerFile


def recipes_of(manifest: Mapping[str, Any], corpus: CorpusSpec, spec: MixtureSpec, plan: Plan) -> list[Recipe]:
    """The recipes of all stages, in the order of a manifest's `stages`.

    Raises KeyError when the manifest lacks a source of the corpus or a domain of the mixture.
    """
    line = _line(manifest, corpus)
    store = Artifact(Path(), line.store.digest, {}, (), {})
    domains = tuple(Domain(name, tuple(sorted(d.cells))) for name, d in sorted(spec.domains.items()))
    streams = []
    for domain in domains:
        unique = manifest["domains"][domain.name]["realized"]["unique_tokens"]
        epochs = whole_epochs(plan.planned(domain.name) * plan.sequence_length, unique)
        streams.append(stream_recipe(domain, store.digest, spec.seed, spec.validation, epochs))
    made = {d.name: Artifact(Path(), r.digest, {}, (), {}) for d, r in zip(domains, streams, strict=True)}
    mixture = Mixture(domains, plan.counts, plan.sequence_length, manifest["tokenizer"]["dtype"], store, made)
    split = split_recipe(spec.mixture, store.digest, spec.validation)
    return [*line.recipes(), split, *streams, mixture_recipe(spec.mixture, mixture, ORDER_VERSION)]


def _line(manifest: Mapping[str, Any], corpus: CorpusSpec) -> CorpusPlan:
    record, sample = manifest["tokenizer"], manifest["sample"]
    tokenizer = TokenizerFile(Path(), record["sha256"], record["end_of_text"], record["vocabulary"])
    plans = {}
    for name, source in sorted(corpus.sources.items()):
        identity = Identity(manifest["sources"][name]["identity"], ())
        listing = Listing(name, source.read, ())
        plans[name] = plan_source(name, source, corpus.shard_bytes, tokenizer, listing, identity, sample)
    return CorpusPlan(corpus, tokenizer, plans, sample)
