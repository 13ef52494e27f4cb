"""Names and the objects they stand for: `optax:adam`, `kauldron_core.kd:train.Trainer`."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

from kauldron_core.errors import ConfigError, closest, unknown_name
from kauldron_core.konfig.trusting import rules as trusting

_aliases = {
    "kauldron_core": "kd",
    "kauldron_core.kd": "kd",
    "flax.linen": "nn",
    "flax.nnx": "nnx",
    "jax.numpy": "jnp",
    "numpy": "np",
    "tensorflow": "tf",
    "tensorflow_datasets": "tfds",
}


def register_aliases(aliases: dict[str, str]) -> None:
    """Adds short names for modules (`{'my_project.models': 'models'}`), used wherever configs are shown."""
    _aliases.update(aliases)


def registered_aliases() -> dict[str, str]:
    """Returns the short name of each module that has one."""
    return dict(_aliases)


def display(qualname: str) -> str:
    """Returns a qualified name as a user would write it: `nn.Dense` for `flax.linen:Dense`."""
    full = qualname.replace(":", ".")
    parts = full.split(".")
    for length in range(len(parts), 0, -1):
        alias = _aliases.get(".".join(parts[:length]))
        if alias is not None:
            return ".".join([alias, *parts[length:]])
    return full


def split(qualname: str) -> tuple[str, tuple[str, ...]]:
    """Returns the module and the attributes of a name; without a colon, the last dot parts them."""
    module, colon, attributes = qualname.partition(":")
    if not colon:
        module, _, attributes = qualname.rpartition(".")
        if not module:
            module, attributes = attributes, ""
    return module, tuple(attributes.split(".")) if attributes else ()


def find_target(qualname: str, *, trusted: bool) -> Any:
    """Imports what `qualname` names.

    Args:
      qualname: `module:attribute`.
      trusted: False for a name that a file holds: the rules of trust then decide before anything is imported.

    Raises:
      UntrustedError: When the rules refuse it.
      ConfigError: When there is no such module or name.
    """
    module_name, attributes = split(qualname)
    if not trusted:
        trusting.check_name(module_name, attributes)
    found: Any = _import(module_name, attributes)
    for index, attribute in enumerate(attributes):
        at = ".".join([module_name, *attributes[:index]])
        if not trusted:
            trusting.check_walk(found, at)
            trusting.check_method(found, attribute, f"{at}.{attribute}")
        found = _attribute(found, attribute, at)
    if not trusted:
        trusting.check_object(found, ".".join([module_name, *attributes]))
    return found


def find_loaded(qualname: str) -> Any:
    """Returns what `qualname` names if its module is imported already, else None. Imports nothing."""
    module_name, attributes = split(qualname)
    found: Any = sys.modules.get(module_name)
    for attribute in attributes:
        try:
            found = getattr(found, attribute)
        except Exception:  # Attributes of modules may run code of others (lazy imports); a failure means "not known".
            return None
    return found


def _import(name: str, attributes: tuple[str, ...]) -> ModuleType:
    if name in sys.modules:
        return sys.modules[name]
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        if missing != name and not name.startswith(missing + "."):
            raise  # The module is there; something that it imports is not.
        where = f" (for {'.'.join([name, *attributes])})"
        match = closest(name, [known for known in sys.modules if "._" not in known and not known.startswith("_")])
        hint = f" Did you mean {match!r}?" if match else ""
        raise ConfigError(f"there is no module {missing!r}{where}.{hint}") from None


def _attribute(owner: Any, name: str, path: str) -> Any:
    try:
        return getattr(owner, name)
    except AttributeError:
        if isinstance(owner, ModuleType) and hasattr(owner, "__path__"):
            try:
                return importlib.import_module(f"{owner.__name__}.{name}")
            except ModuleNotFoundError:
                pass
        public = [other for other in dir(owner) if not other.startswith("_")]
        raise ConfigError(unknown_name("name", name, public, at=path)) from None
