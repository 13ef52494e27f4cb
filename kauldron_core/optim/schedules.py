"""Schedules by name: one call for all usual shapes, so that the shape itself can be swept."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from kauldron_core.errors import ConfigError, unknown_name


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule:
    """A value for each step: a linear warmup to `value`, then the shape of that name.

        cfg.schedules["lr"] = kd.optim.Schedule(name="cosine", value=1e-3, num_steps=cfg.ref.num_train_steps)
        cfg.optimizer = optax.adam(learning_rate=cfg.ref.schedules["lr"])

    Every number may be traced, the numbers of steps as well, so that trials that differ in them share a program.

    Attributes:
      name: `constant`, `linear`, `cosine`, `exponential` (all from `value` to `end_value` at step `num_steps`),
        `inverse_sqrt` (`value` at the end of the warmup, half of it after four times as long, for ever), or `trapezoid`
        (constant, then linear over the last `cooldown_steps`).
      value: The highest value.
      num_steps: Step at which `end_value` is reached, and from which it stays. Constant and inverse_sqrt need none.
      warmup_steps: Steps until `value` is reached.
      init_value: Where the warmup starts.
      end_value: Value at the end.
      cooldown_steps: Length of the last part of `trapezoid`; a fifth of `num_steps` where unset.
    """

    name: str
    value: Any
    num_steps: Any = None
    warmup_steps: Any = 0
    init_value: Any = 0.0
    end_value: Any = 0.0
    cooldown_steps: Any = None

    def __post_init__(self):
        if self.name not in SHAPES:
            raise ConfigError(unknown_name("schedule", self.name, SHAPES))
        if self.num_steps is None and self.name not in _ENDLESS:
            raise ConfigError(f"schedule {self.name!r}: num_steps is unset, and says when end_value is reached.")
        if self.name == "exponential" and isinstance(self.end_value, int | float) and self.end_value <= 0:
            raise ConfigError("schedule 'exponential': end_value has to be above 0; it is only approached otherwise.")
        self._check_parts()

    def _check_parts(self) -> None:
        """Refuses parts that do not fit into `num_steps`, as far as they are no traced numbers."""
        parts = {"warmup_steps": self.warmup_steps}
        if self.name == "trapezoid" and self.cooldown_steps is not None:
            parts["cooldown_steps"] = self.cooldown_steps
        if not all(isinstance(number, int | float) for number in parts.values()):
            return
        for part, length in parts.items():
            if length < 0:
                raise ConfigError(f"schedule {self.name!r}: {part} is {length}, and no part is shorter than 0 steps.")
        taken = sum(parts.values())
        if isinstance(self.num_steps, int | float) and self.name not in _ENDLESS and taken > self.num_steps:
            shown = " and ".join(f"{part}={length}" for part, length in parts.items())
            raise ConfigError(
                f"schedule {self.name!r}: {shown} do not fit into num_steps={self.num_steps}, at which it ends. Shorten"
                " them, or lengthen num_steps."
            )

    def oddity(self, num_train_steps: int | None) -> str | None:
        """Oddity of the schedule in a run of so many updates, None if there is none."""
        warmup, end = self.warmup_steps, self.num_steps
        if not isinstance(warmup, int | float) or warmup <= 0:
            return None
        if num_train_steps and num_train_steps <= warmup:
            return f"the warm-up of {warmup} steps does not end within the {num_train_steps} steps of the run"
        has_default = self.name == "trapezoid" and self.cooldown_steps is None and isinstance(end, int | float)
        if has_default and warmup > 0.8 * end:
            return f"the last fifth of its {end} steps begins before the warm-up of {warmup} ends; set cooldown_steps"
        return None

    def __call__(self, step: Any) -> Any:
        """Returns the value at `step`."""
        step = jnp.asarray(step, jnp.float32)
        warmup = jnp.maximum(jnp.asarray(self.warmup_steps, jnp.float32), 0.0)
        shape = SHAPES[self.name](self, step, warmup)
        rising = self.init_value + (self.value - self.init_value) * step / jnp.maximum(warmup, 1.0)
        return jnp.where(step < warmup, rising, shape)


def _constant(schedule: Schedule, step: Any, warmup: Any) -> Any:
    return jnp.broadcast_to(jnp.asarray(schedule.value, jnp.float32), jnp.shape(step))


def _linear(schedule: Schedule, step: Any, warmup: Any) -> Any:
    done = _progress(step, warmup, schedule.num_steps)
    return schedule.value + (schedule.end_value - schedule.value) * done


def _cosine(schedule: Schedule, step: Any, warmup: Any) -> Any:
    # Source: Loshchilov and Hutter, SGDR, 2017 (arXiv:1608.03983), equation 5, without restarts.
    left = 0.5 * (1.0 + jnp.cos(jnp.pi * _progress(step, warmup, schedule.num_steps)))
    return schedule.end_value + (schedule.value - schedule.end_value) * left


def _exponential(schedule: Schedule, step: Any, warmup: Any) -> Any:
    return schedule.value * (schedule.end_value / schedule.value) ** _progress(step, warmup, schedule.num_steps)


def _inverse_sqrt(schedule: Schedule, step: Any, warmup: Any) -> Any:
    # Source: Vaswani et al., Attention Is All You Need, 2017 (arXiv:1706.03762), equation 3.
    start = jnp.maximum(warmup, 1.0)
    return schedule.value * jnp.sqrt(start / jnp.maximum(step, start))


def _trapezoid(schedule: Schedule, step: Any, warmup: Any) -> Any:
    end = schedule.num_steps
    cooldown = end / 5 if schedule.cooldown_steps is None else schedule.cooldown_steps
    return schedule.value + (schedule.end_value - schedule.value) * _progress(step, end - cooldown, end)


def _progress(step: Any, start: Any, end: Any) -> Any:
    """Returns 0 at `start` and before, 1 at `end` and after."""
    return jnp.clip((step - start) / jnp.maximum(end - start, 1.0), 0.0, 1.0)


SHAPES: dict[str, Callable[[Schedule, Any, Any], Any]] = {
    "constant": _constant,
    "cosine": _cosine,
    "exponential": _exponential,
    "inverse_sqrt": _inverse_sqrt,
    "linear": _linear,
    "trapezoid": _trapezoid,
}
_ENDLESS = ("constant", "inverse_sqrt")
