"""What a tree is made of, seen from a path: which steps lead on from a value, and what lies there.

Keys come first, attributes second, so that a user's dict key is never hidden by a method of dict.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kauldron_core.paths import Part

MISSING = object()
"""What `get_child` returns when there is nothing: None is a value."""

_METHODS = (types.MethodType, types.BuiltinMethodType, types.MethodWrapperType)


def is_mapping(obj: Any) -> bool:
    """Returns whether `obj` is a dict or behaves as one (a ConfigDict is no `Mapping`)."""
    if isinstance(obj, type):
        return False
    return isinstance(obj, Mapping) or all(hasattr(obj, name) for name in ("keys", "__getitem__", "__contains__"))


def is_sequence(obj: Any) -> bool:
    """Returns whether `obj` is a list or tuple. A named tuple has names instead, text and arrays are leaves."""
    return isinstance(obj, Sequence) and not isinstance(obj, str | bytes | bytearray | range) and not _has_names(obj)


def is_named(obj: Any) -> bool:
    """Returns whether `obj` has declared fields: a dataclass instance or a named tuple. Without fields it is a leaf."""
    if isinstance(obj, type):
        return False
    return dataclasses.is_dataclass(obj) or (_has_names(obj) and bool(obj._fields))


def _has_names(obj: Any) -> bool:
    return isinstance(obj, tuple) and hasattr(obj, "_fields")


def is_container(obj: Any) -> bool:
    return is_mapping(obj) or is_sequence(obj) or is_named(obj)


def children(obj: Any) -> Iterator[tuple[Part, Any]]:
    """Yields each (step, value) below `obj`; nothing below a leaf."""
    if is_mapping(obj):
        for key in obj.keys():  # noqa: SIM118 - iterating a ConfigDict is not promised to give keys
            yield key, obj[key]
    elif is_named(obj):
        names = getattr(obj, "_fields", None) or [field.name for field in dataclasses.fields(obj)]
        for name in names:
            if (value := getattr(obj, name, MISSING)) is not MISSING:
                yield name, value
    elif is_sequence(obj):
        yield from enumerate(obj)


def available(obj: Any) -> list[Part]:
    """Returns the steps that can be taken from `obj`, for messages."""
    if steps := [step for step, _ in children(obj)]:
        return steps
    attributes = getattr(obj, "__dict__", {})
    return [name for name in attributes if not name.startswith("_")]


def get_child(obj: Any, part: Part) -> Any:
    """Returns the item or else the attribute `part` of `obj`, or MISSING."""
    if (value := _item(obj, part)) is not MISSING:
        return value
    if not isinstance(part, str) or not part.isidentifier():
        return MISSING
    value = getattr(obj, part, MISSING)
    # `batch.items` with no such key is a miss, not the method of dict.
    return MISSING if isinstance(value, _METHODS) and is_container(obj) else value


def _item(obj: Any, part: Part) -> Any:
    if isinstance(obj, str | bytes | type) or not hasattr(obj, "__getitem__") or not _in_bounds(obj, part):
        return MISSING
    try:
        return obj[part]
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        return MISSING


def _in_bounds(obj: Any, part: Part) -> bool:
    """Returns whether whole numbers in `part` fit the array `obj`; a JAX array would clamp them silently."""
    shape = getattr(obj, "shape", None)
    if not isinstance(shape, tuple):
        return True
    indices = part if isinstance(part, tuple) else (part,)
    used = [index for index in indices if index is not None]
    if Ellipsis in used:
        at = used.index(Ellipsis)
        used[at : at + 1] = [slice(None)] * (len(shape) - len(used) + 1)
    if len(used) > len(shape):
        return False
    return all(not _is_index(index) or -size <= index < size for index, size in zip(used, shape, strict=False))


def _is_index(index: Any) -> bool:
    return isinstance(index, int) and not isinstance(index, bool)
