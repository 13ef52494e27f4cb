"""`Table`: rows that print as text, show as HTML in a notebook, and can be read by a program."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Sequence
from typing import Any

import numpy as np

_STYLE = "text-align:left;padding:2px 12px 2px 0;border-bottom:1px solid #ddd;vertical-align:top"


@dataclasses.dataclass(frozen=True)
class Table:
    """A table. Nothing is displayed unless a notebook or `print` asks for it.

    Attributes:
      columns: Names of the columns.
      rows: The values; None is an empty cell.
      title: What it shows, one line.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    title: str = ""

    def column(self, name: str) -> list[Any]:
        """Returns the values of one column."""
        index = self.columns.index(name)
        return [row[index] for row in self.rows]

    def to_dicts(self) -> list[dict[str, Any]]:
        """Returns each row as a dictionary (`pandas.DataFrame(table.to_dicts())` takes it)."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        cells = [list(self.columns), *([_text(value) for value in row] for row in self.rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
        ]
        rule = "  ".join("-" * width for width in widths)
        return "\n".join([*([self.title] if self.title else []), lines[0], rule, *lines[1:]])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f'<th style="{_STYLE}">{html.escape(name)}</th>' for name in self.columns)
        body = "".join(f"<tr>{_html_cells(row)}</tr>" for row in self.rows)
        caption = f"<div>{html.escape(self.title)}</div>" if self.title else ""
        return f'{caption}<table style="border-collapse:collapse"><tr>{head}</tr>{body}</table>'


def _html_cells(row: Sequence[Any]) -> str:
    return "".join(f'<td style="{_STYLE}">{html.escape(_text(value))}</td>' for value in row)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, float | np.floating):
        return f"{value:.4g}"
    if isinstance(value, int | np.integer):
        return f"{value:,}"
    return str(value)
