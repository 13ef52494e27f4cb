"""Configs as HTML for notebooks: every node can be folded."""

from __future__ import annotations

import html
from typing import Any

from kauldron_core.konfig.calls.targets import display
from kauldron_core.konfig.showing.printing import pretty
from kauldron_core.konfig.tree.markers import CONST, QUALNAME
from kauldron_core.konfig.tree.nodes import fields, is_node
from kauldron_core.konfig.tree.walking import entries

_STYLE = "font-family:monospace;margin-left:1.5em"
_OPEN_DEPTH = 2


def to_html(cfg: Any) -> str:
    """Returns the HTML of a config."""
    return f'<div style="{_STYLE}">{_value("", cfg, 0, ())}</div>'


def _value(prefix: str, value: Any, depth: int, above: tuple[int, ...]) -> str:
    if id(value) in above:
        return f"<div>{prefix}...</div>"
    is_folded = CONST not in value if is_node(value) else any(is_node(item) for _, item in entries(value))
    if is_folded:
        name = fields(value).get(QUALNAME) if is_node(value) else None
        title = display(str(name)) if name else "dict" if is_node(value) else type(value).__name__
        items = [(str(key), item) for key, item in entries(value) if key != QUALNAME]
        return _folded(prefix, title, items, depth, (*above, id(value)))
    return f"<div>{prefix}<span style='color:#05a'>{html.escape(pretty(value))}</span></div>"


def _folded(prefix: str, title: str, items: list[tuple[str, Any]], depth: int, above: tuple[int, ...]) -> str:
    if not items:
        return f"<div>{prefix}<b>{html.escape(title)}</b>()</div>"
    inside = "".join(_value(f"{html.escape(name)} = ", item, depth + 1, above) for name, item in items)
    is_open = " open" if depth < _OPEN_DEPTH else ""
    summary = f"<summary>{prefix}<b>{html.escape(title)}</b></summary>"
    return f'<details{is_open}>{summary}<div style="margin-left:1.5em">{inside}</div></details>'
