"""Finds swept paths that no object would ever see."""

from __future__ import annotations

from typing import Any, cast

from kauldron_core import paths
from kauldron_core.errors import ConfigError
from kauldron_core.konfig.calls.targets import find_loaded
from kauldron_core.konfig.overrides.places import find_place
from kauldron_core.konfig.tree.markers import QUALNAME
from kauldron_core.konfig.tree.nodes import fields, is_trusted, stored_key
from kauldron_core.konfig.tree.references import OpRef, PathRef, Placeholder
from kauldron_core.konfig.writing.config_dict import ConfigDict

_HOOK = "__konfig_resolve_exclude_fields__"


def is_unread(cfg: ConfigDict, path: str) -> bool:
    """Returns whether `path` lies in a field that resolving leaves out, and no reference reads it."""
    if not _passes_excluded(cfg, paths.parse(path)):
        return False
    place = find_place(cfg, path)
    reader = _Reader()
    reader.visit(cfg)
    return id(place.holder) not in reader.visited and (id(place.holder), place.key) not in reader.read


def _passes_excluded(cfg: ConfigDict, parts: tuple[Any, ...]) -> bool:
    node: Any = cfg
    for part in parts:
        if isinstance(node, ConfigDict) and part in _excluded(node):
            return True
        try:
            node = node[part]
        except (ConfigError, LookupError, TypeError):
            return False
    return False


def _excluded(node: ConfigDict) -> tuple[str, ...]:
    """Returns the fields of a call that its target leaves out."""
    name = fields(node).get(QUALNAME)
    target = find_loaded(name) if isinstance(name, str) and is_trusted(node) else None
    return tuple(getattr(target, _HOOK, ()))


class _Reader:
    """Goes through a config as resolving it does, and notes what it meets.

    Attributes:
      visited: Ids of the nodes and lists that are resolved.
      read: Fields that references read, as (id of the node, key).
    """

    def __init__(self) -> None:
        self.visited: set[int] = set()
        self.read: set[tuple[int, Any]] = set()

    def visit(self, value: Any) -> None:
        """Notes a value and what is below it."""
        if isinstance(value, PathRef):
            self._follow(value)
        elif isinstance(value, OpRef):
            for operand in (*value.konfig_args, *value.konfig_kwargs.values()):
                self.visit(operand)
        elif isinstance(value, Placeholder):
            self.visit(value.value)
        elif isinstance(value, (ConfigDict, list, tuple)) and id(cast(Any, value)) not in self.visited:
            self.visited.add(id(cast(Any, value)))
            for child in self._children(value):
                self.visit(child)

    def _children(self, value: Any) -> list[Any]:
        if not isinstance(value, ConfigDict):
            return list(value)
        excluded = _excluded(value)
        return [child for key, child in fields(value).items() if key not in excluded]

    def _follow(self, ref: PathRef) -> None:
        """Notes the fields on the way of a reference, and what it leads to."""
        value: Any = ref.konfig_node
        for part in ref.konfig_parts:
            if isinstance(value, ConfigDict):
                key = stored_key(value, part)
                if (id(value), key) in self.read and part is ref.konfig_parts[-1]:
                    return
                self.read.add((id(value), key))
                stored = fields(value).get(key)
                if isinstance(stored, (PathRef, OpRef)):
                    self.visit(stored)
            try:
                value = value[part]
            except (ConfigError, LookupError, TypeError):
                return
        self.visit(value)
