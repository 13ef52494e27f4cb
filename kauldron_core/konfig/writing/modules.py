"""Configs that modules define."""

from __future__ import annotations

from types import ModuleType

from kauldron_core.errors import ConfigError, unknown_name
from kauldron_core.konfig.writing.config_dict import ConfigDict


def get_config_from_module(module: ModuleType, cli_str_arg: str = "") -> ConfigDict:
    """Returns what the module's `get_config()` returns.

    Args:
      module: A config module.
      cli_str_arg: Text for the first parameter of `get_config`, if it is not empty.

    Raises:
      ConfigError: When the module has no such function, or it returns something else.
    """
    get_config = getattr(module, "get_config", None)
    if not callable(get_config):
        available = [name for name in vars(module) if not name.startswith("_")]
        raise ConfigError(unknown_name("function", "get_config", available, at=module.__name__))
    cfg = get_config(cli_str_arg) if cli_str_arg else get_config()
    if not isinstance(cfg, ConfigDict):
        raise ConfigError(f"{module.__name__}.get_config() returned a {type(cfg).__name__}, not a config")
    return cfg
