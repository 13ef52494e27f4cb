"""Commands that the documents show: each names a command that there is, with options that it takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from pipelines.cli.app import kdr
from pipelines.cli.commands import LazyGroup, OverrideCommand

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted(ROOT.glob("*/README.md"))]
OVERRIDES = ("--cfg", "--sweep", "--run", "--args", "--trials", "--help")


def commands_of(page: Path) -> list[str]:
    """Returns the lines of a page that begin with `kdr`, those that go on over several lines as one."""
    text = re.sub(r"\\\n\s*", " ", page.read_text())
    return [line.strip() for line in text.splitlines() if re.match(r"\s*(?:\$ )?kdr [a-z]", line)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_documented_commands_and_their_options_exist(page: Path) -> None:
    """F40: what a page shows is taken by the parser."""
    for line in commands_of(page):
        words = shlex.split(line.removeprefix("$ "), comments=True)[1:]
        command: click.Command = kdr
        while isinstance(command, LazyGroup):
            found = command.get_command(click.Context(command), words[0].partition("|")[0])
            assert found is not None, line
            command, words = found, words[1:]
        known = {name for parameter in command.params for name in parameter.opts}
        if command.name == "submit":  # What follows the command is that of another.
            words = words[: next((at for at, word in enumerate(words) if not word.startswith("-")), len(words))]
        for word in words:
            name = word.partition("=")[0]
            is_override = isinstance(command, OverrideCommand) and name.partition(".")[0] in OVERRIDES
            assert not name.startswith("--") or name in known or is_override, (line, word)
