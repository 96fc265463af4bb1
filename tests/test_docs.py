"""What the documentation says holds: commands parse, specs validate, links lead somewhere, examples run."""

import ast
import doctest
import gzip
import importlib
import json
import math
import re
import shlex
import shutil
import textwrap
import tomllib
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import click
import pytest
from pydantic import BaseModel

from mixer.amend import distance
from mixer.build import load_table_plan
from mixer.cli import COMMANDS, cli
from mixer.domains import Domains, resolve_domains
from mixer.ladder import climb
from mixer.manifest import Manifest
from mixer.order_kernel import DEADLINE, RELEASE, phase_state
from mixer.plan import Phase, Run, Supply, plan_run
from mixer.spec import MixtureSpec, PhasesFile
from mixer.weights import STRATEGIES
from stages.corpus import CorpusSpec
from stages.errors import UserError
from stages.filters import FILTERS
from stages.normalize import NormalizeConfig
from stages.specfile import load_spec

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    return [body for kind, body in FENCE.findall(page.read_text(encoding="utf-8")) if kind == language]


def shell_lines(page: Path, program: str) -> list[list[str]]:
    """The arguments of every call of a program in the page's shell blocks, up to a pipe, redirection or comment."""
    found = []
    for block in blocks(page, "sh"):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            stop = next((i for i, w in enumerate(words) if w in ("|", ">")), len(words))
            if words[:1] == [program]:
                found.append(words[1:stop])
    return found


def parse(arguments: list[str]) -> str:
    """Parse a command line as the command would, without running it; returns the command's name."""
    context = cli.make_context("mixer", list(arguments), resilient_parsing=True)
    name, command, rest = cli.resolve_command(context, list(arguments))
    command.make_context(name, rest, parent=context)
    return name


def test_commands_are_there_with_their_options():
    used = {parse(line) for page in PAGES for line in shell_lines(page, "mixer")}
    assert used == set(COMMANDS)


@pytest.mark.parametrize(
    "line", ["biuld x.yaml", "build", "build x.yaml --worker", "schema card", "sample x --shards 0"]
)
def test_a_command_that_is_not_there_is_noticed(line):
    with pytest.raises(click.ClickException):
        parse(line.split())


def test_targets_are_there():
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    used = {line[0] for page in PAGES for line in shell_lines(page, "make")}
    assert used and used <= set(targets)


