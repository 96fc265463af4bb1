"""Verifying a manifest: the root from its parts, every file from its bytes, every number from the rows."""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mixer.manifest import read_manifest, root_digest
from mixer.plan import plan_mixture
from mixer.recount import recount_cells, recount_funnel, recount_shard, recount_supply
from mixer.spec import MixtureSpec
from stages.artifact import Artifact, parse_artifact, sha256_of
from stages.content import ContentDigest
from stages.errors import UserError
from stages.recipe import digest_of


def verify(path: Path) -> tuple[list[str], list[str]]:
    """Check a manifest and what lies beside it; return what was checked and what differs, a sentence each.

    Shard files are required. The artifacts of the stages are checked where the manifest stands in its build folder, and
    are not needed elsewhere.
    """
    path = path / "manifest.json" if path.is_dir() else path
    manifest = read_manifest(path)
    wrong = list(_check_root(manifest)) + list(_check_plan(manifest))
    shards = list(_each(lambda s: _check_shard(path.parent, s), manifest["shards"]))
    wrong += [w for found in shards for w in found]
    wrong += _check_totals(manifest)
    checked = [f"{len(shards)} shard files"]
    root = path.parent.parent.parent
    artifacts: dict[str, Artifact] = {}
    missing = []
    for record in manifest["stages"]:
        folder = root / record["folder"]
        if not folder.is_dir():
            missing.append(record["folder"])
            continue
        found, artifact = _check_artifact(folder, record)
        wrong += found
        if artifact is not None:
            artifacts[record["digest"]] = artifact
    checked.append(f"{len(artifacts)} artifacts of stages")
    if missing and len(missing) < len(manifest["stages"]) - 1:
        wrong += [f"{folder}: the artifact is missing from the build folder" for folder in missing]
    if len(artifacts) == len(manifest["stages"]) and not wrong:
        wrong += _recount(manifest, artifacts)
        checked.append("every number, from the rows")
    return checked, wrong


def differences(said: Any, found: Any, where: str = "") -> Iterator[str]:
    """The places at which two values of plain data differ."""
    if isinstance(said, Mapping) and isinstance(found, Mapping):
        for key in sorted({*said, *found}):
            yield from differences(said.get(key), found.get(key), f"{where}.{key}" if where else str(key))
    elif isinstance(said, list) and isinstance(found, list) and len(said) == len(found):
        for i, (a, b) in enumerate(zip(said, found, strict=True)):
            yield from differences(a, b, f"{where}[{i}]")
    elif said != found:
        yield f"manifest: {where} says {json.dumps(said)}, but it is {json.dumps(found)}"


def _check_root(manifest: Mapping[str, Any]) -> Iterator[str]:
    root = root_digest(manifest)
    if root != manifest["root"]:
        yield f"manifest: root says {manifest['root']}, but its numbers hash to {root}: something in it was changed"
    for name, record in manifest["specs"].items():
        if digest_of(record["spec"]) != record["digest"]:
            found = digest_of(record["spec"])
            yield f"manifest: specs.{name}.digest says {record['digest']}, but the spec hashes to {found}"


def _check_plan(manifest: Mapping[str, Any]) -> Iterator[str]:
    """Compile the spec again and compare the integers."""
    spec = MixtureSpec.model_validate(manifest["specs"]["mixture"]["spec"])
    totals = manifest["totals"]
    plan = plan_mixture(spec, totals["budget"] if manifest["sample"] else None)
    first = 0
    phases = []
    for phase in plan.phases:
        domains = {d: {"asked": str(phase.asked[d]), "sequences": phase.planned[d]} for d in plan.domains}
        phases.append({"name": phase.name, "first": first, "sequences": phase.sequences, "domains": domains})
        first += phase.sequences
    yield from differences(manifest["phases"], phases, "phases")
    said = {
        k: totals[k]
        for k in ("budget", "sequence_length", "sequences", "tokens", "unused_tokens", "seed", "validation")
    }
    tokens = plan.sequences * plan.sequence_length
    yield from differences(
        said,
        {
            "budget": plan.budget,
            "sequence_length": plan.sequence_length,
            "sequences": plan.sequences,
            "tokens": tokens,
            "unused_tokens": plan.budget - tokens,
            "seed": spec.seed,
            "validation": str(spec.validation),
        },
        "totals",
    )
    for name, domain in manifest["domains"].items():
        planned = {
            "weight": str(Fraction(plan.planned(name), plan.sequences)),
            "sequences": plan.planned(name),
            "tokens": plan.planned(name) * plan.sequence_length,
        }
        said = {k: domain["planned"][k] for k in planned}
        yield from differences(said, planned, f"domains.{name}.planned")
        yield from differences(domain["asked"], {"weight": str(plan.asked(name))}, f"domains.{name}.asked")


def _check_shard(folder: Path, shard: Mapping[str, Any]) -> list[str]:
    path = folder / shard["path"]
    if not path.is_file():
        return [f"{shard['path']}: the shard is missing"]
    size, sha256 = sha256_of(path)
    if size != shard["bytes"]:
        return [f"{shard['path']}: has {size} bytes, not {shard['bytes']}"]
    if sha256 != shard["sha256"]:
        return [f"{shard['path']}: its sha256 is {sha256}, not {shard['sha256']}"]
    wrong = []
    if (content := parquet_content(path)) != shard["content"]:
        wrong.append(f"{shard['path']}: its rows hash to {content}, not {shard['content']}")
    rows, domains, first = recount_shard(path)
    if shard["split"] == "validation":
        first = None
    said = {k: shard[k] for k in ("sequences", "domains", "first")}
    found = {"sequences": rows, "domains": domains, "first": first}
    return wrong + list(differences(said, found, f"shards.{shard['path']}"))


