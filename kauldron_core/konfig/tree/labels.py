"""How messages call a node: `optax.adam(...)`, or `the config`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kauldron_core import paths
from kauldron_core.konfig.calls.targets import display
from kauldron_core.konfig.tree.markers import CONST, QUALNAME


def label(fields: Mapping[Any, Any]) -> str:
    """Returns what a node with these fields is called in a message."""
    if QUALNAME in fields:
        return f"{display(str(fields[QUALNAME]))}(...)"
    return display(str(fields[CONST])) if CONST in fields else "the config"


def field(fields: Mapping[Any, Any], key: Any) -> str:
    """Returns what one field of such a node is called in a message."""
    if QUALNAME in fields:
        name = f"argument {key}" if isinstance(key, str) and key.isdigit() else str(key)
        return f"{display(str(fields[QUALNAME]))}({name}=...)"
    return paths.join("cfg", key)


def shown_key(fields: Mapping[Any, Any], key: Any) -> Any:
    """Returns a key as paths show it: positional arguments of a call are numbers."""
    return int(key) if isinstance(key, str) and key.isdigit() and QUALNAME in fields else key
