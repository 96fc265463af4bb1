"""The recipes that a manifest's own specs, source identities and tokenizer lead to.

A recipe's digest holds every setting that can change its output, so comparing these with the digests that the manifest
records ties the specs to what was built, without any data.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mixer.domains import Domains
from mixer.mixture import Mixture, order_recipe
from mixer.plan import Run
from mixer.shards import mixture_recipe
from mixer.streams import split_recipe, stream_recipe, whole_epochs
from mixer.writing import domain_list
from stages.artifact import Artifact
from stages.corpus import CorpusSpec
from stages.corpus_plan import CorpusPlan, plan_source
from stages.recipe import Recipe
from stages.sources.identity import Identity
from stages.sources.listing import Listing
from stages.tokenizing import TokenizerFile


def recipes_of(
    manifest: Mapping[str, Any], corpus: CorpusSpec, domains: Domains, run: Run, pools: Mapping[str, int] | None
) -> list[Recipe]:
    """The recipes of all stages, in the order of a manifest's `stages`.

    Raises KeyError when the manifest lacks a source of the corpus or a domain of the mixture.
    """
    spec, line = domains.spec, _line(manifest, corpus)
    streams = {}
    for domain in domain_list(domains):
        pool = None if pools is None else pools[domain.name]
        unique = manifest["domains"][domain.name]["available_tokens"] if pool is None else pool
        epochs = whole_epochs(run.tokens_of(domain.name), unique)
        streams[domain.name] = stream_recipe(domain, line.store.digest, spec.seed, spec.validation, epochs, pool)
    order = order_recipe(spec.mixture, run.domains, run.segments)
    made = {name: _nowhere(recipe) for name, recipe in streams.items()}
    dtype = manifest["tokenizer"]["dtype"]
    mixture = Mixture(domain_list(domains), run.segments, dtype, _nowhere(line.store), made, _nowhere(order))
    split = split_recipe(spec.mixture, line.store.digest, spec.validation)
    written = mixture_recipe(
        spec.mixture, mixture, manifest["materialized"], [a.model_dump(mode="json") for a in spec.amendments]
    )
    return [*line.recipes(), split, *streams.values(), order, written]


def _nowhere(recipe: Recipe) -> Artifact:
    """An artifact that stands for its digest only."""
    return Artifact(Path(), recipe.digest, {}, (), {})


def _line(manifest: Mapping[str, Any], corpus: CorpusSpec) -> CorpusPlan:
    record, sample = manifest["tokenizer"], manifest["sample"]
    tokenizer = TokenizerFile(Path(), record["sha256"], record["end_of_text"], record["vocabulary"])
    plans = {}
    for name, source in sorted(corpus.sources.items()):
        identity = Identity(manifest["sources"][name]["identity"], ())
        listing = Listing(name, source.read, ())
        plans[name] = plan_source(name, source, corpus.shard_bytes, tokenizer, listing, identity, sample)
    return CorpusPlan(corpus, tokenizer, plans, sample)
