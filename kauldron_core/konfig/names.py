"""What dotted names in override text stand for: `optax.sgd`, `jnp.bfloat16`, `my_project.losses.Huber`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from kauldron_core.errors import ConfigError, unknown_name

COMMON_ALIASES: Mapping[str, str] = {
    "kd": "kauldron_core.kd",
    "nn": "flax.linen",
    "nnx": "flax.nnx",
    "jnp": "jax.numpy",
    "np": "numpy",
    "tf": "tensorflow",
    "tfds": "tensorflow_datasets",
}
"""Short names that everyone uses; a config file's own imports come first."""


@dataclass(frozen=True)
class Names:
    """The names that a config's override text may use.

    Attributes:
      modules: Module path of each alias.
    """

    modules: Mapping[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def of(cls, cfg: Any, extra: Mapping[str, str] | None = None) -> Names:
        """Returns the aliases of a config: `extra`, the common ones and the packages whose names it holds."""
        roots = {qualname.split(":")[0].split(".")[0] for qualname in _qualnames(cfg, set())}
        return cls({**{root: root for root in roots}, **COMMON_ALIASES, **(extra or {})})

    def knows(self, dotted: str) -> bool:
        """Returns whether the first part of `dotted` is an alias of the config."""
        return dotted.split(".")[0] in self.modules

    def find(self, dotted: str, at: str) -> tuple[str, Any]:
        """Returns the qualified name (`module:a.b`) and the object that `dotted` stands for.

        Raises:
          ConfigError: When there is no such module or name.
        """
        first, *rest = dotted.split(".")
        module = _import(self.modules.get(first, first))
        if module is None:
            raise ConfigError(unknown_name("module", first, sorted(self.modules), at=f"{at}: {dotted}"))
        while rest and not hasattr(module, rest[0]):
            inner = _import(f"{module.__name__}.{rest[0]}")
            if inner is None:
                break
            module, rest = inner, rest[1:]
        while len(rest) > 1 and isinstance(inner := getattr(module, rest[0], None), ModuleType):
            if inner.__name__ != f"{module.__name__}.{rest[0]}":
                break
            module, rest = inner, rest[1:]
        found: Any = module
        for attribute in rest:
            if not hasattr(found, attribute):
                raise ConfigError(unknown_name("name", attribute, _public(found), at=f"{at}: {dotted}"))
            found = getattr(found, attribute)
        return f"{module.__name__}:{'.'.join(rest)}", found


def _qualnames(node: Any, visited: set[int]) -> Iterator[str]:
    """Yields the qualified name of every call and constant of a config."""
    if not isinstance(node, (Mapping, list, tuple)) or id(node) in visited:
        return
    visited.add(id(node))
    if isinstance(node, Mapping):
        yield from (str(node[key]) for key in ("__qualname__", "__const__") if key in node)
        children = [node[key] for key in node]
    else:
        children = list(node)
    for child in children:
        yield from _qualnames(child, visited)


def _import(name: str) -> ModuleType | None:
    """Returns the module, or None when there is none of that name (an error inside it is not hidden)."""
    if name in sys.modules:
        return sys.modules[name]
    try:
        is_there = importlib.util.find_spec(name) is not None
    except (ImportError, ValueError, AttributeError):
        return None
    return importlib.import_module(name) if is_there else None


def _public(found: Any) -> list[str]:
    return [name for name in dir(found) if not name.startswith("_")]
