"""Every leaf of a config that can be overridden: its type, its value, and the line that documents it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from kauldron_core import paths
from kauldron_core.konfig.calls import hints
from kauldron_core.konfig.calls.docstrings import argument_lines
from kauldron_core.konfig.calls.signatures import ANYTHING, Parameter
from kauldron_core.konfig.calls.targets import find_loaded
from kauldron_core.konfig.showing.changes import inline
from kauldron_core.konfig.tree.arguments import signature_of_node
from kauldron_core.konfig.tree.labels import shown_key
from kauldron_core.konfig.tree.markers import CONST, QUALNAME
from kauldron_core.konfig.tree.nodes import Node, fields, is_trusted
from kauldron_core.konfig.tree.references import Placeholder, Reference, describe

_MAX_VALUE = 60


@dataclass(frozen=True)
class Leaf:
    """One place that can be overridden.

    Attributes:
      path: Its path.
      type: What it takes, as an annotation.
      value: What it holds, as text.
      doc: The line that documents it, empty where there is none.
      is_set: Whether the config gives it; otherwise `value` is the default of the target.
    """

    path: str
    type: str
    value: str
    doc: str
    is_set: bool


def leaves_of(cfg: Any) -> list[Leaf]:
    """Returns every leaf of a config that can be overridden, also arguments that it leaves at their defaults."""
    return list(_below(cfg, "", hints.UNKNOWN, set()))


def _below(node: Any, path: str, annotation: Any, visited: set[int]) -> Iterator[Leaf]:
    """Yields the leaves below a node, shared nodes once."""
    if id(node) in visited:
        return
    visited.add(id(node))
    if isinstance(node, Node):
        is_call = QUALNAME in node
        known = signature_of_node(node) or ANYTHING
        docs: Mapping[str, str] = argument_lines(_target(node)) if is_call else {}
        for key in fields(node):
            if key == QUALNAME:
                continue
            parameter = known.at(key) if is_call else Parameter(str(key), hints.element(annotation, key))
            where = paths.join(path, shown_key(fields(node), key))
            yield from _field(fields(node)[key], where, parameter, docs.get(parameter.name, ""), visited)
        if is_call and not known.parameters and len(fields(node)) == 1:
            yield Leaf(path, _type(node, annotation), _shown(node), "", True)
        yield from _unset(node, path, docs) if is_call else ()
    else:
        for index, item in enumerate(cast("list[Any]", node)):
            inner = Parameter("", hints.element(annotation, index))
            yield from _field(item, paths.join(path, index), inner, "", visited)


def _field(stored: Any, path: str, parameter: Parameter, doc: str, visited: set[int]) -> Iterator[Leaf]:
    is_node = isinstance(stored, Node) and CONST not in stored
    is_list_of_nodes = isinstance(stored, (list, tuple)) and any(
        isinstance(item, Node) for item in cast("list[Any]", stored)
    )
    if (is_node and len(fields(cast(Node, stored)))) or is_list_of_nodes:
        yield from _below(stored, path, parameter.annotation, visited)
    else:
        yield Leaf(path, _type(stored, parameter.annotation), _shown(stored), doc, True)


def _unset(node: Node, path: str, docs: Mapping[str, str]) -> Iterator[Leaf]:
    """Yields the arguments that a call leaves at their defaults."""
    known = signature_of_node(node) or ANYTHING
    for name, parameter in known.parameters.items():
        # What a module is a part of is Flax's own business.
        if name != "parent" and name not in node and known.position_of(name) not in node:
            value = "(required)" if parameter.is_required else _default(parameter.default)
            yield Leaf(paths.join(path, name), _type(None, parameter.annotation), value, docs.get(name, ""), False)


def _target(node: Node) -> Any:
    name = fields(node).get(QUALNAME)
    # What a file names is only looked at once it was trusted; its parameters are unknown until then as well.
    return find_loaded(name) if isinstance(name, str) and is_trusted(node) else None


def _type(value: Any, annotation: Any) -> str:
    if not hints.is_anything(annotation):
        return hints.described(annotation)
    if type(value) is Placeholder:
        return value.type.__name__
    return "any" if value is None or isinstance(value, (Reference, Node)) else type(value).__name__


def _shown(value: Any) -> str:
    if isinstance(value, Reference):
        return describe(value)
    return _short(inline(value))


def _default(default: Any) -> str:
    text = getattr(default, "__qualname__", None) or getattr(default, "__name__", None) or repr(default)
    is_made = "factory" in type(default).__name__.lower() or " at 0x" in text
    return "(made when built)" if is_made else _short(text)


def _short(text: str) -> str:
    return text if len(text) <= _MAX_VALUE else f"{text[: _MAX_VALUE - 3]}..."
