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

from mixer.amend import log_of
from mixer.describe import plan_records
from mixer.domains import cells_of_corpus, resolve_domains
from mixer.ladder import find_rung
from mixer.lineage import recipes_of
from mixer.manifest import counters_digest, read_manifest, root_digest
from mixer.plan import Supply, feasible_budget, plan_run
from mixer.recount import recount_cells, recount_funnel, recount_shard, recount_stream, recount_supply
from mixer.spec import MixtureSpec
from stages.artifact import Artifact, parse_artifact, sha256_of
from stages.content import ContentDigest
from stages.corpus import CorpusSpec
from stages.errors import UserError
from stages.recipe import digest_of
from stages.store import DUPLICATE_COLUMNS
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
        domains = resolve_domains(spec, cells_of_corpus(corpus))
        supply = {leaf.name: _supply(manifest["domains"][leaf.name]) for leaf in domains.leaves}
        run = plan_run(domains, supply, feasible_budget(domains, supply) if manifest["sample"] else None)
        pools = None
        if manifest["rung"] is not None:
            rung = find_rung(spec, run, supply, manifest["rung"])
            run, pools = rung.run, rung.pools
        log = log_of(domains, supply)
        planned = plan_records(domains, run, supply, pools)
        recipes = recipes_of(manifest, corpus, domains, run, pools)
    except ValidationError as error:
        first = error.errors()[0]
        return [f"manifest: specs: {'.'.join(map(str, first['loc']))}: {first['msg']}"]
    except UserError as error:
        return [f"manifest: its mixture spec cannot be planned again: {error}"]
    except KeyError as error:
        return [f"manifest: {error} is in its specs and not in its numbers"]
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
        *(d for part in ("totals", "segments", "phases") for d in differences(manifest[part], planned[part], part)),
        *differences(said, planned["domains"], "domains"),
        *differences(manifest["log"], log, "log"),
        *differences(copied, sources, "sources"),
        *differences(manifest["tokenizer"]["dtype"], _width(manifest["tokenizer"]["vocabulary"]), "tokenizer.dtype"),
        *differences(recorded, stages, "stages"),
    ]


def _supply(domain: Mapping[str, Any]) -> Supply:
    real, held = domain["realized"], domain["validation"]
    return Supply(real["documents"], domain["available_tokens"], held["documents"], held["tokens"])


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
    """The realized numbers of the domains against the shards' own counts, and the shards against the order. A virtual
    mixture has no shards: its realized numbers are the planned ones."""
    wrong: list[str] = []
    totals, domains = manifest["totals"], manifest["domains"]
    expected = 0
    realized, tokens = dict.fromkeys(domains, 0), dict.fromkeys(domains, 0)
    held = dict.fromkeys(domains, 0)
    for shard in manifest["shards"]:
        length = _length_at(manifest, shard["first"])
        for name, sequences in shard["domains"].items():
            if shard["split"] == "train":
                realized[name] = realized.get(name, 0) + sequences
                tokens[name] = tokens.get(name, 0) + sequences * length
            else:
                held[name] = held.get(name, 0) + sequences
        if shard["split"] == "train":
            if shard["first"] != expected:
                wrong.append(f"manifest: {shard['path']} starts at {shard['first']}, but {expected} comes next")
            expected += shard["sequences"]
    if manifest["materialized"] and expected != totals["sequences"]:
        sequences = totals["sequences"]
        wrong.append(f"manifest: the training shards hold {expected} sequences, but totals.sequences says {sequences}")
    for name, domain in domains.items():
        real, planned = domain["realized"], domain["planned"]
        if not manifest["materialized"]:
            realized[name], tokens[name] = planned["sequences"], planned["tokens"]
            held[name] = domain["validation"]["sequences"]
        found = {
            "weight": str(Fraction(tokens[name], totals["tokens"])),
            "sequences": realized[name],
            "tokens": tokens[name],
        }
        wrong += differences({k: real[k] for k in found}, found, f"domains.{name}.realized")
        if domain["validation"]["sequences"] != held[name]:
            wrong.append(
                f"manifest: domains.{name}.validation.sequences says {domain['validation']['sequences']}, but the "
                f"shards hold {held[name]}"
            )
    return wrong


def _length_at(manifest: Mapping[str, Any], position: int | None) -> int:
    """The sequence length that holds at a position; that of the last segment without one."""
    segments = manifest["segments"]
    reached = [s for s in segments if position is not None and s["first"] <= position]
    return int((reached or segments)[-1]["sequence_length"])


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
    over_all = {stage: next(iter(by_stage[stage].values())) for stage in DUPLICATE_COLUMNS}
    wrong: list[str] = []
    try:
        for name, source in manifest["sources"].items():
            own = {stage: by_stage[stage][name] for stage in ("ingest", "filters", "tokenize")}
            funnel = recount_funnel(name, own | over_all)
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
                "tokens": domain["available_tokens"],
                "validation_documents": held["documents"],
                "validation_tokens": held["tokens"],
            }
            wrong += differences(said, supply, f"domains.{name}")
            unique = recount_stream(by_stage["stream"][name])
            wrong += differences(real["unique_tokens"], unique, f"domains.{name}.realized.unique_tokens")
            epochs = str(Fraction(real["tokens"], unique)) if unique else "0"
            wrong += differences(real["epochs"], epochs, f"domains.{name}.realized.epochs")
            tail = held["tokens"] - held["sequences"] * manifest["totals"]["sequence_length"]
            wrong += differences(held["tail_tokens"], tail, f"domains.{name}.validation.tail_tokens")
    except (UserError, pa.ArrowException, KeyError) as error:
        wrong.append(f"the numbers could not be counted again: {error}")
    return wrong
