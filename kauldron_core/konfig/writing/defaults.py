"""Fields that a call has from the start (`Trainer().evals`), so that users can set what lies below them."""

from __future__ import annotations

import copy
from typing import Any

from kauldron_core.errors import ConfigError
from kauldron_core.konfig.calls.targets import find_loaded
from kauldron_core.konfig.tree.markers import QUALNAME
from kauldron_core.konfig.tree.nodes import fields, origin
from kauldron_core.konfig.tree.walking import nodes
from kauldron_core.konfig.writing.config_dict import ConfigDict

_defaults: list[ConfigDict] = []


def register_default_values(default_values: Any) -> None:
    """Fills the fields of `default_values` into every later call of the same target.

    Args:
      default_values: A call such as `kd.train.Trainer(evals={}, workdir=konfig.placeholder(str))`.
    """
    if not isinstance(default_values, ConfigDict) or QUALNAME not in default_values:
        raise ConfigError("register_default_values takes a call made inside `konfig.imports()`")
    _defaults.insert(0, copy.deepcopy(default_values))


def fill(node: ConfigDict) -> ConfigDict:
    """Adds the default fields of its target to a new call; dicts are merged, values that were given stay."""
    registered = _registered(node[QUALNAME])
    if registered is not None:
        given = dict(fields(node))
        defaults = copy.deepcopy(registered)
        for key, value in fields(defaults).items():
            if key not in given:
                node[key] = value
            elif isinstance(value, ConfigDict) and QUALNAME not in value:
                _merge_under(given[key], value)
        _keep_origin(defaults, node)
    return node


def _registered(name: str) -> ConfigDict | None:
    """Returns the defaults of a target, however its name is spelled (`kd:train.Trainer` is `train:Trainer`)."""
    for defaults in _defaults:
        if defaults[QUALNAME] == name:
            return defaults
        target = find_loaded(name)
        if target is not None and find_loaded(defaults[QUALNAME]) is target:
            return defaults
    return None


def _merge_under(given: Any, default: ConfigDict) -> None:
    """Adds to a given dict the fields that only the default has."""
    if isinstance(given, ConfigDict) and QUALNAME not in given:
        for key, value in fields(default).items():
            if key not in given:
                given[key] = value


def _keep_origin(defaults: ConfigDict, node: ConfigDict) -> None:
    for below in nodes(defaults):
        vars(below)["_origin"] = origin(node)
