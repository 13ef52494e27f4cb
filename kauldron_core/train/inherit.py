"""How the parts of an experiment take what they leave unset from its root."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

_T = TypeVar("_T")
_MEMORY = "_inherited_fields"


def inherit(part: _T, **values: Any) -> _T:
    """Returns `part` with those of its fields that are None set to `values`.

    The new object remembers what it inherited: bound again, under another root, it takes the values of that one, and
    keeps what was given to it explicitly.

    Args:
      part: A dataclass instance.
      **values: Values by field name; names that `part` doesn't have are ignored.
    """
    if not dataclasses.is_dataclass(part) or isinstance(part, type):
        return part
    names = {field.name for field in dataclasses.fields(part) if field.init}
    before = getattr(part, _MEMORY, frozenset())
    taken = {name for name in names & values.keys() if name in before or getattr(part, name) is None}
    if not taken:
        return part
    bound = dataclasses.replace(part, **{name: values[name] for name in taken})
    object.__setattr__(bound, _MEMORY, frozenset(taken))
    return bound


def replace(part: _T, **changes: Any) -> _T:
    """Returns what `dataclasses.replace` does; the rest of what `part` inherited still counts as inherited."""
    changed = dataclasses.replace(part, **changes)  # pyright: ignore[reportArgumentType, reportCallIssue]
    object.__setattr__(changed, _MEMORY, getattr(part, _MEMORY, frozenset()) - changes.keys())
    return changed
