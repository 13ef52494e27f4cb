"""Turns checking off, or makes it stricter, for the modules that a pattern names."""

from __future__ import annotations

import dataclasses
import functools
import re
import uuid
from typing import Literal


@dataclasses.dataclass(frozen=True)
class Config:
    """How the functions and classes of a module are checked. What an override leaves at None stays as it was.

    Attributes:
      typechecking_enabled: Whether calls are checked at all.
      jaxtyping_annotations: What happens where a signature holds jaxtyping's own annotations. Those are checked by
        jaxtyping, each by itself, so their dimensions are not compared with ours: `ignore` does just that, `warn` says
        it once a function, `error` refuses the function.
    """

    typechecking_enabled: bool | None = None
    jaxtyping_annotations: Literal["error", "warn", "ignore"] | None = None

    def __or__(self, other: Config) -> Config:
        """Returns this with what `other` sets."""
        return dataclasses.replace(self, **{name: value for name, value in vars(other).items() if value is not None})


CONFIG = Config(typechecking_enabled=True, jaxtyping_annotations="ignore")
"""What holds where no override says otherwise."""

_overrides: dict[uuid.UUID, tuple[re.Pattern[str], Config]] = {}


def add_config_override(module_regex: str, config: Config) -> uuid.UUID:
    """Returns the identity of a new override; of several that set the same for a module the last one holds.

    Args:
      module_regex: Matched at the start of a module's dotted name (`re.match`).
      config: What it sets.

    Raises:
      re.error: If that is no regular expression.
    """
    identity = uuid.uuid4()
    _overrides[identity] = re.compile(module_regex), config
    config_of.cache_clear()
    return identity


def remove_config_override(cfg_id: uuid.UUID, *, missing_ok: bool = False) -> None:
    """Takes an override back.

    Args:
      cfg_id: What `add_config_override` returned.
      missing_ok: Whether it is fine that there is none.

    Raises:
      KeyError: If there is no such override.
    """
    if cfg_id not in _overrides and not missing_ok:
        raise KeyError(f"there is no config override {cfg_id}")
    _overrides.pop(cfg_id, None)
    config_of.cache_clear()


def enable_kd_type_checking() -> None:
    """Turns checking on everywhere: the overrides that turned it off are taken back."""
    for identity, (_, config) in list(_overrides.items()):
        if config.typechecking_enabled is False:
            remove_config_override(identity)


@functools.cache
def config_of(module: str) -> Config:
    """Returns how the functions of a module are checked."""
    found = CONFIG
    for pattern, config in _overrides.values():
        if pattern.match(module):
            found |= config
    return found
