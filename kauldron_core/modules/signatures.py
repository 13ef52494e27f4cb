"""How a layer of any origin is told whether it trains: by which argument of its call."""

from __future__ import annotations

import inspect
from typing import Any

import flax.linen as nn

from kauldron_core.modules.mode import read_is_training

# The names that Flax layers and published models use. `~` marks those that mean the opposite.
_CUSTOMARY = ("is_training", "training", "train", "~deterministic", "~use_running_average")


def training_kwargs(layer: Any, *, name: str | None = None) -> dict[str, bool]:
    """Returns the keyword argument that tells a layer whether this is training, or nothing if it takes none.

    Args:
      layer: A bound module, or any function.
      name: Name of the argument, with `~` before it if it means the opposite; None looks for a customary one.
    """
    if name is None:
        name = _customary_name(layer)
        if name is None:
            return {}
    return {name.removeprefix("~"): read_is_training(layer) != name.startswith("~")}


def _customary_name(layer: Any) -> str | None:
    if not isinstance(layer, nn.Module):
        return None
    parameters = inspect.signature(layer.__call__).parameters
    for name in _CUSTOMARY:
        plain = name.removeprefix("~")
        # A choice made when the layer was built stands; Flax refuses a second one.
        if plain in parameters and getattr(layer, plain, None) is None:
            return name
    return None
