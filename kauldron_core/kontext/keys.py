"""`Key`: annotates a field that holds a path into the context, so that the value there can be passed on by name."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import types
import typing
from collections.abc import Iterator
from typing import Annotated, Any

_MARK = "kontext.Key"
_SPELLINGS = ("Key", "KeyTree")

Key = Annotated[str, _MARK]
"""A path into the context, such as `batch.image`. `Key | None = None` is an optional one."""

KeyTree = Annotated[Any, _MARK]
"""A dict, list or tuple (nested at will) of paths."""

# A text, so that configs can print and save it.
REQUIRED: str = "__KEY_REQUIRED__"
"""The default of a key that every user has to set."""


def get_keypaths(keyed_obj: Any) -> dict[str, Any]:
    """Returns the paths that an object's keys hold, by the name of the key.

    The keys are the fields annotated `Key` (inherited ones included, also inside `dict[str, Key]` and the like), or
    whatever the object's method `__kontext_keys__()` returns. Unset keys are None or REQUIRED.
    """
    if hasattr(type(keyed_obj), "__kontext_keys__"):
        return dict(keyed_obj.__kontext_keys__())
    return {name: getattr(keyed_obj, name, REQUIRED) for name in _key_names(type(keyed_obj))}


def is_key_annotated(cls_or_obj: Any) -> bool:
    """Returns whether a class, or the class of an object, has keys."""
    cls = cls_or_obj if isinstance(cls_or_obj, type) else type(cls_or_obj)
    return hasattr(cls, "__kontext_keys__") or bool(_key_names(cls))


@functools.lru_cache(maxsize=4096)
def _key_names(cls: type) -> tuple[str, ...]:
    """Returns the names of the fields annotated as keys, base classes first; the last annotation counts."""
    is_key: dict[str, bool] = {}
    for base in reversed(cls.__mro__):
        for name, annotation in inspect.get_annotations(base).items():
            is_key[name] = _is_key_annotation(annotation, base)
    return tuple(name for name, answer in is_key.items() if answer)


def _is_key_annotation(annotation: Any, owner: type) -> bool:
    if not isinstance(annotation, str):
        return _holds_mark(annotation)
    # One annotation at a time: a name imported for type checkers only must not spoil those next to it.
    holder = types.SimpleNamespace(__annotations__={"field": annotation})
    names = vars(sys.modules[owner.__module__]) if owner.__module__ in sys.modules else {}
    try:
        hints = typing.get_type_hints(holder, names, dict(vars(owner)), include_extras=True)
    except Exception:
        # A name that cannot be looked up here (a local class, an import for type checkers): go by the spelling.
        return any(name in _SPELLINGS for name in _names(annotation))
    return _holds_mark(hints["field"])


def _holds_mark(annotation: Any) -> bool:
    """Returns whether the mark of `Key` is in `annotation`: in `Key | None`, in `dict[str, Key]`."""
    if _MARK in getattr(annotation, "__metadata__", ()):
        return True
    return any(_holds_mark(argument) for argument in typing.get_args(annotation))


def _names(annotation: str) -> Iterator[str]:
    """Yields the last part of every name in the text of an annotation."""
    try:
        tree = ast.parse(annotation, mode="eval")
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
