"""What a node of a config holds beside its fields. Kept out of the class, where every name could be a field's name."""

from __future__ import annotations

from typing import Any

import ml_collections

from kauldron_core.konfig.markers import QUALNAME
from kauldron_core.konfig.origins import Origin


def fields(node: ml_collections.ConfigDict) -> dict[Any, Any]:
    """Returns the fields of a node as they are stored, references unread."""
    return node._fields  # pyright: ignore[reportPrivateUsage]


def is_trusted(node: ml_collections.ConfigDict) -> bool:
    """Returns whether the node was written by code that runs here, and not read from a file."""
    return vars(node).get("_trusted", True)


def distrust(node: ml_collections.ConfigDict) -> None:
    """Marks a node as one that came from a file, at least in part."""
    vars(node)["_trusted"] = False


def origin(node: ml_collections.ConfigDict) -> Origin | None:
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
    node = node_class.__new__(node_class)
    vars(node).update(initial_state(trusted=trusted, origin=origin))
    return node


def stored_key(node: ml_collections.ConfigDict, key: Any) -> Any:
    """Returns the key under which a field is stored: `0` and `-1` of a call are positional arguments."""
    if type(key) is int and QUALNAME in fields(node):
        count = positional_count(node)
        return str(key + count if -count <= key < 0 else key)
    return key


def positional_count(node: ml_collections.ConfigDict) -> int:
    """Returns how many arguments a call has by position."""
    own, count = fields(node), 0
    while str(count) in own:
        count += 1
    return count
