"""Config nodes of the calls and constants that override text names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kauldron_core.errors import ConfigError
from kauldron_core.konfig.config_dict import ConfigDict
from kauldron_core.konfig.refusal import one_line


def call_node(qualname: str, positional: Sequence[Any], named: Mapping[str, Any], *, at: str) -> ConfigDict:
    """Returns the config of a call.

    Raises:
      ConfigError: When the target takes no such argument.
    """
    fields = {"__qualname__": qualname, **{str(index): value for index, value in enumerate(positional)}, **named}
    return _node(fields, at)


def constant_node(qualname: str, *, at: str) -> ConfigDict:
    """Returns the config of a constant (`jax.numpy:bfloat16`)."""
    return _node({"__const__": qualname}, at)


def _node(fields: Mapping[str, Any], at: str) -> ConfigDict:
    try:
        return ConfigDict(fields)
    except (ConfigError, TypeError, ValueError, KeyError, AttributeError) as error:
        raise ConfigError(f"{at}: {one_line(str(error))}") from error
