"""The audit: broken counts and passed ceilings, from artifacts whose counters were changed."""

from dataclasses import replace
from fractions import Fraction

import pytest

from stages.audit import check_ceilings, check_conservation, funnels
from stages.errors import UserError


@pytest.fixture
def tamper(tiny_line):
    """tamper(artifact, change, prefix) gives all artifacts, with the counters of one shard changed."""

    def run(artifact, change, prefix=""):
        shards = list(artifact.shards)
        place = next(i for i, s in enumerate(shards) if s.name.startswith(prefix) and s.rows)
        shards[place] = replace(shards[place], counters=change(shards[place].counters))
        return tiny_line.artifacts | {artifact.digest: replace(artifact, shards=tuple(shards))}

    return run


def funnel_change(part, key, by):
    """A change of one number of a shard's funnel."""

    def change(counters):
        funnel = counters["funnel"]
        return {**counters, "funnel": {**funnel, part: {**funnel[part], key: funnel[part][key] + by}}}

    return change


def test_a_whole_build_passes(tiny_line):
    check_conservation(tiny_line.plan, tiny_line.artifacts)
    check_ceilings(tiny_line.plan, tiny_line.artifacts)


@pytest.mark.parametrize("part", ["in", "kept"])
@pytest.mark.parametrize("key", ["documents", "bytes"])
@pytest.mark.parametrize(("stage", "prefix"), [("ingest", "quarantine/"), ("filters", "")])
def test_one_document_or_byte_too_many(tiny_line, tamper, stage, prefix, part, key):
    artifact = tiny_line.of("copies", stage)
    for by in (1, -1):
        artifacts = tamper(artifact, funnel_change(part, key, by), prefix)
        with pytest.raises(UserError, match=rf"^copies: {stage}: documents went missing"):
            check_conservation(tiny_line.plan, artifacts)


def test_stages_that_disagree(tiny_line, tamper):
    def both(counters):
        return funnel_change("in", "documents", -1)(funnel_change("kept", "documents", -1)(counters))

    artifacts = tamper(tiny_line.exact_duplicates, both, "docstrings/")
    with pytest.raises(UserError, match=r"^docstrings: filters kept \d+ .* but exact_duplicates took in \d+"):
        check_conservation(tiny_line.plan, artifacts)


@pytest.mark.parametrize("key", ["documents", "bytes"])
def test_a_store_that_disagrees(tiny_line, tamper, key):
    def change(counters):
        own = counters["sources"]["reference"]
        return {**counters, "sources": {"reference": {**own, key: own[key] - 1}}}

    with pytest.raises(UserError, match=r"^reference: near_duplicates kept \d+ .* but store took in \d+"):
        check_conservation(tiny_line.plan, tamper(tiny_line.store, change, "reference/"))


def test_what_is_not_built_yet_is_not_asked_for(tiny_line):
    plan, own = tiny_line.plan, {}
    for recipe in plan.recipes()[:3]:
        own[recipe.digest] = tiny_line.artifacts[recipe.digest]
    assert {name: list(stages) for name, stages in funnels(plan, own).items()} == dict.fromkeys(
        plan.sources, ["ingest"]
    )
    check_conservation(plan, own)
    check_ceilings(plan, own)


def test_a_ceiling_is_passed_by_more_than_it_and_not_by_as_much(tiny_line):
    bad, rows = 2, funnels(tiny_line.plan, tiny_line.artifacts)["copies"]["ingest"].entered.documents

    def plan_with(**ceiling):
        source = tiny_line.plan.sources["copies"]
        spec = source.spec.model_copy(update={"ceiling": source.spec.ceiling.model_copy(update=ceiling)})
        return replace(tiny_line.plan, sources={**tiny_line.plan.sources, "copies": replace(source, spec=spec)})

    check_ceilings(plan_with(bad_rows=Fraction(bad, rows)), tiny_line.artifacts)
    with pytest.raises(
        UserError, match=rf"^copies: {bad} of {rows} rows are bad .* most often invalid_json \(1\)\. See .*quarantine"
    ):
        check_ceilings(plan_with(bad_rows=Fraction(bad, rows + 1)), tiny_line.artifacts)
    stages = funnels(tiny_line.plan, tiny_line.artifacts)["copies"]
    kept, left = stages["ingest"].kept.documents, stages["exact_duplicates"].kept.documents
    check_ceilings(plan_with(removed=Fraction(kept - left, kept)), tiny_line.artifacts)
    with pytest.raises(UserError, match=rf"^copies: {kept - left} of {kept} documents were removed"):
        check_ceilings(plan_with(removed=Fraction(kept - left, kept + 1)), tiny_line.artifacts)
