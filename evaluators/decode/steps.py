"""One token in, the next token's logits out: through a model's cache, or by running the whole model again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from kauldron_core import kontext
from kauldron_core.evals.program import num_rows_of
from kauldron_core.forward import Context


class CachedModel(Protocol):
    """What a Flax linen module needs to be decoded with a cache of keys and values, beside its `__call__`."""

    def init_cache(self, batch: Any, max_len: int) -> Any:
        """Returns the cache before the first token.

        Args:
          batch: The batch as the pipeline yields it; an encoder runs here.
          max_len: How many tokens will be fed at most.

        Returns:
          A tree of arrays. The first dimension of each is that of the batch, but for scalars, which all rows share.
        """
        ...

    def decode_step(self, cache: Any, tokens: Any, index: Any) -> tuple[Any, Any]:
        """Returns the logits of what follows, of shape (rows, vocabulary), and the new cache.

        Args:
          cache: The cache. It may have several rows for each row of the batch, and its rows may have changed places.
          tokens: One token a row.
          index: The position of these tokens, the same for all rows, counted from 0. Traced.
        """
        ...


class Steps(Protocol):
    """How a decoder asks for logits. What has to follow a row when beams change places is in the carry."""

    def start(self, num_copies: int) -> Any:
        """Returns the first carry, with `num_copies` rows after each other for each row of the batch."""
        ...

    def __call__(self, carry: Any, tokens: Any, index: Any) -> tuple[Any, Any]:
        """Returns logits of shape (rows, vocabulary) of what follows `tokens`, and the next carry."""
        ...


@dataclasses.dataclass(frozen=True, eq=False)
class CachedSteps:
    """Steps of a `CachedModel`.

    Attributes:
      apply: Calls a method of the model by name.
      batch: The batch.
      max_len: How many tokens will be fed at most.
    """

    apply: Callable[..., Any]
    batch: Any
    max_len: int

    def start(self, num_copies: int) -> Any:
        return repeat_rows(self.apply("init_cache", self.batch, self.max_len), num_copies)

    def __call__(self, carry: Any, tokens: Any, index: Any) -> tuple[Any, Any]:
        return self.apply("decode_step", carry, tokens, index)


@dataclasses.dataclass(frozen=True, eq=False)
class UncachedSteps:
    """Runs the whole model for each token. The model must be causal: what follows a position is padding.

    Attributes:
      forward: Returns a context with `preds` from one with a batch.
      context: Holds the batch.
      tokens: Path of the model's input tokens in the context; they are replaced.
      logits: Path of the logits, of shape (rows, positions, vocabulary).
      max_len: How many tokens will be fed at most.
      pad_id: What stands at the positions that have no token yet.
    """

    forward: Callable[[Context], Context]
    context: Context
    tokens: str
    logits: str
    max_len: int
    pad_id: int

    def start(self, num_copies: int) -> Any:
        num_rows = num_rows_of(self.context.batch) * num_copies
        return jnp.full((num_rows, self.max_len), self.pad_id, jnp.int32)

    def __call__(self, carry: Any, tokens: Any, index: Any) -> tuple[Any, Any]:
        carry = carry.at[:, index].set(tokens)
        num_rows = num_rows_of(self.context.batch)
        # A copy of the tree, so that the batch of the caller keeps its tokens.
        batch = jax.tree.map(lambda leaf: leaf, self.context.batch)
        context = self.context.replace(batch=repeat_rows(batch, carry.shape[0] // num_rows, num_rows=num_rows))
        kontext.set_by_path(context, self.tokens, carry)
        logits = kontext.get_by_path(self.forward(context), self.logits)
        return jax.lax.dynamic_index_in_dim(logits, index, axis=1, keepdims=False), carry


def repeat_rows(tree: Any, num_copies: int, *, num_rows: int | None = None) -> Any:
    """Returns `tree` with each row `num_copies` times; scalars, and what has another number of rows, stay."""

    def repeat(leaf: Any) -> Any:
        is_per_row = jnp.ndim(leaf) > 0 and num_rows in (None, leaf.shape[0])
        return jnp.repeat(leaf, num_copies, axis=0) if is_per_row and num_copies > 1 else leaf

    return jax.tree.map(repeat, tree)
