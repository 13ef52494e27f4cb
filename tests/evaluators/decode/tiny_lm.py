"""A causal language model of one attention layer with six tokens, with and without a cache."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from kauldron_core import kontext
from kauldron_core.forward import TrainState

VOCABULARY, WIDTH = 6, 8
EOS = 1


class TinyLM(nn.Module):
    """Next-token logits from attention over what came before, and optionally from a feature of the example."""

    tokens: kontext.Key = "batch.decoder_input_tokens"
    shift: kontext.Key | None = None

    def setup(self):
        self.embed = nn.Embed(VOCABULARY, WIDTH, embedding_init=nn.initializers.normal(1.5))
        self.positions = nn.Embed(32, WIDTH, embedding_init=nn.initializers.normal(1.0))
        self.qkv = nn.Dense(3 * WIDTH)
        self.out = nn.Dense(VOCABULARY, kernel_init=nn.initializers.normal(1.5))

    def __call__(self, tokens, shift=None):
        x = self._embedded(tokens, jnp.arange(tokens.shape[1]), shift)
        q, k, v = jnp.split(self.qkv(x), 3, axis=-1)
        weights = jnp.einsum("bqd,bkd->bqk", q, k)
        weights = jnp.where(jnp.tril(jnp.ones(weights.shape[-2:], bool)), weights, -jnp.inf)
        return self.out(x + jax.nn.softmax(weights) @ v)

    def _embedded(self, tokens, index, shift):
        x = self.embed(tokens) + self.positions(index)
        return x if shift is None else x + shift[:, None, None]


class TinyCachedLM(TinyLM):
    """The same model with a cache of keys and values."""

    def init_cache(self, batch, max_len):
        num_rows = batch["decoder_input_tokens"].shape[0]
        cache = {name: jnp.zeros((num_rows, max_len, WIDTH)) for name in ("k", "v")}
        return cache if self.shift is None else {**cache, "shift": batch["shift"]}

    def decode_step(self, cache, tokens, index):
        x = self._embedded(tokens[:, None], index, cache.get("shift"))
        q, k, v = jnp.split(self.qkv(x), 3, axis=-1)
        k, v = cache["k"].at[:, index].set(k[:, 0]), cache["v"].at[:, index].set(v[:, 0])
        weights = jnp.einsum("bqd,bkd->bqk", q, k)
        weights = jnp.where(jnp.arange(k.shape[1]) <= index, weights, -jnp.inf)
        return self.out(x + jax.nn.softmax(weights) @ v)[:, 0], {**cache, "k": k, "v": v}


class TinyPrefillingLM(TinyCachedLM):
    """The same model, which takes prompts in one call."""

    def prefill(self, cache, tokens, count):
        x = self._embedded(tokens, jnp.arange(tokens.shape[1]), cache.get("shift"))
        _, k, v = jnp.split(self.qkv(x), 3, axis=-1)
        end = tokens.shape[1]
        # What lies behind `count` would change every result, were it looked at.
        k, v = (jnp.where(jnp.arange(end)[:, None] < count, part, 1e6) for part in (k, v))
        return {**cache, "k": cache["k"].at[:, :end].set(k), "v": cache["v"].at[:, :end].set(v)}


def state_of(model: nn.Module, seed: int = 0) -> TrainState:
    params = TinyLM.init(model, jax.random.key(seed), jnp.zeros((1, 4), jnp.int32), jnp.zeros(1))["params"]
    return TrainState.create(params=params, collections={}, opt_state=())
