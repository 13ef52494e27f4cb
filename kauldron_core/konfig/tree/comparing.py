"""The leaves of a config, and those in which two differ."""

from __future__ import annotations

from typing import Any, NamedTuple

from kauldron_core import paths
from kauldron_core.konfig.tree.evaluate import Evaluation
from kauldron_core.konfig.tree.nodes import is_node, is_sequence
from kauldron_core.konfig.tree.size import check_size


class _Missing:
    def __repr__(self) -> str:
        return "<missing>"

    def __bool__(self) -> bool:
        return False


MISSING: Any = _Missing()
"""The value of a field that one of two configs does not have."""


class Change(NamedTuple):
    """One leaf that differs."""

    path: str
    old: Any
    new: Any


def flatten(cfg: Any) -> dict[str, Any]:
    """Returns every leaf by its path (`'model.layers[0].features'`), references read, empty dicts as leaves."""
    evaluation = Evaluation()
    check_size(cfg, evaluation, is_shared=False)
    leaves: dict[str, Any] = {}
    inside: list[int] = []

    def visit(value: Any, path: str) -> None:
        value = evaluation.value(value)
        is_tree = is_node(value) or is_sequence(value)
        if not is_tree or not value or id(value) in inside:
            leaves[path] = value
            return
        inside.append(id(value))
        for key, item in evaluation.entries(value):
            visit(item, paths.join(path, key))
        inside.pop()

    visit(cfg, "")
    return leaves


def diff(a: Any, b: Any) -> list[Change]:
    """Returns the leaves in which two configs differ, in the order of the first; `MISSING` where one has none."""
    first, second = flatten(a), flatten(b)
    changes = [
        Change(path, old, second.get(path, MISSING))
        for path, old in first.items()
        if not _is_same(old, second.get(path, MISSING))
    ]
    return changes + [Change(path, MISSING, new) for path, new in second.items() if path not in first]


def _is_same(old: Any, new: Any) -> bool:
    return old is new or (type(old) is type(new) and bool(old == new)) or (old != old and new != new)
