"""`mixer plan`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from mixer.cli.options import json_option, out_option, spec_argument


@click.command()
@spec_argument
@out_option
@click.option("--ladder", is_flag=True, help="Show the rungs of the ladder instead.")
@json_option
def plan(spec: Path, out: Path, ladder: bool, as_json: bool) -> None:
    """Show the integers of SPEC and which stages a build would run or reuse. Writes no data.

    Sequences follow from the spec alone where it gives weights; epochs are known once the token store is built. A
    mixture that names `cells` instead of a corpus is planned from that table.

    \b
    Example:
      mixer plan mixtures/demo.yaml
    """
    from mixer.build import Build, load_table_plan
    from mixer.ladder import climb
    from mixer.spec import load_mixture_spec

    states: list[dict[str, Any]] = []
    supply: Mapping[str, Any] | None
    if load_mixture_spec(spec).cells is not None:
        domains, run, supply = load_table_plan(spec)
    else:
        job = Build(spec, out, out / "cache", _no_engine)
        supply = job.supply()
        domains, run, states = job.domains, job.plan(supply), job.states()
    if ladder:
        rungs = climb(domains.spec, run, supply)
        return _print_json([_rung_json(r) for r in rungs]) if as_json else _show_ladder(run, rungs, supply)
    if as_json:
        return _print_json(_run_json(run, supply) | {"stages": states})
    _show(run, supply)
    return _show_states(states)


def _no_engine() -> Any:
    raise RuntimeError("a plan runs no stage")


def _print_json(data: Any) -> None:
    click.echo(json.dumps(data, indent=1, sort_keys=True))


def _run_json(run: Any, supply: Any) -> dict[str, Any]:
    segment = run.segments[-1]
    return {
        "budget": run.budget,
        "sequence_length": segment.plan.sequence_length,
        "sequences": run.sequences,
        "unused_tokens": run.budget - run.tokens,
        "phases": [
            {
                "name": p.name,
                "sequences": p.sequences,
                "domains": {d: p.planned[d] for d in run.domains},
                "asked": {d: str(p.asked[d]) for d in run.domains},
                "given": {d: str(p.given[d]) for d in run.domains},
            }
            for s in run.segments
            for p in s.plan.phases
        ],
        "unique_tokens": {name: s.tokens for name, s in supply.items()} if supply else None,
        "epochs": {name: str(run.epochs(name, supply[name])) for name in run.domains} if supply else None,
    }


def _rung_json(rung: Any) -> dict[str, Any]:
    return {"rung": rung.name, "pools": rung.pools} | _run_json(rung.run, None)


def _show(run: Any, supply: Any) -> None:
    from mixer.advice import effective_tokens
    from mixer.cli.tables import show_table
    from stages.quantity import format_amount, format_share

    phases = [p for s in run.segments for p in s.plan.phases]
    rows = []
    for name in run.domains:
        tokens = run.tokens_of(name)
        given = sum(p.given[name] * p.sequences for p in phases) / sum(p.sequences for p in phases)
        known = ["?", "?", "?"]
        if supply and supply[name].tokens:
            worth = effective_tokens(supply[name].tokens, tokens)
            epochs = float(run.epochs(name, supply[name]))
            known = [format_amount(supply[name].tokens), f"{epochs:.3f}", format_amount(int(worth))]
        shares = [format_share(run.asked(name), 3), format_share(given, 3)]
        counts = [f"{p.planned[name]:,}" for p in phases]
        rows.append([name, *shares, *counts, f"{run.sequences_of(name):,}", format_amount(tokens), *known])
    rows.append(["all", "", "", *(f"{p.sequences:,}" for p in phases), f"{run.sequences:,}", "", "", "", ""])
    columns = ["domain", "asked", "given", *(p.name for p in phases)]
    columns += ["sequences", "tokens", "unique", "epochs", "worth"]
    length = run.segments[-1].plan.sequence_length
    title = f"{run.sequences:,} sequences of {length:,} tokens; {run.budget - run.tokens} tokens of the budget are left"
    show_table(title, columns, rows)
    if supply:
        click.echo("worth: fresh tokens that the drawn ones are about worth (Muennighoff et al. 2023); advice only\n")
    else:
        click.echo("epochs are known when the token store is built: mixer build SPEC --until store\n")


def _show_states(states: Sequence[dict[str, Any]]) -> None:
    from mixer.cli.tables import show_table

    counts: dict[str, list[int]] = {}
    for state in states:
        counts.setdefault(state["stage"], [0, 0])[0 if state["built"] else 1] += 1
    if counts:
        show_table("stages", ["stage", "reuse", "run"], [[s, str(a), str(b)] for s, (a, b) in counts.items()])


def _show_ladder(run: Any, rungs: Sequence[Any], supply: Any) -> None:
    from mixer.cli.tables import show_table
    from stages.quantity import format_amount

    if not rungs:
        click.echo("the spec has no `ladder:`")
        return
    rows = []
    for name in run.domains:
        full = f"{float(run.epochs(name, supply[name])):.3f}" if supply else "?"
        cells = [f"{run.sequences_of(name):,}", full]
        for rung in rungs:
            pool = "?" if rung.pools is None else format_amount(rung.pools[name])
            drawn, epochs = rung.run.tokens_of(name), "?"
            if rung.pools is not None and rung.pools[name]:
                epochs = f"{drawn / rung.pools[name]:.3f}"
            cells += [f"{rung.run.sequences_of(name):,}", pool, epochs]
        rows.append([name, *cells])
    total = ["all", f"{run.sequences:,}", ""]
    for rung in rungs:
        total += [f"{rung.run.sequences:,}", "", ""]
    columns = ["domain", "sequences", "epochs"]
    for rung in rungs:
        columns += [rung.name, "pool", "epochs"]
    show_table("the ladder: sequences, pool in tokens, and epochs of every rung", columns, [*rows, total])