def parquet_content(path: Path) -> str:
    """The content digest of a Parquet file, a row group at a time."""
    with pq.ParquetFile(path) as file:
        digest = ContentDigest(file.schema_arrow)
        for i in range(file.num_row_groups):
            for batch in file.read_row_group(i).to_batches():
                digest.update(batch)
    return digest.hexdigest()


def _check_totals(manifest: Mapping[str, Any]) -> list[str]:
    """The realized numbers of the domains against the shards' own counts, and the shards against the order."""
    wrong: list[str] = []
    length, total = manifest["totals"]["sequence_length"], manifest["totals"]["sequences"]
    expected = 0
    realized = dict.fromkeys(manifest["domains"], 0)
    held = dict.fromkeys(manifest["domains"], 0)
    for shard in manifest["shards"]:
        counts = realized if shard["split"] == "train" else held
        for name, sequences in shard["domains"].items():
            counts[name] = counts.get(name, 0) + sequences
        if shard["split"] == "train":
            if shard["first"] != expected:
                wrong.append(f"manifest: {shard['path']} starts at {shard['first']}, but {expected} comes next")
            expected += shard["sequences"]
    if expected != total:
        wrong.append(f"manifest: the training shards hold {expected} sequences, but totals.sequences says {total}")
    for name, domain in manifest["domains"].items():
        real = domain["realized"]
        found = {
            "weight": str(Fraction(realized[name], total)),
            "sequences": realized[name],
            "tokens": realized[name] * length,
        }
        wrong += differences({k: real[k] for k in found}, found, f"domains.{name}.realized")
        if domain["validation"]["sequences"] != held[name]:
            wrong.append(
                f"manifest: domains.{name}.validation.sequences says {domain['validation']['sequences']}, but the "
                f"shards hold {held[name]}"
            )
    return wrong


def _check_artifact(folder: Path, record: Mapping[str, Any]) -> tuple[list[str], Artifact | None]:
    """Re-hash an artifact: its recipe, its files, its content."""
    try:
        data = json.loads((folder / "artifact.json").read_bytes())
        artifact = parse_artifact(folder, data)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return [f"{folder / 'artifact.json'}: cannot be read: {error}"], None
    wrong = []
    if digest_of(artifact.recipe) != record["digest"] or artifact.digest != record["digest"]:
        wrong.append(f"{folder}: is the artifact {digest_of(artifact.recipe)}, not {record['digest']}")
    if artifact.content != record["content"]:
        wrong.append(f"{folder}: its content is {artifact.content}, not {record['content']}")
    if artifact.rows != record["rows"]:
        wrong.append(f"{folder}: has {artifact.rows} rows, not {record['rows']}")
    files = [(folder / f.path, f) for shard in artifact.shards for f in shard.files]
    for found in _each(lambda item: _check_file(*item), files):
        wrong += found
    return wrong, artifact if not wrong else None


def _check_file(path: Path, file: Any) -> list[str]:
    if not path.is_file():
        return [f"{path}: is missing"]
    size, sha256 = sha256_of(path)
    if size != file.bytes:
        return [f"{path}: has {size} bytes, not {file.bytes}"]
    return [] if sha256 == file.sha256 else [f"{path}: its sha256 is {sha256}, not {file.sha256}"]


def _each(check: Any, items: Any) -> Iterator[list[str]]:
    """Run a check on every item in some threads, since hashing leaves the interpreter alone; results in order."""
    with ThreadPoolExecutor() as pool:
        yield from pool.map(check, items)


def _recount(manifest: Mapping[str, Any], artifacts: Mapping[str, Artifact]) -> list[str]:
    """Every number of the sources, cells and domains, from the artifacts' rows."""
    by_stage: dict[str, dict[str, Artifact]] = {}
    for record in manifest["stages"]:
        by_stage.setdefault(record["stage"], {})[record["name"]] = artifacts[record["digest"]]
    store = next(iter(by_stage["store"].values()))
    duplicates = next(iter(by_stage["exact_duplicates"].values()))
    wrong: list[str] = []
    try:
        for name, source in manifest["sources"].items():
            own = {stage: by_stage[stage][name] for stage in ("ingest", "filters", "tokenize")}
            funnel = recount_funnel(name, own | {"exact_duplicates": duplicates})
            wrong += differences(source["funnel"], funnel, f"sources.{name}.funnel")
            rows = funnel[0]["entered"]["documents"]
            wrong += differences(source["documents"], rows, f"sources.{name}.documents")
        wrong += differences(manifest["cells"], recount_cells(store), "cells")
        for name, domain in manifest["domains"].items():
            supply = recount_supply(store, domain["cells"], Fraction(manifest["totals"]["validation"]))
            real, held = domain["realized"], domain["validation"]
            said = {
                "documents": real["documents"],
                "tokens": real["unique_tokens"],
                "validation_documents": held["documents"],
                "validation_tokens": held["tokens"],
            }
            wrong += differences(said, supply, f"domains.{name}")
            epochs = str(Fraction(real["tokens"], supply["tokens"])) if supply["tokens"] else "0"
            wrong += differences(real["epochs"], epochs, f"domains.{name}.realized.epochs")
            tail = held["tokens"] - held["sequences"] * manifest["totals"]["sequence_length"]
            wrong += differences(held["tail_tokens"], tail, f"domains.{name}.validation.tail_tokens")
    except (UserError, pa.ArrowException, KeyError) as error:
        wrong.append(f"the numbers could not be counted again: {error}")
    return wrong
