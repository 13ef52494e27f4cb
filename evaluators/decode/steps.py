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


class PrefillingModel(CachedModel, Protocol):
    """A `CachedModel` that takes the beginning of all prompts in one call. Without this they come token by token."""

    def prefill(self, cache: Any, tokens: Any, count: Any) -> Any:
        """Returns the cache after the first `count` tokens of each row: what so many calls of `decode_step` leave.

        A cache that `decode_step` reads up to its index only may hold anything at later positions.

        Args:
          cache: What `init_cache` returned.
          tokens: int32[rows, positions], the tokens at positions 0, 1, ...; those from `count` on mean nothing.
          count: How many to take. Traced.
        """
        ...


class Steps(Protocol):
    """How a decoder asks for logits. What has to follow a row when beams change places is in the carry."""

    def start(self, num_copies: int, tokens: Any, count: Any) -> tuple[Any, Any]:
        """Returns the first carry, and the position of the first token to be fed.

        Args:
          num_copies: How many rows of the carry, after each other, each row of the batch has.
          tokens: int32[rows, positions], what is fed to each row at positions 0, 1, ...
          count: How many of them may be taken at once. Traced.
        """
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
      has_prefill: Whether the model is a `PrefillingModel`.
    """

    apply: Callable[..., Any]
    batch: Any
    max_len: int
    has_prefill: bool = False

    def start(self, num_copies: int, tokens: Any, count: Any) -> tuple[Any, Any]:
        cache, index = self.apply("init_cache", self.batch, self.max_len), jnp.int32(0)
        if self.has_prefill and tokens.shape[1]:
            cache, index = self.apply("prefill", cache, tokens, count), jnp.int32(count)
        return repeat_rows(cache, num_copies), index

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

    def start(self, num_copies: int, tokens: Any, count: Any) -> tuple[Any, Any]:
        given = jnp.where(jnp.arange(tokens.shape[1]) < count, tokens, self.pad_id)
        room = self.max_len - tokens.shape[1]
        carry = jnp.pad(given, ((0, 0), (0, room)), constant_values=self.pad_id)
        return jnp.repeat(carry, num_copies, axis=0), jnp.int32(count)

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
