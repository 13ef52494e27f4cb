"""Tables of trials for a terminal or a log file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

COLUMNS = (("trial", "left"), ("status", "left"), ("evaluations", "right"), ("step", "right"))
"""What every table of trials begins with; the metrics follow."""

_STATUS_STYLE = {"done": "green", "running": "cyan", "failed": "red", "diverged": "magenta", "preempted": "yellow"}
_LOG_WIDTH = 200  # a log file has no width; lines are cut where a reader's screen ends anyway


def number(value: float | int | None) -> str:
    """Returns a metric's value in at most eight characters, `-` for none."""
    if value is None:
        return "-"
    if isinstance(value, int) or math.isnan(value) or math.isinf(value):
        return str(value)
    return f"{value:.4f}" if 1e-3 <= abs(value) < 1e4 or value == 0 else f"{value:.2e}"


def make_table(columns: Sequence[tuple[str, str]], rows: Iterable[Sequence[str]], *, title: str = "") -> Table:
    """Returns a table.

    Args:
      columns: Headings and alignments (`left`, `right`).
      rows: Texts, one a column.
      title: One line above.
    """
    from rich import box  # 0.1 s: only where something is shown
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False)
    for heading, side in columns:
        table.add_column(heading, justify="right" if side == "right" else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(text, style=_STATUS_STYLE.get(text, "")) for text in row))
    return table


def make_console(stream: IO[str] | None = None) -> Console:
    """Returns a console on `stream` (standard output): colours on a terminal, plain wide lines elsewhere."""
    from rich.console import Console

    console = Console(file=stream, highlight=False)
    if not console.is_terminal:
        console.width = _LOG_WIDTH
    return console
