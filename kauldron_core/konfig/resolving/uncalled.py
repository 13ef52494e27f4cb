"""A class or function where what it makes is meant: the call was forgotten."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from typing import Any, cast

from kauldron_core import paths
from kauldron_core.errors import ConfigError
from kauldron_core.konfig.calls import hints
from kauldron_core.konfig.calls.signatures import signature_of


def refuse_uncalled(value: Any, *, at: str) -> None:
    """Refuses a class or a function at a place, or in the lists and dicts there, which are for objects.

    Args:
      value: What stands there.
      at: The place, for the message.

    Raises:
      ConfigError: With the call that was meant.
    """
    if isinstance(value, type | types.FunctionType):
        raise ConfigError(uncalled(value, value.__name__, at=at))
    if isinstance(value, Mapping):
        entries = cast(Mapping[Any, Any], value)
        for key, inner in entries.items():
            refuse_uncalled(inner, at=paths.join(at, key))
    elif type(value) in (list, tuple):
        for index, inner in enumerate(value):
            refuse_uncalled(inner, at=paths.join(at, index))


def uncalled(target: Any, name: str, *, at: str) -> str:
    """Returns the message about a class or function that was not called.

    Args:
      target: The class or function.
      name: How it is written where it stands.
      at: The place.
    """
    kind = "class" if isinstance(target, type) else "function"
    return f"{at}: the {kind} {name} stands where what it makes is meant. Call it: {name}({_arguments(target)})."


def wants_instance(target: Any, annotation: Any) -> bool:
    """Returns whether a field so annotated takes instances of the class `target`, and certainly not the class."""
    if not isinstance(target, type) or hints.is_anything(annotation):
        return False
    fits = False
    for member in hints.members(annotation):
        kind: Any = typing.get_origin(hints.unwrapped(member)) or hints.unwrapped(member)
        if kind in (None, type(None)):
            continue
        if not isinstance(kind, type) or kind is type or getattr(kind, "_is_protocol", False):
            return False
        if isinstance(target, kind):
            return False
        fits = fits or issubclass(target, kind)
    return fits


def _arguments(target: Any) -> str:
    signature = signature_of(target)
    return "..." if signature is None or signature.required else ""
