"""`MultiTrainStep`: several optimizers, each with its own losses, in one step (a GAN, for example)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from kauldron_core import losses as losses_lib
from kauldron_core.errors import ConfigError, unknown_name
from kauldron_core.forward import Context
from kauldron_core.optim import MultiOptimizer, Part
from kauldron_core.train.step.program import Outputs, Program
from kauldron_core.train.step.trainstep import TrainStep


@flax.struct.dataclass
class MultiContext(Context):
    """The context of a `MultiTrainStep`. `grads` and `updates` hold what each parameter's own optimizer got and made.

    Attributes:
      subgrads: Gradient of each part's losses by its name, `subgrads.critic.Dense_0.kernel`: 0 for the parameters
        of other parts.
      subupdates: What each part made of it.
    """

    subgrads: Any = None
    subupdates: Any = None


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class MultiTrainStep(TrainStep):
    """A step for a `kd.optim.MultiOptimizer`, in which every part minimises the losses that it names.

    There is one forward pass, and one backward pass for each part. No gradient has to be stopped by hand: the losses
    of one part do not reach the parameters of another.
    """

    @functools.cached_property
    def program(self) -> Program:
        """The parts that the step reads.

        Raises:
          ConfigError: If one is missing, or the parts of the optimizer and the losses do not go together.
        """
        plain = super().program
        if not isinstance(plain.optimizer, MultiOptimizer):
            raise ConfigError("optimizer: kd.train.MultiTrainStep needs a kd.optim.MultiOptimizer.")
        if plain.microbatches > 1:
            raise ConfigError(
                f"microbatches: {plain.microbatches}, and kd.train.MultiTrainStep takes a batch as a whole."
            )
        _check_losses(plain.optimizer.parts, [name for name, _ in losses_lib.named_losses(plain.losses)])
        return MultiProgram(**{field.name: getattr(plain, field.name) for field in dataclasses.fields(plain)})


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class MultiProgram(Program):
    """The program of a `MultiTrainStep`."""

    optimizer: MultiOptimizer  # pyright: ignore[reportIncompatibleVariableOverride]

    def descend(self, context: Context, mask: Any, outputs: Outputs) -> Context:
        """Returns `context` with forward and backward passes, the updates and the new state of the optimizer. Traced.

        Args:
          context: Holds the state before the step, and the batch.
          mask: The padding mask of the batch, or None.
          outputs: What is asked for.
        """
        context = _differentiate(self, context, mask, outputs)
        totals = _totals(self.optimizer.parts, context.loss_states)
        extra_args = {name: {"value": total} for name, total in totals.items()}
        subupdates, opt_state = self.optimizer.update_parts(
            context.subgrads, context.opt_state, context.params, extra_args
        )
        return context.replace(updates=_sum(subupdates.values()), subupdates=subupdates, opt_state=opt_state)


def _differentiate(program: MultiProgram, context: Context, mask: Any, outputs: Outputs) -> MultiContext:
    """Returns `context` with everything that forward pass and backward passes compute."""
    forward, parts = program.forward(outputs), program.optimizer.parts

    def losses(params: Any) -> tuple[dict[str, jax.Array], Context]:
        after = forward.train(context.replace(params=params))
        total, states = losses_lib.compute_losses(program.losses, after, mask)
        return _totals(parts, states), after.replace(loss_total=total, loss_states=states)

    totals, pull_back, after = jax.vjp(losses, context.params, has_aux=True)
    subgrads = {}
    for name, part in parts.items():
        (grads,) = pull_back(
            {other: jnp.ones_like(t) if other == name else jnp.zeros_like(t) for other, t in totals.items()}
        )
        subgrads[name] = jax.tree.map(
            lambda own, grad: grad if own else jnp.zeros_like(grad), part.mask(context.params), grads
        )
    fields = {field.name: getattr(after, field.name) for field in dataclasses.fields(after)}
    return MultiContext(**fields | {"params": context.params, "grads": _sum(subgrads.values()), "subgrads": subgrads})


def _totals(parts: Mapping[str, Part], loss_states: Mapping[str, Any]) -> dict[str, jax.Array]:
    """Returns what each part minimises."""
    return {
        name: sum((loss_states[loss].compute() for loss in _losses_of(part, loss_states)), start=jnp.zeros(()))
        for name, part in parts.items()
    }


def _losses_of(part: Part, names: Any) -> list[str]:
    return list(names if part.losses is None else part.losses)


def _check_losses(parts: Mapping[str, Part], names: list[str]) -> None:
    for part_name, part in parts.items():
        for loss in _losses_of(part, names):
            if loss not in names:
                raise ConfigError(unknown_name("loss", loss, names, at=f"optimizer.parts.{part_name}.losses"))
    minimised = {loss for part in parts.values() for loss in _losses_of(part, names)}
    if idle := [name for name in names if name not in minimised]:
        raise ConfigError(
            f"train_losses.{idle[0]}: no part of the optimizer minimises it. Name it in the `losses` of one, or make "
            "it a metric."
        )


def _sum(trees: Any) -> Any:
    return jax.tree.map(lambda *leaves: sum(leaves[1:], start=leaves[0]), *trees)
