"""How the parts of an experiment take what they leave unset from its root."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

_T = TypeVar("_T")
_MEMORY = "_inherited_fields"


def inherit(part: _T, **values: Any) -> _T:
    """Returns `part` with those of its fields that are None set to `values`.

    What it inherited is remembered: bound again, under another root, it takes the values of that one, and keeps what
    was given to it explicitly.

    Args:
      part: A dataclass instance; anything else is returned as it is.
      **values: Values by field name; names that `part` doesn't have are ignored.
    """
    if not dataclasses.is_dataclass(part) or isinstance(part, type):
        return part
    before = _inherited(part)
    names = {field.name for field in dataclasses.fields(part) if field.init}
    taken = {name for name in names & values.keys() if name in before or getattr(part, name) is None}
    return _replace(part, {name: values[name] for name in taken}, inherited=before | taken)


def replace(part: _T, **changes: Any) -> _T:
    """Returns `part` with some fields set explicitly; the rest of what it inherited still counts as inherited."""
    return _replace(part, changes, inherited=_inherited(part) - changes.keys())


def is_inherited(part: Any, name: str) -> bool:
    """Returns whether a field of `part` holds what it inherited, and not what it was given."""
    return name in _inherited(part)


def _replace(part: Any, changes: dict[str, Any], *, inherited: frozenset[str]) -> Any:
    changes = {name: value for name, value in changes.items() if not _is_same(getattr(part, name), value)}
    if not changes:
        # The same object, with what it has compiled.
        return part
    changed = dataclasses.replace(part, **changes)
    object.__setattr__(changed, _MEMORY, inherited)
    return changed


def _inherited(part: Any) -> frozenset[str]:
    return getattr(part, _MEMORY, frozenset())


def _is_same(left: Any, right: Any) -> bool:
    if left is right:
        return True
    return type(left) is type(right) and isinstance(left, str | int) and left == right
