"""`FrozenConfigDict`: a config that cannot change any more. Everything in it keeps its type."""

from __future__ import annotations

from typing import Any, NoReturn

from kauldron_core.errors import ConfigError
from kauldron_core.konfig.tree import copying, walking
from kauldron_core.konfig.writing.config_dict import ConfigDict


class FrozenConfigDict(ConfigDict):
    """A config that refuses changes. Made by `freeze`."""

    def _konfig_refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise ConfigError("the config is frozen; change a copy.deepcopy of what it was made from")

    __setitem__ = __delitem__ = __setattr__ = __delattr__ = _konfig_refuse
    update = unlock = pop = setdefault = _konfig_refuse  # pyright: ignore[reportAssignmentType]


def freeze(cfg: ConfigDict) -> FrozenConfigDict:
    """Returns a deep copy that refuses changes, here and below."""
    copied: Any = copying.deepcopy(cfg)
    for node in walking.nodes(copied):
        object.__setattr__(node, "__class__", FrozenConfigDict)
    return copied
