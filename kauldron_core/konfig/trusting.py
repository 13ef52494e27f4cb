"""Which names a config read from disk may use.

A file is data that anybody could have written. Before a name in it is imported, the name itself must be on a list;
after it, the object must be one that the listed module owns.
"""

from __future__ import annotations

from typing import Any

from kauldron_core.errors import ConfigError


class UntrustedError(ConfigError):
    """A config file asks for code that nobody said to trust."""


_packages: dict[str, None] = {}


def trust(*packages: str) -> None:
    """Lets configs read from disk use everything that these packages own, in this process."""
    _packages.update(dict.fromkeys(packages))


def trusted_packages() -> tuple[str, ...]:
    """Returns the packages that were added to the trusted ones, to hand them to another process."""
    return tuple(_packages)


def check_name(module: str, attributes: tuple[str, ...]) -> None:
    """Refuses a name by its text alone, before anything is imported.

    Raises:
      UntrustedError: When it is not trusted.
    """
    root = module.split(".")[0]
    if root in (
        "kauldron_core",
        "evaluators",
        "pipelines",
        "flax",
        "optax",
        "jax",
        "numpy",
        "functools",
        "builtins",
        *_packages,
    ):
        return
    name = ".".join([module, *attributes])
    raise UntrustedError(f"the config file uses {name}, which is not trusted. If you trust it: --trust={root}")


def check_object(module: str, attributes: tuple[str, ...], found: Any) -> None:
    """Refuses an object that the named module does not own."""
