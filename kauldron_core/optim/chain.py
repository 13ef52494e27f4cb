"""Chains whose parts have names."""

from __future__ import annotations

from typing import Any

import optax


def named_chain(**transforms: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    """Returns the transforms applied one after the other; the state of each is found by its name.

        kd.optim.named_chain(clip=optax.clip_by_global_norm(1.0), adam=optax.adam(1e-3))

    A metric reads `opt_state.adam[0].mu`, an override sets `optimizer.clip.max_norm`.
    """
    parts = {name: optax.with_extra_args_support(transform) for name, transform in transforms.items()}

    def init(params: Any) -> dict[str, Any]:
        return {name: part.init(params) for name, part in parts.items()}

    def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, dict[str, Any]]:
        new_state = {}
        for name, part in parts.items():
            updates, new_state[name] = part.update(updates, state[name], params, **extra)
        return updates, new_state

    return optax.GradientTransformationExtraArgs(init, update)
