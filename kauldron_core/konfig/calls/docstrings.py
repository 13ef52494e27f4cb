"""The line that documents each argument, from Google-style docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

from kauldron_core.konfig.calls.cache import cached

_SECTION = re.compile(r"(Args|Arguments|Attributes|Parameters|Keyword Args|Fields):\s*\Z")
_ENTRY = re.compile(r"(\s*)\*{0,2}`{0,2}(\w+)`{0,2}\s*(\([^)]*\))?\s*:\s*(.*)")


@cached
def argument_lines(target: Any) -> Mapping[str, str]:
    """Returns the first sentence about each argument of a class or function, as far as its docstrings have them."""
    lines: dict[str, str] = {}
    # A class documents its own fields best, then its bases theirs.
    owners = [*reversed(target.__mro__), target.__init__] if isinstance(target, type) else [target]
    for owner in owners:
        doc = getattr(owner, "__doc__", None)
        if isinstance(doc, str) and owner is not object:
            lines.update(_entries(inspect.cleandoc(doc)))
    return lines


def _entries(doc: str) -> dict[str, str]:
    """Returns the entries of all sections of one docstring."""
    entries: dict[str, str] = {}
    name, indent, is_inside = "", -1, False
    for line in doc.splitlines():
        if _SECTION.match(line):
            name, indent, is_inside = "", -1, True
        elif line and not line[0].isspace():
            is_inside = False
        elif is_inside and line.strip():
            match = _ENTRY.match(line)
            width = len(line) - len(line.lstrip())
            if match and (indent < 0 or width <= indent):
                name, indent = match[2], width
                entries[name] = match[4].strip()
            elif name:
                entries[name] = f"{entries[name]} {line.strip()}".strip()
    return {name: _first_sentence(text) for name, text in entries.items()}


def _first_sentence(text: str) -> str:
    match = re.match(r"(.+?[.;])(\s|\Z)", text)
    return (match[1] if match else text).rstrip(".;")
