"""A running average of the parameters, kept beside them, and evaluation on it."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from kauldron_core import kontext
from kauldron_core.errors import ConfigError, listing


class EmaParamsState(NamedTuple):
    """The state of `ema_params`.

    Attributes:
      count: Updates made.
      ema_params: The average, shaped like the parameters.
    """

    count: Any  # pyright: ignore[reportIncompatibleMethodOverride]
    ema_params: Any


def ema_params(
    *, decay: float | jax.Array, debias: bool = True, accumulator_dtype: Any = None
) -> optax.GradientTransformation:
    """Returns a transformation that leaves the updates alone and averages the parameters that result from them.

    It has to come last in a chain, where the updates are those that are applied:

        kd.optim.named_chain(adam=optax.adam(1e-3), ema=kd.optim.ema_params(decay=0.999))

    `kd.optim.UseEmaParams` evaluates the average.

    Args:
      decay: Weight of the average so far in each step, in [0, 1).
      debias: Whether the first steps decay faster, `min(decay, (1 + step) / (10 + step))`, so that the initial
        parameters, from which the average starts, are soon forgotten.
      accumulator_dtype: Of the average; that of the parameters where unset. bfloat16 parameters want float32 here:
        with eight bits a step of `1 - 0.999` is lost.
    """

    def init(params: Any) -> EmaParamsState:
        # Copies: the parameters themselves are donated to the first step.
        average = jax.tree.map(lambda param: jnp.array(param, dtype=accumulator_dtype), params)
        return EmaParamsState(count=jnp.zeros((), jnp.int32), ema_params=average)

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, EmaParamsState]:
        if params is None:
            raise ValueError("ema_params needs the parameters: call update(updates, state, params).")
        count = optax.safe_increment(state.count)
        rate = jnp.minimum(decay, (1.0 + count) / (10.0 + count)) if debias else decay
        average = jax.tree.map(
            lambda old, param: (rate * old + (1.0 - rate) * param.astype(old.dtype)).astype(old.dtype),
            state.ema_params,
            optax.apply_updates(params, updates),
        )
        return updates, EmaParamsState(count, average)

    return optax.GradientTransformation(init, update)


@dataclasses.dataclass(frozen=True, kw_only=True)
class UseEmaParams:
    """Puts the average in the place of the parameters: `Evaluator(run=..., init_transform=kd.optim.UseEmaParams())`.

    Attributes:
      ema_params_transform: Path of the `ema_params` in `opt_state`, `'ema'` or `'[1]'`. Where unset it is searched
        for, and there has to be exactly one.
      partial_ok: Whether parameters without an average (frozen ones) keep their value, which otherwise is an error.
    """

    ema_params_transform: str | None = None
    partial_ok: bool = False

    def transform(self, state: Any) -> Any:
        """Returns `state` with the averaged parameters."""
        average = self._find(state.opt_state).ema_params
        return state.replace(params=jax.tree.map(self._choose, average, state.params, is_leaf=_is_masked))

    def _find(self, opt_state: Any) -> EmaParamsState:
        found = _ema_states(opt_state)
        if self.ema_params_transform is not None:
            at = kontext.get_by_path(opt_state, self.ema_params_transform)
            found = _ema_states(at)
        if len(found) != 1:
            raise ConfigError(
                f"UseEmaParams: the state of the optimizer holds {len(found)} running averages, and one is needed"
                f"{' (kd.optim.ema_params makes one)' if not found else ''}. Available: {listing(found)}."
            )
        return next(iter(found.values()))

    def _choose(self, average: Any, param: Any) -> Any:
        if not _is_masked(average):
            return average.astype(param.dtype)
        if not self.partial_ok:
            raise ConfigError("UseEmaParams: some parameters have no average. partial_ok=True keeps their value.")
        return param


def _ema_states(opt_state: Any) -> dict[str, EmaParamsState]:
    """Returns the averages in the state of an optimizer, by path."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(opt_state, is_leaf=lambda x: isinstance(x, EmaParamsState))
    return {str(kontext.Path.from_jax_path(path)): leaf for path, leaf in leaves if isinstance(leaf, EmaParamsState)}


def _is_masked(leaf: Any) -> bool:
    return isinstance(leaf, optax.MaskedNode)
