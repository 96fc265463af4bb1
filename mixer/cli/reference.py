"""`python -m mixer.cli.reference` prints docs/cli.md from the commands themselves; `make docs` writes it."""

import importlib
import inspect

import click

from mixer.cli import COMMANDS, SUMMARIES

INTRO = """# The `mixer` command

This page is made from the commands by `make docs`; edit their help, not the page.

A mistake in a spec, a source or an option is told in plain words on stderr and ends with exit code 1 (2 for a command
line that cannot be read). Results go to stdout, progress to stderr. SPEC is a mixture spec, such as
`mixtures/demo.yaml`; MANIFEST is a `manifest.json` or the folder that holds it, such as `build/latest/demo`.
"""


def page() -> str:
    """The whole page, Markdown."""
    lines = [INTRO, "| command | what it does |", "|---|---|"]
    lines += [f"| [`mixer {name}`](#mixer-{name}) | {SUMMARIES[name]} |" for name in COMMANDS]
    sections = [_section(name, getattr(importlib.import_module(module), name)) for name, module in COMMANDS.items()]
    return "\n".join(lines) + "\n\n" + "\n".join(sections)


def _section(name: str, command: click.Command) -> str:
    arguments = [p for p in command.params if isinstance(p, click.Argument)]
    options = [p for p in command.params if isinstance(p, click.Option)]
    lines = [f"## mixer {name}", ""]
    usage = " ".join([f"mixer {name}", *(["[OPTIONS]"] if options else []), *(_placeholder(a) for a in arguments)])
    lines += ["```text", usage, "```", "", *_help(command)]
    if options:
        lines += ["| option | default | meaning |", "|---|---|---|"]
        lines += [f"| {_option(o)} | {_default(o)} | {_meaning(o)} |" for o in options]
        lines.append("")
    return "\n".join(lines)


def _help(command: click.Command) -> list[str]:
    """The help text; a paragraph that click is told to leave alone is an example."""
    lines: list[str] = []
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        head, *rest = paragraph.split("\n")
        if head == "\b":
            lines += [rest[0], "", "```sh", *inspect.cleandoc("\n" + "\n".join(rest[1:])).split("\n"), "```", ""]
        else:
            lines += [head, *rest, ""]
    return lines


def _placeholder(argument: click.Argument) -> str:
    choices = _choices(argument)
    return f"[{'|'.join(choices)}]" if choices else (argument.name or "").upper()


def _choices(parameter: click.Parameter) -> list[str]:
    return list(map(str, parameter.type.choices)) if isinstance(parameter.type, click.Choice) else []


def _option(option: click.Option) -> str:
    if option.is_flag:
        return f"`{option.opts[0]}`"
    kind = "WHOLE NUMBER" if isinstance(option.type, click.IntRange) else option.type.name.upper()
    return f"`{option.opts[0]} {'|'.join(_choices(option)) or kind}`".replace("|", "\\|")


def _default(option: click.Option) -> str:
    return f"`{option.default}`" if option.show_default and not option.is_flag else ""


def _meaning(option: click.Option) -> str:
    return " ".join((option.help or "").split())


if __name__ == "__main__":
    print(page(), end="")
