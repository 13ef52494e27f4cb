"""What a node of a config holds beside its fields. Kept out of the class, where every name could be a field's name."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import ml_collections  # pyright: ignore[reportMissingTypeStubs]

from kauldron_core.konfig.tree.markers import CONST, QUALNAME
from kauldron_core.konfig.tree.origins import Origin

Node: TypeAlias = ml_collections.ConfigDict
FieldReference: TypeAlias = ml_collections.FieldReference

PLAIN: Final = frozenset({type(None), bool, int, float, str})
"""Types of values that are stored as they are, without another look."""


def is_node(value: Any) -> bool:
    """Returns whether a value is a node of a config."""
    return isinstance(value, Node)


def is_a(value: Any, kinds: Any) -> bool:
    """Returns `isinstance(value, kinds)`, and leaves the checker's view of `value` (anything) as it is."""
    return isinstance(value, kinds)


def kind_of(value: Any) -> Any:
    """Returns `type(value)`, of which the checker then knows as little as of `value`."""
    return value.__class__


def is_sequence(value: Any) -> bool:
    """Returns whether a value is a list or tuple, whose entries a config holds like fields."""
    return isinstance(value, (list, tuple))


def fields(node: Node) -> dict[Any, Any]:
    """Returns the fields of a node as they are stored, references unread."""
    return vars(node)["_fields"]


def name_of(node: Node) -> Any:
    """Returns what a call calls or a constant names, None for a plain dict."""
    own = fields(node)
    return own.get(QUALNAME, own.get(CONST))


def is_trusted(node: Node) -> bool:
    """Returns whether the node was written by code that runs here, and not read from a file."""
    return vars(node).get("_trusted", True)


def distrust(node: Node) -> None:
    """Marks a node as one that came from a file, at least in part."""
    vars(node)["_trusted"] = False


def origin(node: Node) -> Origin | None:
    """Returns where the node was written."""
    return vars(node).get("_origin")


def initial_state(*, type_safe: bool = True, trusted: bool = True, origin: Origin | None = None) -> dict[str, Any]:
    """Returns the state of an empty node."""
    return {
        "_fields": {},
        "_locked": False,
        "_type_safe": type_safe,
        "_convert_dict": True,
        "_allow_dotted_keys": True,
        "_sort_keys": False,
        "_trusted": trusted,
        "_origin": origin,
    }


def blank(node_class: type[Any], *, trusted: bool = True, origin: Origin | None = None) -> Any:
    """Returns an empty node."""
    node: Any = object.__new__(node_class)
    node.__dict__.update(initial_state(trusted=trusted, origin=origin))
    return node


def stored_key(node: ml_collections.ConfigDict, key: Any) -> Any:
    """Returns the key under which a field is stored: `0` and `-1` of a call are positional arguments."""
    if type(key) is int and QUALNAME in fields(node):
        count = positional_count(node)
        return str(key + count if -count <= key < 0 else key)
    return key


def positional_count(node: Node) -> int:
    """Returns how many arguments a call has by position."""
    own, count = fields(node), 0
    while str(count) in own:
        count += 1
    return count
