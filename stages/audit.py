"""What happened to every source, stage by stage, and the checks that stop a build: conservation and ceilings."""

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

from stages.artifact import Artifact
from stages.errors import UserError
from stages.funnel import Count, Funnel
from stages.store import cells_of

if TYPE_CHECKING:
    from stages.corpus_plan import CorpusPlan


def funnels(plan: "CorpusPlan", artifacts: Mapping[str, Artifact]) -> dict[str, dict[str, Funnel]]:
    """Source -> stage -> funnel, for the stages whose artifacts are there."""
    table: dict[str, dict[str, Funnel]] = {}
    for name, source in plan.sources.items():
        stages = {"ingest": source.ingest.digest, "filters": source.filters.recipe.digest}
        table[name] = {stage: _total(artifacts[digest], "") for stage, digest in stages.items() if digest in artifacts}
        for recipe in (plan.exact_duplicates, plan.near_duplicates):
            if recipe.digest in artifacts:
                table[name][recipe.stage] = _total(artifacts[recipe.digest], f"{name}/")
    return table


def _total(artifact: Artifact, prefix: str) -> Funnel:
    total = Funnel()
    for shard in artifact.shards:
        if shard.name.startswith(prefix) and "funnel" in shard.counters:
            total += Funnel.from_json(shard.counters["funnel"])
    return total


def check_ceilings(plan: "CorpusPlan", artifacts: Mapping[str, Artifact]) -> None:
    """Raise UserError naming every source that lost more than its ceilings allow."""
    complaints = []
    for name, stages in funnels(plan, artifacts).items():
        ceiling = plan.sources[name].spec.ceiling
        entered, kept = stages["ingest"].entered.documents, stages["ingest"].kept.documents
        bad = entered - kept
        if Fraction(bad) > ceiling.bad_rows * entered:
            worst = max(stages["ingest"].first.items(), key=lambda item: item[1].documents)
            folder = artifacts[plan.sources[name].ingest.digest].folder / "quarantine"
            complaints.append(
                f"{name}: {bad} of {entered} rows are bad ({_percent(bad, entered)}), over its ceiling.bad_rows of "
                f"{_percent(ceiling.bad_rows, 1)}; most often {worst[0]} ({worst[1].documents}). See {folder}, then "
                "mend the source or raise the ceiling"
            )
        if len(stages) < 3:
            continue
        left = list(stages.values())[-1].kept.documents
        if Fraction(kept - left) > ceiling.removed * kept:
            causes = {c: n.documents for s, f in stages.items() if s != "ingest" for c, n in f.first.items()}
            top = ", ".join(f"{c} {n}" for c, n in sorted(causes.items(), key=lambda i: (-i[1], i[0]))[:3])
            complaints.append(
                f"{name}: {kept - left} of {kept} documents were removed ({_percent(kept - left, kept)}), over its "
                f"ceiling.removed of {_percent(ceiling.removed, 1)}; first causes: {top}. Loosen its filters or "
                "raise the ceiling"
            )
    if complaints:
        raise UserError("\n".join(complaints))


def _percent(part: Fraction | int, whole: int) -> str:
    return f"{float(part) / max(1, whole) * 100:.3g}%"


def check_conservation(plan: "CorpusPlan", artifacts: Mapping[str, Artifact]) -> None:
    """Raise UserError unless the counts of every stage that is there add up, and each stage took in what the one before
    it kept."""
    stored = dict.fromkeys(plan.sources, Count())
    store = artifacts.get(plan.store.digest)
    for cell in cells_of(store).values() if store is not None else ():
        for source, counts in cell.items():
            stored[source] += Count(counts["documents"], counts["bytes"])
    for name, stages in funnels(plan, artifacts).items():
        before: tuple[str, Count] | None = None
        for stage, funnel in stages.items():
            funnel.check(f"{name}: {stage}")
            if before is not None and funnel.entered != before[1]:
                raise UserError(_mismatch(name, before[0], before[1], stage, funnel.entered))
            before = (stage, funnel.kept)
        if store is not None and before is not None and before[1] != stored[name]:
            raise UserError(_mismatch(name, before[0], before[1], "store", stored[name]))


def _mismatch(source: str, before: str, kept: Count, stage: str, entered: Count) -> str:
    return (
        f"{source}: {before} kept {kept.documents} documents ({kept.bytes} bytes) but {stage} took in "
        f"{entered.documents} ({entered.bytes}); the build stops here, because its counts cannot be trusted"
    )
