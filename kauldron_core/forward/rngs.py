"""Random streams of a model: each depends on the seed, its name and the step, on nothing that ran before."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax

from kauldron_core import random


@dataclasses.dataclass(frozen=True, kw_only=True)
class RngStream:
    """One named stream.

    Attributes:
      name: Name by which layers ask for it (`dropout`).
      init: Whether it exists while parameters are initialised.
      train: Whether it exists in a training step.
      eval: Whether it exists in an evaluation.
      per_step: Whether each step gets other bits.
    """

    name: str
    init: bool = False
    train: bool = True
    eval: bool = False
    per_step: bool = True


DEFAULT_STREAMS = (
    RngStream(name="params", init=True, train=False),
    RngStream(name="dropout"),
    RngStream(name="default", init=True),
)


@dataclasses.dataclass(frozen=True)
class RngStreams:
    """The streams of one experiment: `params`, `dropout`, `default`, and those given (which win over these).

    Attributes:
      streams: Further streams, or other settings for the three.
      seed: Root of all of them; the trainer's where unset.
    """

    streams: Sequence[RngStream] = ()
    seed: int | Any | None = None

    def by_name(self) -> dict[str, RngStream]:
        """Returns every stream by its name."""
        return {stream.name: stream for stream in (*DEFAULT_STREAMS, *self.streams)}

    def init_rngs(self) -> dict[str, jax.Array]:
        """Returns the keys for initialisation."""
        return {name: self._key(name).rng for name, stream in self.by_name().items() if stream.init}

    def train_rngs(self, step: int | jax.Array) -> dict[str, jax.Array]:
        """Returns the keys of the training step that starts at `step`."""
        return {name: self._step_key(stream, step) for name, stream in self.by_name().items() if stream.train}

    def eval_rngs(self, step: int | jax.Array) -> dict[str, jax.Array]:
        """Returns the keys of an evaluation of the state at `step`."""
        return {name: self._step_key(stream, step) for name, stream in self.by_name().items() if stream.eval}

    def _key(self, name: str) -> random.PRNGKey:
        return random.PRNGKey(0 if self.seed is None else self.seed).fold_in(name)

    def _step_key(self, stream: RngStream, step: int | jax.Array) -> jax.Array:
        key = self._key(stream.name)
        return (key.fold_in(step) if stream.per_step else key).rng