def test_the_readme_lists_the_commands():
    listed = re.findall(r"^\| `mixer (\w+)", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert listed == list(COMMANDS)


def specs() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for number, block in enumerate(blocks(page, "yaml")):
            yield f"{named(page)}-{number}", block


@pytest.mark.parametrize("block", [pytest.param(text, id=name) for name, text in specs()])
def test_specs_validate(block, tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text(block, encoding="utf-8")
    if block.startswith("mixture:"):
        load_spec(path, MixtureSpec)
    elif block.startswith("phases:"):
        load_spec(path, PhasesFile)
    else:
        load_spec(path, CorpusSpec)


def test_a_spec_that_is_wrong_is_noticed(tmp_path):
    with pytest.raises(UserError, match="unknown key"):
        test_specs_validate(next(text for _, text in specs()).replace("sources:", "source:"), tmp_path)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page):
    for link in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        path, _, anchor = link.partition("#")
        if "://" in path:
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_is_reached_from_the_readme():
    reached, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        reached.add(page)
        links = [page.parent / link.partition("#")[0] for link in LINK.findall(page.read_text(encoding="utf-8"))]
        todo += [p.resolve() for p in links if p.suffix == ".md" and p.resolve() not in reached]
    assert set(PAGES) <= reached


def keys_of(model: Any, seen: set[type]) -> set[str]:
    """The names of all keys of a model and of the models inside it."""
    if isinstance(model, type) and issubclass(model, BaseModel):
        if model in seen:
            return set()
        seen.add(model)
        own = {f.alias or name for name, f in model.model_fields.items()}
        return own.union(*(keys_of(f.annotation, seen) for f in model.model_fields.values()))
    return set().union(*(keys_of(a, seen) for a in getattr(model, "__args__", ())))


def in_backticks(page: Path) -> set[str]:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    return {word for quoted in re.findall(r"`([^`]+)`", text) for word in re.findall(r"\w+", quoted)}


@pytest.mark.parametrize(
    "model", [CorpusSpec, MixtureSpec, NormalizeConfig, *(f.config for f in FILTERS.values())], ids=lambda m: m.__name__
)
def test_every_key_of_a_spec_is_explained(model):
    inner = {"text", "low", "high", "open"}
    assert keys_of(model, set()) - inner - in_backticks(ROOT / "docs" / "specs.md") == set()


def test_every_key_of_the_manifest_is_explained():
    assert keys_of(Manifest, set()) - in_backticks(ROOT / "docs" / "manifest.md") == {"spec"}


def test_every_filter_and_its_defaults_are_explained():
    page = (ROOT / "docs" / "specs.md").read_text(encoding="utf-8")
    for name, entry in FILTERS.items():
        section = page.partition(f"**`{name}`**")[2].partition("**`")[0]
        assert section, name
        for key, field in entry.config.model_fields.items():
            assert f"`{key}`" in section, f"{name}.{key}"
            if isinstance(field.default, float):
                assert f"`{field.default:.2f}`" in section or f"`{field.default:g}`" in section, f"{name}.{key}"
            elif isinstance(field.default, int):
                assert f"`{json.dumps(field.default)}`" in section, f"{name}.{key}"


def test_every_dependency_has_its_reason():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [d for group in project["optional-dependencies"].values() for d in group]
    asked = [re.match(r"[\w.-]+", d)[0] for d in [*project["dependencies"], *extras]]
    reasons = re.findall(r"^- `([\w.-]+)`: \S", (ROOT / "docs" / "dependencies.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(reasons) == sorted(asked)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_python_blocks_are_python(page):
    for block in blocks(page, "python"):
        ast.parse(block)


@pytest.fixture(scope="module")
def example(tmp_path_factory, tiny_tokenizer, tiny_corpus) -> Path:
    """A folder with the two specs of the README and something for them to read."""
    folder = tmp_path_factory.mktemp("example")
    for block in blocks(ROOT / "README.md", "yaml"):
        name = block.partition(":")[0]
        (folder / f"{name}.yaml").write_text(block, encoding="utf-8")
    shutil.copy(tiny_tokenizer, folder / "tokenizer.json")
    (folder / "web").mkdir()
    (folder / "notes" / "old").mkdir(parents=True)
    for path in sorted((tiny_corpus / "reference").glob("*.jsonl")):
        (folder / "web" / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    for number, row in enumerate((tiny_corpus / "docstrings.jsonl").read_text(encoding="utf-8").splitlines()):
        note = folder / "notes" / ("old" if number % 2 else ".") / f"{number}.txt"
        note.write_text(json.loads(row)["text"], encoding="utf-8")
    return folder


def test_the_example_of_the_readme_runs(example, tmp_path, monkeypatch, capsys):
    shutil.copytree(example, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    lines = [line for line in shell_lines(ROOT / "README.md", "mixer") if "demo" not in " ".join(line)]
    assert [line[0] for line in lines] == ["plan", "build", "inspect", "verify"]
    for line in lines:
        cli.main([*line, *(["--workers", "1"] if line[0] == "build" else [])], standalone_mode=False)
    told = capsys.readouterr().out
    assert "390 sequences of 512 tokens" in told
    assert "verified: " in told and "every number, from the rows" in told
    columns = re.findall(r"^\| `(\w+)` \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    import pyarrow.parquet as pq

    for path in ("train/00000.parquet", "validation/web.parquet", "validation/notes.parquet"):
        assert pq.read_schema(Path("build/latest/mine") / path).names == columns


@pytest.mark.parametrize("package", ["stages", "mixer"])
def test_the_tutorial_of_a_package_runs(package, example, tmp_path, monkeypatch):
    shutil.copytree(example, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(package)
    tutorial = doctest.DocTestParser().get_doctest(module.__doc__, {}, package, module.__file__, 0)
    assert len(tutorial.examples) > 10
    report: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.REPORT_NDIFF).run(tutorial, out=report.append)
    assert result.failed == 0, "".join(report)


@pytest.mark.parametrize("package", ["stages", "mixer"])
def test_importing_a_package_imports_nothing(package):
    tree = ast.parse((ROOT / package / "__init__.py").read_text(encoding="utf-8"))
    assert [type(node).__name__ for node in tree.body] == ["Expr"]


def test_lines_fit_a_terminal():
    for page in PAGES:
        prose = FENCE.sub("", page.read_text(encoding="utf-8"))
        long = [line for line in prose.splitlines() if len(line) > 120 and not line.startswith("|")]
        assert not long, f"{named(page)}: {textwrap.shorten(long[0], 60)}"


@pytest.fixture(scope="module")
def pencil(tmp_path_factory) -> Path:
    """The folder of the example of docs/mixture.md."""
    folder = tmp_path_factory.mktemp("pencil")
    page = ROOT / "docs" / "mixture.md"
    (folder / "mixture.yaml").write_text(blocks(page, "yaml")[0], encoding="utf-8")
    (folder / "cells.csv").write_text(blocks(page, "csv")[0], encoding="utf-8")
    return folder


def pencil_table(*columns: str) -> list[list[str]]:
    """The rows of the table of docs/mixture.md whose first columns are these."""
    found: list[list[str]] = []
    inside = False
    for line in (ROOT / "docs" / "mixture.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        inside = bool(cells) and (inside or tuple(cells[: len(columns)]) == columns)
        if inside:
            found.append(cells)
    assert len(found) > 2, columns
    return found[2:]


def pencil_run(folder: Path, **changes: Any) -> tuple[Domains, Run, dict[str, Supply]]:
    """The example with other keys in its spec, planned."""
    domains, _, supply = load_table_plan(folder / "mixture.yaml")
    spec = MixtureSpec.model_validate(domains.spec.model_dump() | changes)
    domains = resolve_domains(spec, domains.table)
    return domains, plan_run(domains, supply), supply


def with_cap(folder: Path, cap: int) -> dict[str, Any]:
    spec = load_table_plan(folder / "mixture.yaml")[0].spec
    return {"domains": spec.model_dump()["domains"] | {"math": {"cells": "math", "weight": "10%", "max_epochs": cap}}}


def quotas(run: Run) -> Iterator[tuple[str, str, Phase, Fraction]]:
    for phase in run.segments[0].plan.phases:
        for name, share in phase.given.items():
            yield phase.name, name, phase, share * phase.sequences


def test_the_plan_of_the_example(pencil):
    _, run, supply = pencil_run(pencil)
    expected = []
    for phase, name, plan, quota in quotas(run):
        down = quota.numerator // quota.denominator
        rest = [f"{float(quota):.1f}", str(down), f"{float(quota - down):.1f}", str(plan.planned[name])]
        expected.append([phase, name, str(plan.given[name]), *rest])
    assert pencil_table("phase", "domain", "share") == expected
    epochs = {n: f"{float(run.epochs(n, supply[n])):.2f}" for n in run.domains}
    assert pencil_table("domain", "sequences", "tokens") == [
        [n, str(run.sequences_of(n)), str(run.tokens_of(n)), str(supply[n].tokens), epochs[n]] for n in run.domains
    ]


def test_the_windows_and_the_order_of_the_example(pencil):
    _, run, _ = pencil_run(pencil)
    plan = run.segments[0].plan
    windows = []
    for phase, counts in zip(plan.phases, plan.counts.tolist(), strict=True):
        unit = [c // math.gcd(*counts) for c in counts]
        for i, name in enumerate(plan.domains):
            for j in range(unit[i]):
                emitted = [j if k == i else 0 for k in range(len(unit))]
                row = phase_state(unit, sum(unit), emitted)[i]
                windows.append([phase.name, name, str(j), str(row[RELEASE]), str(row[DEADLINE])])
    assert pencil_table("phase", "domain", "sequence") == windows
    domains, places = plan.order().stream_index(0, run.sequences)
    assert pencil_table("position", "domain") == [
        [str(t), plan.domains[d], str(j), str(100 * j)] for t, (d, j) in enumerate(zip(domains, places, strict=True))
    ]


def test_the_prefixes_of_the_example(pencil):
    _, run, _ = pencil_run(pencil)
    plan, rows, worst = run.segments[0].plan, [], Fraction(0)
    first = plan.phases[0]
    for t in range(1, 8):
        counts = plan.order().prefix_counts(t).tolist()
        off = [c - Fraction(first.planned[d] * t, first.sequences) for c, d in zip(counts, plan.domains, strict=True)]
        worst = max(worst, *map(abs, off))
        rows.append([str(t), *map(str, counts), *map(str, off)])
    assert pencil_table("t") == rows
    assert f"the worst is {worst}." in (ROOT / "docs" / "mixture.md").read_text(encoding="utf-8")


def test_the_cap_of_the_example(pencil):
    with pytest.raises(UserError) as error:
        pencil_run(pencil, **with_cap(pencil, 4))
    assert blocks(ROOT / "docs" / "mixture.md", "text")[0].strip() == str(error.value)
    _, run, _ = pencil_run(pencil, **with_cap(pencil, 4), on_shortfall="redistribute")
    assert pencil_table("phase", "domain", "asked") == [
        [phase, n, str(p.asked[n]), str(p.given[n]), f"{float(quota):.2f}", str(p.planned[n])]
        for phase, n, p, quota in quotas(run)
    ]
    repeated = pencil_run(pencil, **with_cap(pencil, 4), on_shortfall="repeat")[1]
    assert (repeated.segments[0].plan.counts == pencil_run(pencil)[1].segments[0].plan.counts).all()


def test_the_rung_and_the_amendment_of_the_example(pencil):
    domains, run, supply = pencil_run(pencil)
    (rung,) = climb(domains.spec, run, supply)
    expected = []
    for name in run.domains:
        counts = [p.planned[name] for p in rung.run.segments[0].plan.phases]
        epochs = [rung.run.tokens_of(name) / rung.pools[name], float(run.epochs(name, supply[name]))]
        expected.append([name, *map(str, [*counts, sum(counts), rung.pools[name]]), *(f"{e:.2f}" for e in epochs)])
    assert pencil_table("domain", "main") == expected
    phase = {"name": "more-code", "share": "1", "weights": {"code": "50%", "math": "10%", "web": "40%"}}
    _, now, _ = pencil_run(pencil, amendments=[{"at": 10, "reason": "code", "parent": "", "phases": [phase]}])
    kept, rest = now.segments
    assert pencil_table("domain", "sequences before 10") == [
        [n, *map(str, [kept.counts[n], rest.offsets[n], run.sequences_of(n) - kept.counts[n], rest.counts[n]])]
        for n in run.domains
    ]
    page = (ROOT / "docs" / "mixture.md").read_text(encoding="utf-8")
    assert f"*{' '.join(now.domains[d] for d in rest.plan.order().domains(0, 10))}*" in page
    assert f"= {distance(run, now)}." in page


def test_the_strategies_of_the_example():
    cells = {"code": 1000, "math": 50, "web": 2000}
    quality = {"code": Fraction(2), "math": Fraction(3), "web": Fraction(1)}
    settings: dict[str, dict[str, Any]] = {
        "temperature": {"t": Fraction(1, 2)},
        "unimax": {"budget": 2050, "max_epochs": Fraction(4)},
        "quality_curve": {"budget": 2050, "max_epochs": Fraction(4), "quality": quality},
    }
    names = ["proportional", "uniform", "temperature", "unimax", "quality_curve"]
    rows = pencil_table("strategy")
    assert [re.findall(r"\w+", row[0])[0] for row in rows] == names
    for name, row in zip(names, rows, strict=True):
        weights = STRATEGIES[name](cells, **settings.get(name, {}))
        assert row[1:] == [f"{float(weights[n]):.4f}" for n in cells], name
