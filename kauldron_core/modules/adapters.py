"""Modules written for something else, wired by keys: the wrapper leaves no trace in the parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import flax.linen as nn

from kauldron_core import kontext
from kauldron_core.modules.signatures import training_kwargs


class WrapperModule(nn.Module):
    """Base class for a module around another one that adds no level to the parameters.

    What the outer module defines in its own call lies beside the parameters of the inner one.

    Attributes:
      model: The inner module.
    """

    model: nn.Module

    def setup(self) -> None:
        nn.share_scope(self, self.model)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Output of the inner module."""
        return self.model(*args, **kwargs)


class ExternalModule(WrapperModule):
    """Any Linen module as the model of an experiment, though it has no `Key` fields.

        kd.nn.ExternalModule(model=nn.Dense(10), keys="batch.x")

    Attributes:
      model: The module.
      keys: Where its arguments are found in the context: the path of the only one, or paths by argument name.
      train_kwarg_name: Which argument of its call says whether this is training, with `~` before it if it says the
        opposite: `'~deterministic'`. None if there is none.
    """

    keys: str | Mapping[str, str] = kontext.REQUIRED
    train_kwarg_name: str | None = None

    @nn.nowrap
    def __kontext_keys__(self) -> dict[str, str]:
        return keys_by_name(self.keys, "keys")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Output of the inner module."""
        args, kwargs = by_position(self.keys, "keys", args, kwargs)
        if self.train_kwarg_name is not None:
            kwargs |= training_kwargs(self.model, name=self.train_kwarg_name)
        return self.model(*args, **kwargs)


def keys_by_name(keys: str | Mapping[str, str], name: str) -> dict[str, str]:
    """Returns paths by argument name; `name` stands for the only argument, whose own name nobody knows."""
    return {name: keys} if isinstance(keys, str) else dict(keys)


def by_position(
    keys: str | Mapping[str, str], name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments with the one that `keys_by_name` called `name` in its place."""
    kwargs = dict(kwargs)
    if isinstance(keys, str) and name in kwargs:
        args = (kwargs.pop(name), *args)
    return args, kwargs
