"""Where the values of an overlay go: paths become the node and the key that they replace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kauldron_core import paths
from kauldron_core.errors import ConfigError, unknown_name
from kauldron_core.konfig.tree.arguments import check_argument
from kauldron_core.konfig.tree.evaluate import Evaluation
from kauldron_core.konfig.tree.markers import QUALNAME
from kauldron_core.konfig.tree.nodes import fields, is_node, stored_key
from kauldron_core.konfig.tree.walking import child, replaced


def places_of(root: Any, overlay: Mapping[str, Any]) -> dict[tuple[int, Any], Any]:
    """Returns the overlay by `(id(node), key)`.

    A path into a list replaces the whole list by a copy with that entry changed.

    Raises:
      ConfigError: When a path leads nowhere.
    """
    replaced: dict[tuple[int, Any], Any] = {}
    for path, value in overlay.items():
        node, key, below = _find(root, path)
        place = (id(node), key)
        if below:
            current = replaced[place] if place in replaced else Evaluation().read(node, key)
            value = _with_entry(current, below, value, path)
        replaced[place] = value
    return replaced


def _find(root: Any, path: str) -> tuple[Any, Any, tuple[Any, ...]]:
    """Returns the node nearest to a path's end, the key in it, and the rest of the path inside a list there."""
    parts = paths.parse(path)
    if not parts or not is_node(root):
        raise ConfigError(f"overlay {path!r}: not the path of a field")
    node: Any = root
    at = 0
    value: Any = root
    for index, part in enumerate(parts):
        if is_node(value):
            node, at = value, index
        value = _step(value, part, path, is_last=index + 1 == len(parts))
    return node, stored_key(node, parts[at]), parts[at + 1 :]


def _step(value: Any, part: Any, path: str, *, is_last: bool) -> Any:
    if is_node(value):
        own = fields(value)
        key = stored_key(value, part)
        if key in own:
            return Evaluation().read(value, key) if not is_last else None
        if is_last and QUALNAME in own:
            check_argument(value, key)
            return None
        raise ConfigError(unknown_name("field", str(part), map(str, own), at=f"overlay {path!r}"))
    try:
        return child(value, part)
    except LookupError:
        raise ConfigError(f"overlay {path!r}: there is no entry {part!r}") from None


def _with_entry(current: Any, below: tuple[Any, ...], value: Any, path: str) -> Any:
    try:
        return replaced(current, below, lambda _: value)
    except LookupError as error:
        raise ConfigError(f"overlay {path!r}: there is no entry {error.args[0]!r}") from None
