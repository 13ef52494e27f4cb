"""Which names a config read from disk may use.

A file is data that anybody could have written. A name in it is first judged by its text, before anything is
imported; the object it leads to is judged again by who owns it. What is trusted never depends on the file itself.
"""

from __future__ import annotations

import enum
import functools
import inspect
import os
import sys
from types import ModuleType
from typing import Any

from kauldron_core.errors import ConfigError
from kauldron_core.konfig.trusting import project_trust
from kauldron_core.konfig.trusting.trust_lists import (
    MODULES,
    NAMED_MODULES,
    NAMES,
    OF_THE_MACHINE,
    OWN_PACKAGES,
    UNCALLED,
    Kind,
)

COPY_PREFIX = project_trust.COPY_PREFIX


_ADVICE = "if you know that it is harmless, add"


class UntrustedError(ConfigError):
    """A config file asks for code that nobody said to trust."""


_packages: dict[str, None] = {}
_folders: dict[str, None] = {}


def trust(*packages: str) -> None:
    """Lets configs read from disk use what these packages own, in this process.

    Args:
      *packages: Names of packages or modules, or absolute paths of folders whose modules are trusted.
    """
    for package in packages:
        if os.path.isabs(package):
            _folders[os.path.realpath(package)] = None
        elif all(part.isidentifier() for part in package.split(".")):
            _packages[package] = None
        else:
            raise ConfigError(f"--trust={package}: not the name of a package, nor an absolute path")


def is_trusted_by_name(module: str) -> bool:
    """Returns whether this process was told this very name (`--trust-run`, or the config file of the command line)."""
    return module in _packages


def trusted_packages() -> tuple[str, ...]:
    """Returns what is trusted here beside the built-in lists, as `trust` takes it in another process."""
    folder = project_trust.working_folder()
    packages = [*_packages, *project_trust.listed_packages()]
    return tuple(dict.fromkeys([*packages, *_folders, *([folder] if folder else [])]))


def check_name(module: str, attributes: tuple[str, ...]) -> None:
    """Refuses a name by its text alone, before anything is imported.

    Raises:
      UntrustedError: When it is not trusted.
    """
    full = ".".join([module, *attributes])
    if any(part.startswith("_") or not part.isidentifier() for part in full.split(".")):
        raise UntrustedError(f"a config file may not use {full!r}: a part of the name is private or not a name")
    if full not in NAMES and _kind(module) is None:
        raise UntrustedError(_refusal(full, module))


def check_call(module: str, attributes: tuple[str, ...]) -> None:
    """Refuses a call of a name that may only stand for itself.

    Raises:
      UntrustedError: When it may.
    """
    full = ".".join([module, *attributes])
    if full in UNCALLED:
        raise UntrustedError(f"a config file may not call {full!r}")


def check_walk(found: Any, full: str) -> None:
    """Refuses a step of a name that leads into a module which is not trusted.

    Raises:
      UntrustedError: When it does.
    """
    is_module = isinstance(found, ModuleType) and full not in NAMES and _kind(found.__name__) is None
    if is_module and not any(name.startswith(f"{found.__name__}.") for name in NAMES):
        raise UntrustedError(f"a config file may not reach {found.__name__!r} through {full!r}")


def check_method(owner: Any, name: str, full: str) -> None:
    """Refuses a method of a class that takes an instance: only what makes one may be called (`Trainer.eval_only`).

    Raises:
      UntrustedError: When `owner` is a class and `name` such a method of it.
    """
    if isinstance(owner, type) and inspect.isroutine(inspect.getattr_static(owner, name, None)):
        found: Any = inspect.getattr_static(owner, name)
        if not isinstance(found, (classmethod, staticmethod)):
            raise UntrustedError(f"a config file may not use {full!r}: it is a method of an object")


