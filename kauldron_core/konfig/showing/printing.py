"""Configs as text that reads like the Python calls they describe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kauldron_core.konfig.calls.targets import display
from kauldron_core.konfig.tree.markers import CONST, QUALNAME
from kauldron_core.konfig.tree.nodes import fields, is_a, is_node
from kauldron_core.konfig.tree.references import Placeholder, Reference, describe
from kauldron_core.konfig.tree.walking import entries

_WIDTH = 80
_INDENT = "    "


def pretty(value: Any) -> str:
    """Returns a config as Python code. A node that is met twice is marked `&id001` and named `*id001` after."""
    return _Printer(value).text(value, 0)


class _Printer:
    def __init__(self, root: Any) -> None:
        self._names: dict[int, str | None] = {}
        self._count(root)
        self._shown: set[int] = set()

    def _count(self, value: Any) -> None:
        """Finds the nodes that are met twice; their names are given in the order of printing."""
        if is_node(value):
            if id(value) in self._names:
                self._names[id(value)] = ""
                return
            self._names[id(value)] = None
        for _, item in entries(value):
            self._count(item)
        if type(value) is Placeholder:
            self._count(value.value)

    def text(self, value: Any, depth: int) -> str:
        """Returns the text of one value at a depth of nesting."""
        if is_node(value):
            return self._node(value, depth)
        if type(value) is list:
            return _block("[", value, "]", depth, self.text)
        if is_a(value, tuple):
            return f"({self.text(value[0], depth)},)" if len(value) == 1 else _block("(", value, ")", depth, self.text)
        if isinstance(value, Reference):
            return describe(value)
        if type(value) is Placeholder:
            return repr(value) if value.value is None else self.text(value.value, depth)
        return "..." if value is ... else repr(value)

    def _node(self, node: Any, depth: int) -> str:
        name = self._names.get(id(node))
        if name is None:
            return self._body(node, depth)
        if id(node) in self._shown:
            return f"*{name}"
        self._shown.add(id(node))
        self._names[id(node)] = name = f"id{len(self._shown):03}"
        return f"&{name} {self._body(node, depth)}"

    def _body(self, node: Any, depth: int) -> str:
        own = fields(node)
        if CONST in own:
            return display(str(own[CONST]))
        items = [item for item in own.items() if item[0] != QUALNAME]
        if QUALNAME in own:
            return _block(f"{display(str(own[QUALNAME]))}(", items, ")", depth, self._argument)
        return _block("{", items, "}", depth, self._entry)

    def _argument(self, item: tuple[Any, Any], depth: int) -> str:
        key, value = item
        return self.text(value, depth) if str(key).isdigit() else f"{key}={self.text(value, depth)}"

    def _entry(self, item: tuple[Any, Any], depth: int) -> str:
        return f"{item[0]!r}: {self.text(item[1], depth)}"


def _block(start: str, items: Any, end: str, depth: int, show: Callable[[Any, int], str]) -> str:
    """Returns the items on one line when they are short, else one a line."""
    texts = [show(item, depth + 1) for item in items]
    line = start + ", ".join(texts) + end
    if "\n" not in line and len(line) + depth * len(_INDENT) <= _WIDTH:
        return line
    inner = _INDENT * (depth + 1)
    return start + "\n" + "".join(f"{inner}{text},\n" for text in texts) + _INDENT * depth + end
