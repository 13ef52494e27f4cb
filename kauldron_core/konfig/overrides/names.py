"""What dotted names in override text stand for: `optax.sgd`, `jnp.bfloat16`, `my_project.losses.Huber`."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from kauldron_core.errors import ConfigError, unknown_name
from kauldron_core.konfig.calls.targets import find_target, registered_aliases, split
from kauldron_core.konfig.tree.nodes import name_of
from kauldron_core.konfig.tree.walking import nodes
from kauldron_core.konfig.trusting import rules as trusting
from kauldron_core.konfig.writing.proxies import Proxy, qualname

Aliases = Mapping[str, "Proxy | str"]
"""What a config file's names stand for: proxies, or names of modules."""

_MORE_ALIASES = {"nnx": "flax.nnx"}
_PLAIN = (bool, int, float, str)


@dataclass(frozen=True)
class Names:
    """The names that a config's override text may use.

    Attributes:
      proxies: What each alias stands for.
      trusted: False for texts that a file holds: the rules of trust then decide before anything is imported.
    """

    proxies: Mapping[str, Proxy] = field(default_factory=dict[str, Proxy])
    trusted: bool = True

    @classmethod
    def of(cls, cfg: Any, extra: Aliases | None = None, *, trusted: bool = True) -> Names:
        """Returns the names of a config: `extra`, the registered ones, and the packages that its nodes name."""
        modules: dict[str, Proxy | str] = {root: root for root in _roots(cfg)}
        modules.update({alias: module for module, alias in registered_aliases().items()})
        modules.update(_MORE_ALIASES)
        modules.update(extra or {})
        return cls(
            {alias: Proxy(found) if isinstance(found, str) else found for alias, found in modules.items()}, trusted
        )

    def knows(self, dotted: str) -> bool:
        """Returns whether the first part of `dotted` is an alias of the config."""
        return dotted.split(".")[0] in self.proxies

    def can_import(self, dotted: str) -> bool:
        """Returns whether the first part of `dotted` is a package that can be imported."""
        return _is_importable(dotted.split(".")[0])

    def find(self, dotted: str) -> Proxy:
        """Returns what `dotted` stands for. Unless the alias is lazy, its module is imported and the name looked up.

        Raises:
          UntrustedError: When a file holds the text, and the rules of trust refuse the name.
          ConfigError: When there is no such module or name.
        """
        first, *rest = dotted.split(".")
        found = self.proxies.get(first)
        if found is None:
            if not _is_importable(first):
                raise ConfigError(unknown_name("module", first, sorted(self.proxies), at=dotted))
            found = Proxy(first)
        if not self.trusted:
            _check_text(found, rest)
        if not _is_lazy(found):
            found = _loaded(found, dotted)
        for part in rest:
            found = _step(found, part)
        return found

    def full_names_of(self, name: str) -> list[str]:
        """Returns `optax.sgd` for `sgd`: where the imported modules of the config, and those in them, have it."""
        if not name.isidentifier() or name.startswith("_"):
            return []
        found: list[str] = []
        for alias, proxy in self.proxies.items():
            module = None if _attributes(proxy) else sys.modules.get(_module(proxy))
            inner = {f"{alias}.{key}": value for key, value in vars(module).items()} if module else {}
            modules = {key: value for key, value in inner.items() if isinstance(value, ModuleType)}
            is_object = not isinstance(inner.get(f"{alias}.{name}", proxy), (Proxy, ModuleType))
            found += [f"{alias}.{name}"] if is_object else []
            found += [f"{key}.{name}" for key, value in modules.items() if name in getattr(value, "__all__", ())]
        return sorted(found, key=lambda full: (full.count("."), len(full)))


def constant(proxy: Proxy, *, trusted: bool = True) -> Any:
    """Returns the config value of a name: the value itself where it is a number or a text (`np.pi`), else the name."""
    if not _is_lazy(proxy):
        found = find_target(qualname(proxy), trusted=trusted)
        # Plain leaves can be swept and packed; a name could not.
        if type(found) in _PLAIN:
            return found
    return proxy.__konfig_value__()


def is_callable(proxy: Proxy, *, trusted: bool = True) -> bool:
    """Returns whether what the proxy stands for can be called; a lazy one may."""
    return _is_lazy(proxy) or callable(find_target(qualname(proxy), trusted=trusted))


def _check_text(proxy: Proxy, rest: Sequence[str]) -> None:
    """Refuses a name by its text, wherever in it the module may end.

    Raises:
      UntrustedError: When it is not trusted.
    """
    module, attributes = _module(proxy), (*_attributes(proxy), *rest)
    for length in range(len(attributes), 0, -1):
        with contextlib.suppress(trusting.UntrustedError):
            return trusting.check_name(".".join([module, *attributes[:length]]), attributes[length:])
    return trusting.check_name(module, attributes)


def _roots(cfg: Any) -> Iterator[str]:
    """Yields the packages that the calls and constants of a config name."""
    for node in nodes(cfg):
        if isinstance(name := name_of(node), str):
            yield split(name)[0].split(".")[0]


def _is_importable(name: str) -> bool:
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except (ImportError, ValueError, AttributeError):
        return False


def _loaded(proxy: Proxy, dotted: str) -> Proxy:
    """Imports the module of a proxy, so that names in it are looked up."""
    try:
        importlib.import_module(_module(proxy))
    except ModuleNotFoundError as error:
        raise ConfigError(f"{dotted}: there is no module {error.name!r} here") from None
    return proxy


def _step(proxy: Proxy, part: str) -> Proxy:
    """Returns what `part` is in a module or class; a module below that nobody has imported yet is imported."""
    module = None if _attributes(proxy) or _is_lazy(proxy) else _module(proxy)
    if module is not None and not hasattr(sys.modules.get(module), part) and _is_importable(f"{module}.{part}"):
        importlib.import_module(f"{module}.{part}")
    return getattr(proxy, part)


# A proxy gives its own attributes to nobody who asks in the ordinary way: those are names of what it stands for.


def _is_lazy(proxy: Proxy) -> bool:
    return object.__getattribute__(proxy, "_konfig_is_lazy")


def _module(proxy: Proxy) -> str:
    return object.__getattribute__(proxy, "_konfig_module")


def _attributes(proxy: Proxy) -> tuple[str, ...]:
    return object.__getattribute__(proxy, "_konfig_attributes")