def check_object(found: Any, full: str) -> None:
    """Refuses what a trusted name turned out to be, when something else owns it.

    Args:
      found: The object.
      full: Its full name, with dots.

    Raises:
      UntrustedError: When it is not trusted.
    """
    if isinstance(found, ModuleType):
        raise UntrustedError(f"a config file may not hold the module {full!r}")
    if full in NAMES or _is_data(found) or _is_named_elsewhere(found, full):
        return
    owner = _owner(found)
    kind = _kind(owner) if owner else None
    if kind is None:
        raise UntrustedError(_refusal(full, owner or full) + f" (it belongs to {owner or 'nothing that has a name'})")
    if inspect.ismethod(found) and not isinstance(found.__self__, type):
        raise UntrustedError(f"a config file may not use {full!r}: it is a method of an object")
    is_of_class = "." in getattr(found, "__qualname__", "")
    if kind == "classes" and not isinstance(found, type) and not is_of_class and callable(found):
        raise UntrustedError(f"a config file may not use {full!r}: only classes of {owner} are allowed")
    if isinstance(found, type) and owner and owner.split(".")[0] in OWN_PACKAGES and not _is_public(found, owner):
        raise UntrustedError(f"a config file may not use {full!r}: it is internal to {owner}")


def check_callable(found: Any, full: str) -> None:
    """Refuses a callable that was built rather than named (the function of a `functools.partial`)."""
    if isinstance(found, functools.partial):
        check_callable(found.func, full)  # pyright: ignore[reportUnknownMemberType]
    else:
        check_object(found, full)


def _kind(module: str) -> Kind | None:
    """Returns how far a module is trusted, by its name and the place of its file; None when it is not."""
    parts = module.split(".")
    if listed := _listed(module):
        return MODULES[listed]
    if parts[0] in OWN_PACKAGES:
        return None  # Also when the user trusts one of them, for the sake of a config file in it.
    prefixes = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    if any(prefix in _packages for prefix in prefixes) or set(prefixes) & set(project_trust.listed_packages()):
        return "all"
    return "all" if project_trust.is_of_project(module, tuple(_folders)) else None


def _refusal(full: str, module: str) -> str:
    root = module.split(".")[0]
    if root.startswith(COPY_PREFIX):
        flag, call = "--trust-run", "konfig.trust_run(RUN)"
        return f"the config uses {full!r} of the code copy of its run; {_ADVICE} {flag}, in Python {call}"
    if root in OWN_PACKAGES:
        return f"a config file may not use {full!r}"
    if root in OF_THE_MACHINE:
        return f"the config file uses {full!r}, which is not trusted: it reaches the whole machine"
    flag, call = f"--trust={root}", f"konfig.trust({root!r})"
    return f"the config file uses {full!r}, which is not trusted; {_ADVICE} {flag}, in Python {call}"


def _is_data(found: Any) -> bool:
    if isinstance(found, enum.Enum):
        return _kind(type(found).__module__) is not None
    return found is None or type(found) in (bool, int, float, complex, str, bytes)


def _listed(module: str) -> str:
    """Returns the entry of the list that covers a module."""
    parts = module.split(".")
    prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((prefix for prefix in prefixes if prefix in MODULES), "")


def _is_public(found: type, owner: str) -> bool:
    """Whether the module of one of our own classes, or a package above it, lists the class in its `__all__`."""
    outermost = found.__qualname__.split(".")[0]
    parts = owner.split(".")
    modules = [sys.modules.get(".".join(parts[:length])) for length in range(2, len(parts) + 1)]
    return (
        any(outermost in getattr(module, "__all__", ()) for module in modules) or MODULES.get(_listed(owner)) == "all"
    )


def _is_named_elsewhere(found: Any, full: str) -> bool:
    """Whether a listed module lists this very object (`flax.linen.relu` is `jax.nn.relu`)."""
    name = full.rpartition(".")[2]
    return any(
        f"{module}.{name}" in NAMES and getattr(sys.modules.get(module), name, None) is found
        for module in NAMED_MODULES
    )


def _owner(found: Any) -> str | None:
    """Returns the module that owns a class or function, or the class of any other object."""
    if inspect.ismethod(found):
        holder: Any = found.__self__
        return _owner(holder if isinstance(holder, type) else type(holder))
    if not isinstance(found, type) and not callable(found):
        return type(found).__module__
    module = getattr(found, "__module__", None)
    return module if isinstance(module, str) else None
