"""Tables of trials for a terminal or a log file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kauldron_core.escaping import escaped
from kauldron_core.masking import masked
from pipelines.terminal import LOG_WIDTH

if TYPE_CHECKING:
    from rich.table import Table


_STATUS_STYLE = {
    "done": "green",
    "running": "cyan",
    "failed": "red",
    "diverged": "magenta",
    "preempted": "yellow",
    "interrupted": "yellow",
}
_BETWEEN = 3  # characters between two columns
_KEPT_COLUMNS = 3
_SHOWN = 3


def number(value: float | int | None) -> str:
    """Returns a metric's value in at most eight characters, `-` for none."""
    if value is None:
        return "-"
    if isinstance(value, int) or math.isnan(value) or math.isinf(value):
        return str(value)
    return f"{value:.4f}" if 1e-3 <= abs(value) < 1e4 or value == 0 else f"{value:.2e}"


def make_table(
    columns: Sequence[tuple[str, str]], rows: Iterable[Sequence[str]], *, title: str = "", width: int = LOG_WIDTH
) -> Table:
    """Returns a table.

    Args:
      columns: Headings and alignments (`left`, `right`), the most important ones first.
      rows: Texts, one a column.
      title: One line above.
      width: Room that there is. Where it is too small headings are broken at their slashes, then the last columns go.
    """
    from rich import box  # 0.1 s: only where something is shown
    from rich.table import Table
    from rich.text import Text

    # Before the layout, so that what is escaped has the room that it takes.
    texts = [[_cell(text) for text in row] for row in rows]
    headings = _fitting_headings([_cell(heading) for heading, _ in columns], texts, width)
    heading = Text(_cell(title)) if title else None
    table = Table(box=box.SIMPLE_HEAD, title=heading, title_justify="left", title_style="", pad_edge=False)
    for heading, (_, side) in zip(headings, columns, strict=False):
        table.add_column(Text(heading), justify="right" if side == "right" else "left", no_wrap=True, vertical="bottom")
    for row in texts:
        table.add_row(*(Text(text, style=_STATUS_STYLE.get(text, "")) for text in row[: len(headings)]))
    return table


def trial_columns(metrics: Sequence[str]) -> list[tuple[str, str]]:
    """Returns the columns of a table of trials; `trial_row` gives its rows."""
    named = [(name, "right") for name in metrics]
    return [("trial", "left"), ("status", "left"), *named, ("step", "right"), ("evals", "right")]


def trial_row(
    name: str, status: str, values: Mapping[str, float], metrics: Sequence[str], *, step: int, num_evaluations: int
) -> list[str]:
    """Returns the texts of one trial."""
    return [name, status, *(number(values.get(metric)) for metric in metrics), str(step), str(num_evaluations)]


def _cell(text: str) -> str:
    """Returns a text as it may stand in a table: a line break in it would begin a row."""
    return escaped(masked(text), keep="")


def _fitting_headings(headings: list[str], rows: list[list[str]], width: int) -> list[str]:
    """Returns the headings of the columns that fit, broken into lines where that helps."""
    if _width(headings, rows) > width:
        headings = [heading.replace("/", "/\n") for heading in headings]
    while len(headings) > _KEPT_COLUMNS and _width(headings, rows) > width:
        headings = headings[:-1]
    return headings


def _width(headings: list[str], rows: list[list[str]]) -> int:
    columns = zip(headings, *(row[: len(headings)] for row in rows), strict=True)
    return sum(max(len(line) for text in column for line in text.split("\n")) + _BETWEEN for column in columns)


def count(number: int, what: str) -> str:
    """Returns `1 trial`, `2 trials`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def repeat_lines(repeats: Mapping[str, str]) -> list[str]:
    """Returns what there is to say of trials whose point another one has: a line, or none.

    Args:
      repeats: Name of the other one, by name.
    """
    if not repeats:
        return []
    pairs = [f"{name} that of {other}" for name, other in repeats.items()]
    more = f", and {len(pairs) - _SHOWN} more" if len(pairs) > _SHOWN else ""
    verb = "repeats" if len(pairs) == 1 else "repeat"
    return [f"{count(len(pairs), 'trial')} {verb} the point of another: {', '.join(pairs[:_SHOWN])}{more}"]


def size(num_bytes: float) -> str:
    """Returns `12 KB`, `3.4 MB`, `1.2 GB`."""
    units = ["B", "KB", "MB", "GB", "TB"]
    while num_bytes >= 1000 and len(units) > 1:
        num_bytes /= 1000
        del units[0]
    unit = units[0]
    return f"{num_bytes:.0f} {unit}" if num_bytes >= 100 or unit in ("B", "KB") else f"{num_bytes:.1f} {unit}"
