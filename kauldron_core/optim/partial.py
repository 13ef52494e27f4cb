"""Training a part of the parameters."""

from __future__ import annotations

from typing import Any

import jax
import optax

from kauldron_core.optim.masks import Mask


def partial_updates(optimizer: optax.GradientTransformation, mask: Mask | Any) -> optax.GradientTransformationExtraArgs:
    """Returns `optimizer` for the parameters where `mask` is True; the others stay as they are.

    Frozen parameters cost no state. `optax.masked` is something else: it hands their gradients through.

    Args:
      optimizer: What to do where the mask is True.
      mask: `kd.optim.select(...)` or `kd.optim.exclude(...)`, or a tree of booleans like the parameters.
    """

    def labels(params: Any) -> Any:
        is_trained = mask(params) if callable(mask) else mask
        return jax.tree.map(lambda trained: "train" if trained else "freeze", is_trained)

    return optax.partition({"train": optimizer, "freeze": optax.set_to_zero()}, labels)
