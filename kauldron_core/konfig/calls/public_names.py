"""The name under which a class or function can be imported, in its public form where there is one."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Any

from kauldron_core.konfig.trusting.trust_lists import NAMED_MODULES

_BUILTIN_KINDS = {type(None): "types:NoneType", type(...): "types:EllipsisType"}


def importable_name(value: Any) -> str | None:
    """Returns a `module:name` that leads to this very class or function, or None when there is none (a lambda).

    A public module is preferred to the private one where the object was defined: `optax:adam`, not
    `optax._src.alias:adam`.
    """
    if isinstance(value, type) and value in _BUILTIN_KINDS:
        return _BUILTIN_KINDS[value]
    module, name = _defined_at(value)
    if not isinstance(module, str) or not isinstance(name, str) or "<" in name:
        return None
    for candidate in _candidates(module):
        if _leads_to(candidate, name, value):
            return f"{candidate}:{name}"
    # A module that is being executed (the config file itself) does not hold its later names yet.
    return f"{module}:{name}" if not hasattr(sys.modules.get(module), name.split(".")[0]) else None


def _defined_at(value: Any) -> tuple[Any, Any]:
    if inspect.ismethod(value):
        holder: Any = value.__self__
        if not isinstance(holder, type):
            return None, None
        return holder.__module__, f"{holder.__qualname__}.{value.__name__}"
    return getattr(value, "__module__", None), getattr(value, "__qualname__", None)


def _candidates(module: str) -> Iterator[str]:
    """Yields modules in which a name defined in `module` may be found, the most public first."""
    parts = module.split(".")
    is_private = [part.startswith("_") and part != "__main__" for part in parts]
    public = is_private.index(True) if any(is_private) else len(parts)
    # Packages often show at their top what they define further down; the shortest way is the one users write.
    yield from (".".join(parts[:length]) for length in range(1, public + 1))
    if any(is_private):
        yield from (name for name in NAMED_MODULES if name.split(".")[0] == parts[0])
        yield module


def _leads_to(module: str, name: str, value: Any) -> bool:
    found: Any = sys.modules.get(module)
    for attribute in name.split("."):
        found = getattr(found, attribute, None)
    # Methods are made anew each time they are looked up.
    return found is value or (inspect.ismethod(value) and found == value)
