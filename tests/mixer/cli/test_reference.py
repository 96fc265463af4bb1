"""The page of the commands is the one that they make."""

import subprocess
import sys
from pathlib import Path

import click

from mixer.cli import COMMANDS, reference

PAGE = Path(__file__).parents[3] / "docs" / "cli.md"


def test_the_page_is_fresh():
    assert PAGE.read_text(encoding="utf-8") == reference.page(), "docs/cli.md is stale: run `make docs`"


def test_the_module_prints_the_page():
    made = subprocess.run(
        [sys.executable, "-m", "mixer.cli.reference"], capture_output=True, check=True, cwd=PAGE.parents[1]
    )
    assert made.stdout.decode() == reference.page()


def test_every_command_has_a_section_with_an_example():
    sections = reference.page().split("\n## ")[1:]
    assert [s.partition("\n")[0] for s in sections] == [f"mixer {name}" for name in COMMANDS]
    for section, name in zip(sections, COMMANDS, strict=True):
        assert f"```sh\nmixer {name} " in section


def test_a_section_holds_what_click_knows():
    @click.command()
    @click.argument("what", type=click.Choice(["this", "that"]))
    @click.option("--size", type=click.IntRange(1), default=3, show_default=True, help="How many\nof them.")
    @click.option("--loud", is_flag=True, help="Say more.")
    def tell(what: str, size: int, loud: bool) -> None:
        """Tell something.

        \b
        Example:
          mixer tell this
        """

    section = reference._section("tell", tell)
    assert "mixer tell [OPTIONS] [this|that]" in section
    assert "| `--size WHOLE NUMBER` | `3` | How many of them. |" in section
    assert "| `--loud` |  | Say more. |" in section
    assert "Example:\n\n```sh\nmixer tell this\n```" in section
