"""A decoder and a model together, compiled."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from evaluators.decode.decoders import Decoded, Decoder, Prompts
from evaluators.decode.steps import CachedSteps, Steps, UncachedSteps
from kauldron_core import kontext
from kauldron_core.errors import ConfigError
from kauldron_core.evals.program import num_rows_of
from kauldron_core.forward import Context, ForwardPass, RngStreams, TrainState, padding_mask_of
from kauldron_core.modules import set_train_property


@dataclasses.dataclass(frozen=True, eq=False)
class DecodeProgram:
    """Decodes batches with a model's parameters. Compiled once for each shape of batch.

    Attributes:
      model: A Flax linen module, as a trainer has it. With the methods of `CachedModel` it decodes with its cache, and
        with `prefill` (`PrefillingModel`) it takes in one call what all prompts of a batch have.
      decoder: How to decode.
      rng_streams: Random streams of the model.
    """

    model: Any
    decoder: Decoder
    rng_streams: RngStreams = dataclasses.field(default_factory=RngStreams)

    def __call__(self, state: TrainState, batch: Any, *, row_ids: Any = None) -> Decoded:
        """Returns what the model says for each row. Starts the computation and does not wait for it.

        Args:
          state: Has the parameters.
          batch: The batch. Rows that its padding mask leaves out are not decoded.
          row_ids: int[batch]: numbers that tell examples apart, for `Sample`; by default their place in the batch.
        """
        if row_ids is None:
            row_ids = jnp.arange(num_rows_of(batch))
        return self._compiled(state.params, state.collections, state.step, batch, row_ids)

    def trace(self, state: TrainState, batch: Any) -> None:
        """Raises what decoding would raise for its wiring, found with the shapes of a state and a batch."""

        def decode(params: Any, collections: Any, step: Any, batch: Any) -> Decoded:
            return self._trace(params, collections, step, batch, jnp.arange(num_rows_of(batch)))

        jax.eval_shape(decode, state.params, state.collections, state.step, batch)

    @property
    def uses_cache(self) -> bool:
        """Whether the model decodes with its cache."""
        has_cache = all(callable(getattr(self.model, name, None)) for name in ("init_cache", "decode_step"))
        if self.decoder.use_cache and not has_cache:
            raise ConfigError(f"use_cache: {type(self.model).__name__} has no init_cache and decode_step.")
        return has_cache and self.decoder.use_cache is not False

    @functools.cached_property
    def _compiled(self) -> Callable[..., Decoded]:
        return jax.jit(self._trace)

    def _trace(self, params: Any, collections: Any, step: Any, batch: Any, row_ids: Any) -> Decoded:
        context = Context(step=step, batch=batch, params=params, collections=collections)
        prompts = self._prompts(context, row_ids)
        max_len = prompts.tokens.shape[1] + self.decoder.max_len
        return self.decoder.decode(self._steps(context, max_len), prompts)

    def _steps(self, context: Context, max_len: int) -> Steps:
        if self.uses_cache:
            has_prefill = callable(getattr(self.model, "prefill", None))
            return CachedSteps(functools.partial(self._apply, context), context.batch, max_len, has_prefill)
        forward = ForwardPass(self.model, self.rng_streams)
        decoder = self.decoder
        return UncachedSteps(forward.evaluate, context, decoder.tokens, decoder.logits, max_len, decoder.pad_id)

    def _apply(self, context: Context, method: str, *args: Any) -> Any:
        variables = {"params": context.params, **context.collections}
        with set_train_property(False):
            return self.model.apply(variables, *args, rngs=self.rng_streams.eval_rngs(context.step), method=method)

    def _prompts(self, context: Context, row_ids: Any) -> Prompts:
        num_rows = num_rows_of(context.batch)
        mask = padding_mask_of(context.batch)
        tokens = jnp.zeros((num_rows, 0), jnp.int32)
        if self.decoder.prompt is not None:
            tokens = jnp.asarray(kontext.get_by_path(context, self.decoder.prompt), jnp.int32)
        is_padding = tokens == self.decoder.pad_id
        # Padding on the left, or within, goes to the right.
        tokens = jnp.take_along_axis(tokens, jnp.argsort(is_padding, axis=1, stable=True), axis=1)
        return Prompts(
            tokens=tokens,
            lengths=jnp.sum(~is_padding, axis=1, dtype=jnp.int32),
            mask=jnp.ones(num_rows, bool) if mask is None else jnp.asarray(mask, bool),
            row_ids=jnp.asarray(row_ids, jnp.int32),
        )
