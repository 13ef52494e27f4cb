"""Run-time checks inside the compiled step, by the names that a config gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax
from jax.experimental import checkify

from kauldron_core.errors import ConfigError, unknown_name

_CATEGORIES = {
    "user": checkify.user_checks,
    "nan": checkify.nan_checks,
    "index": checkify.index_checks,
    "div": checkify.div_checks,
    "float": checkify.float_checks,
    "automatic": checkify.automatic_checks,
    "all": checkify.all_checks,
}


def check_names(names: Iterable[str]) -> None:
    """Raises ConfigError if one of `names` is no category of checks."""
    for name in names:
        if name not in _CATEGORIES:
            raise ConfigError(unknown_name("category", name, _CATEGORIES, at="checkify_error_categories"))


def checked(step: Callable[..., Any], names: Iterable[str]) -> Callable[..., Any]:
    """Returns `step` compiled with the checks of these categories. Each call waits for the device.

    Raises (when called):
      jax.experimental.checkify.JaxRuntimeError: If a check failed, with the line of the code that it is about.
    """
    errors = frozenset().union(*(_CATEGORIES[name] for name in names))
    compiled = jax.jit(checkify.checkify(step, errors=errors))

    def run(*args: Any) -> Any:
        error, result = compiled(*args)
        error.throw()
        return result

    return run
