"""Whether a model runs for training: set once around the call, read by any layer inside."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Sequence
from typing import Any

import flax.linen as nn
import jax

_is_training: contextvars.ContextVar[bool | None] = contextvars.ContextVar("is_training", default=None)


@contextlib.contextmanager
def set_train_property(is_training: bool) -> Iterator[None]:
    """Sets what `train_property()` reads inside the block. The innermost block wins."""
    token = _is_training.set(is_training)
    try:
        yield
    finally:
        _is_training.reset(token)


def train_property() -> property:
    """Returns a property for a Flax module (Linen or NNX) that is True while the model runs for training.

    Reading it raises `ValueError` outside a bound Linen module, and in a model called outside `set_train_property`.
    """
    return property(read_is_training)


def read_is_training(module: Any) -> bool:
    """Returns whether `module`, which is being called, runs for training.

    Raises:
      ValueError: If it is a Linen module that is not bound, or nothing says whether this is training.
    """
    if isinstance(module, nn.Module) and module.scope is None:
        # Not an AttributeError: Flax would replace it by one that says the property does not exist.
        raise ValueError(f"{type(module).__name__}: a train_property can only be read inside a bound module.")
    value = _is_training.get()
    if value is None:
        raise ValueError(
            f"{type(module).__name__}: nothing says whether this is training. Wrap the call in "
            "`with kd.nn.set_train_property(is_training):` (the trainer and the evaluators do)."
        )
    return value


class Dropout(nn.Module):
    """Dropout during training, the identity otherwise. Takes its bits from the `dropout` stream.

    Attributes:
      rate: Probability with which a value is set to 0, in [0, 1).
      broadcast_dims: Dimensions that share their bits: all values along them are dropped together, or none.
      deterministic: Whether to drop nothing; None asks whether this is training.
      rng_collection: Name of the random stream.
    """

    rate: float
    broadcast_dims: Sequence[int] = ()
    deterministic: bool | None = None
    rng_collection: str = "dropout"

    is_training = train_property()

    @nn.compact
    def __call__(self, x: jax.Array, *, deterministic: bool | None = None) -> jax.Array:
        """Returns `x` with values dropped and the rest scaled up."""
        choices = [choice for choice in (deterministic, self.deterministic) if choice is not None]
        return nn.Dropout(self.rate, self.broadcast_dims, rng_collection=self.rng_collection)(
            x, deterministic=choices[0] if choices else not self.is_training
        )
