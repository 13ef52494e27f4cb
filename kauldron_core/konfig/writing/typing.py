"""Types for annotations of functions that take configs."""

from __future__ import annotations

from typing import Annotated, Any, Protocol, TypeVar

from kauldron_core.konfig.writing.config_dict import ConfigDict

_T = TypeVar("_T")

ConfigDictLike = Annotated[_T | ConfigDict, "the object, or a config that resolves to it"]
"""`ConfigDictLike[Trainer]`: a trainer, or a config that resolves to one."""


class WithRef(Protocol):
    """What has references to its fields: lets editors know `cfg.ref`."""

    @property
    def ref(self) -> Any:
        """References into the config."""
        ...
