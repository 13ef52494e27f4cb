"""Stand-ins for modules and what they hold: calling one describes the call instead of making it."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, NoReturn

from kauldron_core.errors import ConfigError, unknown_name
from kauldron_core.konfig.calls.targets import display
from kauldron_core.konfig.tree.markers import CONST, QUALNAME
from kauldron_core.konfig.writing import defaults
from kauldron_core.konfig.writing.config_dict import ConfigDict


class Proxy:
    """Stands for a module (`optax`) or an object in it (`optax.adam`).

    Args:
      module: Name of the module.
      attributes: Names that lead from the module to the object; none for the module itself.
      is_lazy: Whether the module may be missing here, so that names in it are not looked up.
      submodules: Modules below `module` that were imported by name.
    """

    __slots__ = ("_konfig_attributes", "_konfig_is_lazy", "_konfig_module", "_konfig_submodules")

    _konfig_module: str
    _konfig_attributes: tuple[str, ...]
    _konfig_is_lazy: bool
    _konfig_submodules: frozenset[str]

    def __init__(
        self,
        module: str,
        attributes: tuple[str, ...] = (),
        *,
        is_lazy: bool = False,
        submodules: frozenset[str] = frozenset(),
    ) -> None:
        object.__setattr__(self, "_konfig_module", module)
        object.__setattr__(self, "_konfig_attributes", attributes)
        object.__setattr__(self, "_konfig_is_lazy", is_lazy)
        object.__setattr__(self, "_konfig_submodules", submodules)

    def __getattr__(self, name: str) -> Proxy:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        if not self._konfig_attributes:
            below = f"{self._konfig_module}.{name}"
            if below in self._konfig_submodules or _is_own_submodule(self._konfig_module, name):
                return Proxy(below, is_lazy=self._konfig_is_lazy, submodules=self._konfig_submodules)
        if not self._konfig_is_lazy:
            self._konfig_check(name)
        return Proxy(self._konfig_module, (*self._konfig_attributes, name), is_lazy=self._konfig_is_lazy)

    def _konfig_check(self, name: str) -> None:
        found: Any = sys.modules.get(self._konfig_module)
        for attribute in self._konfig_attributes:
            found = getattr(found, attribute, None)
        if found is not None and not hasattr(found, name) and not _is_field(found, name):
            public = [other for other in dir(found) if not other.startswith("_")]
            # An AttributeError too, so that hasattr() works on proxies.
            raise UnknownNameError(unknown_name("name", name, public, at=display(qualname(self))))

    def __call__(self, *args: Any, **kwargs: Any) -> ConfigDict:
        if not self._konfig_attributes:
            raise ConfigError(f"{self._konfig_module} is a module and cannot be called")
        arguments = {str(index): arg for index, arg in enumerate(args)}
        node = ConfigDict({QUALNAME: qualname(self), **arguments, **kwargs})
        return defaults.fill(node)

    def __konfig_value__(self) -> dict[str, Any]:
        return {CONST: qualname(self)}

    def __or__(self, other: Any) -> ConfigDict:
        return ConfigDict({QUALNAME: "operator:or_", "0": self, "1": other})

    def __ror__(self, other: Any) -> ConfigDict:
        return ConfigDict({QUALNAME: "operator:or_", "0": other, "1": self})

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise ConfigError(f"{self!r} stands for an import; its attribute {name!r} cannot be set")

    def __mro_entries__(self, bases: tuple[Any, ...]) -> NoReturn:
        raise ConfigError(
            f"{display(qualname(self))} was imported inside `konfig.imports()` and only describes the class; "
            "import it outside of the block to inherit from it"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Proxy) and qualname(self) == qualname(other)

    def __hash__(self) -> int:
        return hash(qualname(self))

    def __repr__(self) -> str:
        return f"<konfig {'name' if self._konfig_attributes else 'module'} {display(qualname(self))}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _make, (self._konfig_module, self._konfig_attributes, self._konfig_is_lazy, self._konfig_submodules)


class UnknownNameError(ConfigError, AttributeError):
    """A name that a module or class does not have."""


def qualname(proxy: Proxy) -> str:
    """Returns the qualified name of what the proxy stands for."""
    module: str = object.__getattribute__(proxy, "_konfig_module")
    attributes: tuple[str, ...] = object.__getattribute__(proxy, "_konfig_attributes")
    if attributes or "." not in module:
        return f"{module}:{'.'.join(attributes)}" if attributes else module
    parent, _, name = module.rpartition(".")
    return f"{parent}:{name}"


def _make(module: str, attributes: tuple[str, ...], is_lazy: bool, submodules: frozenset[str]) -> Proxy:
    return Proxy(module, attributes, is_lazy=is_lazy, submodules=submodules)


def _is_own_submodule(module: str, name: str) -> bool:
    """Whether `module.name` is an imported module of exactly that name (and not one re-exported from elsewhere)."""
    below = sys.modules.get(f"{module}.{name}")
    return isinstance(below, ModuleType) and getattr(sys.modules.get(module), name, None) is below


def _is_field(found: Any, name: str) -> bool:
    return isinstance(found, type) and any(name in getattr(base, "__annotations__", {}) for base in found.__mro__)
