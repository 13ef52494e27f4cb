"""Goes through a config as it is stored, references unread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kauldron_core.konfig.tree.labels import shown_key
from kauldron_core.konfig.tree.nodes import PLAIN, fields, is_a, is_node, is_sequence, kind_of, stored_key
from kauldron_core.konfig.tree.references import OpRef, Placeholder


def entries(value: Any) -> Iterable[tuple[Any, Any]]:
    """Returns what a node or list holds, by the key that paths show; nothing for any other value."""
    if is_node(value):
        own = fields(value)
        return [(shown_key(own, key), item) for key, item in own.items()]
    return [(index, value[index]) for index in range(len(value))] if is_sequence(value) else ()


def walk(root: Any, *, operands: bool) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yields every node of a config once with its path (the first one, where a node is shared).

    Args:
      root: The config.
      operands: Whether nodes among the operands of references count too.
    """
    visited: set[int] = set()
    pending: list[tuple[tuple[Any, ...], Any]] = [((), root)]
    while pending:
        path, value = pending.pop()
        if is_node(value):
            if id(value) in visited:
                continue
            visited.add(id(value))
            yield path, value
        below = [((*path, key), item) for key, item in entries(value) if type(item) not in PLAIN]
        pending.extend(reversed(below or [(path, item) for item in _behind(value, operands)]))


def nodes(root: Any) -> list[Any]:
    """Returns every node of a config once, the root first."""
    # Without paths, which would double the time of a copy.
    found: dict[int, Any] = {}
    pending = [root]
    while pending:
        value = pending.pop()
        if not is_node(value):
            below = value if is_sequence(value) else _behind(value, operands=True)
        elif id(value) in found:
            continue
        else:
            found[id(value)] = value
            below = fields(value).values()
        pending.extend(reversed([item for item in below if type(item) not in PLAIN]))
    return list(found.values())


def child(value: Any, part: Any) -> Any:
    """Returns what a node or list holds at one part of a path.

    Raises:
      LookupError: With the part, when there is nothing.
    """
    if is_node(value) and (key := stored_key(value, part)) in fields(value):
        return fields(value)[key]
    if is_sequence(value) and isinstance(part, int) and -len(value) <= part < len(value):
        return value[part]
    raise LookupError(part)


def replaced(value: Any, parts: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    """Returns `value` with what lies at a path changed; nodes are changed in place, lists and tuples are made anew.

    Raises:
      LookupError: With the part of the path that leads nowhere.
    """
    if not parts:
        return change(value)
    new = replaced(child(value, parts[0]), parts[1:], change)
    if is_node(value):
        fields(value)[stored_key(value, parts[0])] = new
        return value
    items = list(value)
    items[parts[0]] = new
    return kind_of(value)(items)


def _behind(value: Any, operands: bool) -> Iterable[Any]:
    """Returns what a value that is no node or list stands for, as far as it is stored."""
    if type(value) is Placeholder:
        return (value.value,)
    if type(value) is OpRef and operands:
        return (*value.konfig_args, *value.konfig_kwargs.values())
    return value.values() if is_a(value, dict) else ()
