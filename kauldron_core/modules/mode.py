"""Whether a model runs for training: set once around the call, read by any layer inside."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

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

    Its rate may be traced, which that of `flax.linen.Dropout` may not.

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
        is_off = choices[0] if choices else not self.is_training
        if is_off or is_static_zero(self.rate):
            return x
        shape = [1 if dim in self._shared(x.ndim) else size for dim, size in enumerate(x.shape)]
        keep = 1.0 - self.rate
        is_kept = jax.random.bernoulli(self.make_rng(self.rng_collection), keep, tuple(shape))
        # Where everything is dropped the gradient is 0, and not 0 times infinity.
        return jnp.where(is_kept, x / jnp.where(keep > 0, keep, 1.0), 0).astype(x.dtype)

    def _shared(self, ndim: int) -> set[int]:
        return {dim % ndim for dim in self.broadcast_dims}


def is_static_zero(rate: Any) -> bool:
    """Returns whether a rate is 0 for sure. One that is traced, as in a pack of trials, never is."""
    return isinstance(rate, int | float) and rate == 0
