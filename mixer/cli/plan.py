"""`mixer plan`."""

import json
from pathlib import Path
from typing import Any

import click

from mixer.cli.options import json_option, out_option, spec_argument


@click.command()
@spec_argument
@out_option
@json_option
def plan(spec: Path, out: Path, as_json: bool) -> None:
    """Show the integers of SPEC and which stages a build would run or reuse. Writes no data.

    Sequences follow from the spec alone; epochs are known once the token store is built.

    \b
    Example:
      mixer plan mixtures/demo.yaml
    """
    from mixer.build import Build

    job = Build(spec, out, out / "cache", _no_engine)
    supply = job.supply()
    planned = job.plan(supply)
    states = job.states()
    if as_json:
        unique = {name: s.tokens for name, s in supply.items()} if supply else None
        data = planned.to_json() | {"unique_tokens": unique, "stages": states}
        click.echo(json.dumps(data, indent=1, sort_keys=True))
    else:
        _show(planned, supply, states)


def _no_engine() -> Any:
    raise RuntimeError("a plan runs no stage")


def _show(planned: Any, supply: Any, states: list[dict[str, Any]]) -> None:
    from mixer.cli.tables import show_table
    from stages.quantity import format_amount, format_share

    rows = []
    for name in planned.domains:
        per_phase = [f"{p.planned[name]:,}" for p in planned.phases]
        total = planned.planned(name)
        epochs = f"{float(planned.epochs(name, supply[name])):.2f}" if supply else "?"
        unique = format_amount(supply[name].tokens) if supply else "?"
        tokens = format_amount(total * planned.sequence_length)
        rows.append([name, format_share(planned.asked(name), 3), *per_phase, f"{total:,}", tokens, unique, epochs])
    rows.append(["all", "", *(f"{p.sequences:,}" for p in planned.phases), f"{planned.sequences:,}", "", "", ""])
    columns = ["domain", "asked", *(p.name for p in planned.phases), "sequences", "tokens", "unique", "epochs"]
    left = planned.budget - planned.sequences * planned.sequence_length
    title = (
        f"{planned.sequences:,} sequences of {planned.sequence_length:,} tokens; {left} tokens of the budget are left"
    )
    show_table(title, columns, rows)
    if not supply:
        click.echo("epochs are known when the token store is built: mixer build SPEC --until store\n")
    counts: dict[str, list[int]] = {}
    for state in states:
        counts.setdefault(state["stage"], [0, 0])[0 if state["built"] else 1] += 1
    show_table("stages", ["stage", "reuse", "run"], [[s, str(a), str(b)] for s, (a, b) in counts.items()])
