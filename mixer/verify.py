"""Verifying a manifest: the root from its parts, every file from its bytes, every number from the rows."""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from mixer.lineage import recipes_of
from mixer.manifest import counters_digest, phases_of, read_manifest, root_digest
from mixer.plan import Plan, Supply, check_supply, feasible_budget, max_epochs, plan_mixture
from mixer.recount import recount_cells, recount_funnel, recount_shard, recount_supply
from mixer.spec import MixtureSpec
from stages.artifact import Artifact, parse_artifact, sha256_of
from stages.content import ContentDigest
from stages.corpus import CorpusSpec
from stages.errors import UserError
from stages.recipe import digest_of
from stages.tokenizing import TokenizerFile


def verify(path: Path) -> tuple[list[str], list[str]]:
    """Check a manifest and what lies beside it; return what was checked and what differs, a sentence each.

    Shard files are required. The artifacts of the stages are checked where the manifest stands in its build folder, and
    are not needed elsewhere.
    """
    path = path / "manifest.json" if path.is_dir() else path
    manifest = read_manifest(path)
    wrong = list(_check_root(manifest)) + _check_specs(manifest)
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


def _check_specs(manifest: Mapping[str, Any]) -> list[str]:
    """Compile the specs again and compare the integers, what was copied from the specs, and the recipes."""
    try:
        spec = MixtureSpec.model_validate(manifest["specs"]["mixture"]["spec"])
        corpus = CorpusSpec.model_validate(manifest["specs"]["corpus"]["spec"])
        supply = {name: _supply(domain) for name, domain in manifest["domains"].items()}
        plan = plan_mixture(spec, feasible_budget(spec, supply) if manifest["sample"] else None)
        check_supply(spec, plan, supply)
        recipes = recipes_of(manifest, corpus, spec, plan)
    except ValidationError as error:
        first = error.errors()[0]
        return [f"manifest: specs: {'.'.join(map(str, first['loc']))}: {first['msg']}"]
    except UserError as error:
        return [f"manifest: its mixture spec cannot be planned again: {error}"]
    except KeyError as error:
        return [f"manifest: {error} is in its specs and not in its numbers"]
    tokens = plan.sequences * plan.sequence_length
    totals = {
        "budget": plan.budget,
        "sequence_length": plan.sequence_length,
        "sequences": plan.sequences,
        "tokens": tokens,
        "unused_tokens": plan.budget - tokens,
        "seed": spec.seed,
        "validation": str(spec.validation),
    }
    domains = {name: _planned(spec, plan, name, supply[name]) for name in plan.domains}
    said = {
        n: {k: v for k, v in d.items() if k not in ("realized", "validation")} for n, d in manifest["domains"].items()
    }
    sources = {name: {"licence": s.licence, "homepage": s.homepage} for name, s in corpus.sources.items()}
    copied = {n: {k: s[k] for k in ("licence", "homepage")} for n, s in manifest["sources"].items()}
    stages = [
        {"stage": r.stage, "name": r.name, "version": r.version, "digest": r.digest, "folder": r.folder}
        for r in recipes
    ]
    recorded = [
        {k: record[k] for k in ("stage", "name", "version", "digest", "folder")} for record in manifest["stages"]
    ]
    return [
        *differences(manifest["mixture"], spec.mixture, "mixture"),
        *differences(manifest["totals"], totals, "totals"),
        *differences(manifest["phases"], phases_of(plan), "phases"),
        *differences(said, domains, "domains"),
        *differences(copied, sources, "sources"),
        *differences(manifest["tokenizer"]["dtype"], _width(manifest["tokenizer"]["vocabulary"]), "tokenizer.dtype"),
        *differences(recorded, stages, "stages"),
    ]


def _supply(domain: Mapping[str, Any]) -> Supply:
    real, held = domain["realized"], domain["validation"]
    return Supply(real["documents"], real["unique_tokens"], held["documents"], held["tokens"])


def _planned(spec: MixtureSpec, plan: Plan, name: str, supply: Supply) -> dict[str, Any]:
    """What a manifest says of a domain before anything is written."""
    planned = plan.planned(name)
    return {
        "cells": sorted(spec.domains[name].cells),
        "max_epochs": str(max_epochs(spec, name)),
        "asked": {"weight": str(plan.asked(name))},
        "planned": {
            "weight": str(Fraction(planned, plan.sequences)),
            "sequences": planned,
            "tokens": planned * plan.sequence_length,
            "epochs": str(plan.epochs(name, supply)),
        },
    }


def _width(vocabulary: int) -> str:
    return TokenizerFile(Path(), "", 0, vocabulary).dtype.str


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
    if (counters := counters_digest(artifact)) != record["counters"]:
        wrong.append(f"{folder}: its counters hash to {counters}, not {record['counters']}")
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
            raw = own["ingest"].counters
            wrong += differences({k: source[k] for k in ("files", "raw_bytes")}, raw, f"sources.{name}")
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
