"""Several optimizers, each for its own parameters and, if wanted, its own losses."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from kauldron_core.errors import ConfigError
from kauldron_core.optim.masks import Mask, Pattern, select
from kauldron_core.optim.partial import partial_updates


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """One optimizer of several.

    Attributes:
      optimizer: What turns gradients into updates.
      params: Which parameters it updates: a pattern of `kd.optim.select`, several, or a mask.
      losses: Names of the losses that it minimises; None is all of them. With names, `kd.train.MultiTrainStep` is
        needed, which computes a gradient for each part.
      every: Updates only in every so many steps.
    """

    optimizer: optax.GradientTransformation
    params: Pattern | Mask
    losses: str | Sequence[str] | None = None
    every: int = 1

    def __post_init__(self):
        if isinstance(self.losses, str):
            object.__setattr__(self, "losses", (self.losses,))
        if self.every < 1:
            raise ConfigError(f"optimizer: every has to be at least 1, not {self.every}.")

    @property
    def mask(self) -> Mask:
        """Which parameters this part updates."""
        return self.params if callable(self.params) else select(self.params)

    @property
    def transform(self) -> optax.GradientTransformationExtraArgs:
        """The optimizer for this part of the parameters; updates of all others are zero."""
        optimizer = self.optimizer
        if self.every > 1:
            optimizer = optax.conditionally_mask(optimizer, lambda step, **_: jnp.asarray(step) % self.every == 0)
        return partial_updates(optimizer, self.mask)


@dataclasses.dataclass(frozen=True)
class MultiOptimizer:
    """Several optimizers side by side. Every parameter belongs to one part, or to none and then stays as it is.

        kd.optim.MultiOptimizer(
            parts={
                "generator": kd.optim.Part(optimizer=optax.adam(1e-4), params="generator", losses=("fool",)),
                "critic": kd.optim.Part(optimizer=optax.adam(4e-4), params="critic", losses=("tell",)),
            }
        )

    The state is a dictionary by name: `opt_state.critic`. Without `losses` it is an ordinary optimizer.

    Attributes:
      parts: The optimizers by name.
    """

    parts: Mapping[str, Part]

    def __post_init__(self):
        if not self.parts:
            raise ConfigError("optimizer: a MultiOptimizer needs at least one part.")

    def init(self, params: Any) -> dict[str, Any]:
        """Returns the state before the first step."""
        self._check_disjoint(params)
        return {name: part.transform.init(params) for name, part in self.parts.items()}

    def update(
        self, updates: Any, state: Mapping[str, Any], params: Any = None, **extra_args: Any
    ) -> tuple[Any, dict[str, Any]]:
        """Returns the updates for one gradient, that of all losses together."""
        named = [name for name, part in self.parts.items() if part.losses is not None]
        if named:
            raise ConfigError(
                f"optimizer.parts.{named[0]}.losses: this step computes one gradient for all losses. "
                "Set trainstep to kd.train.MultiTrainStep(), which computes one for each part."
            )
        gradients, extra = dict.fromkeys(self.parts, updates), dict.fromkeys(self.parts, extra_args)
        by_part, state = self.update_parts(gradients, state, params, extra)
        return jax.tree.map(lambda *parts: sum(parts[1:], start=parts[0]), *by_part.values()), state

    def update_parts(
        self,
        gradients: Mapping[str, Any],
        state: Mapping[str, Any],
        params: Any,
        extra_args: Mapping[str, Mapping[str, Any]],
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the updates of each part for a gradient of its own, 0 for the parameters of others, and the state.

        Args:
          gradients: By part; trees like `params`.
          state: The state before.
          params: The parameters.
          extra_args: Further arguments of `update`, by part.
        """
        updates, new_state = {}, {}
        for name, part in self.parts.items():
            updates[name], new_state[name] = part.transform.update(
                gradients[name], state[name], params, **extra_args[name]
            )
        return updates, new_state

    def _check_disjoint(self, params: Any) -> None:
        counts = jax.tree.map(lambda *flags: sum(map(bool, flags)), *(p.mask(params) for p in self.parts.values()))
        flat, _ = jax.tree_util.tree_flatten_with_path(counts)
        for path, count in flat:
            if count > 1:
                name = jax.tree_util.keystr(path)
                raise ConfigError(f"optimizer.parts: {count} parts update the parameter {name}. Make them disjoint.")
