"""The edge to the terminal: whatever is printed goes through here, and nothing in it acts on the terminal.

Text comes from run directories that anybody could have written: it is escaped, no markup in it is read, and the values
of `--run.env` are masked.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterable
from typing import IO, TYPE_CHECKING, Any

import click

from kauldron_core import rundir
from kauldron_core.escaping import shown

if TYPE_CHECKING:
    from rich.console import Console

LOG_WIDTH = 1000  # a log file has no width; its reader can scroll


def echo(text: str = "", *, err: bool = False, colour: str | None = None) -> None:
    """Prints lines, escaped."""
    click.echo(click.style(shown(text), fg=colour) if colour else shown(text), err=err)


def echo_json(value: Any, *, indent: int | None = None) -> None:
    """Prints a value as JSON, in ASCII: letters that are not printable stand as JSON escapes them."""
    click.echo(rundir.dumps(value, indent=indent).replace("\x7f", "\\u007f"))


def confirm(question: str) -> bool:
    """Returns whether the user says yes."""
    return click.confirm(shown(question))


def print_traceback(error: BaseException) -> None:
    """Prints where an error was raised to standard error, escaped."""
    echo("".join(traceback.format_exception(error)).rstrip("\n"), err=True)


def escape_warnings() -> None:
    """Lets what is logged without a handler, which Python prints to standard error, be escaped too."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_EscapingFormatter())


def make_console(stream: IO[str] | None = None) -> Console:
    """Returns a console on `stream` (standard output): colours on a terminal, plain wide lines elsewhere.

    What is printed on it is escaped, in tables and live displays too, and no markup in it is read.
    """
    from rich.console import Console, ConsoleOptions, RenderableType  # 0.1 s: only where something is shown
    from rich.segment import Segment
    from rich.text import Text

    class EscapingConsole(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(shown(text), **options)  # Rich itself would leave some of it out in silence.

        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                is_ours = segment.control is not None  # A movement of the cursor by Rich itself.
                yield segment if is_ours else Segment(shown(segment.text), segment.style)

    console = EscapingConsole(file=stream, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = LOG_WIDTH
    return console


class _EscapingFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return shown(super().format(record))
