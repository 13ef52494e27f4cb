"""What every decoder is, and those that extend one sequence at a time: greedy decoding and sampling."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from evaluators.decode.steps import Steps
from kauldron_core import kontext
from kauldron_core.errors import ConfigError


class Decoded(NamedTuple):
    """What was decoded, for each row of the batch one or more sequences.

    Attributes:
      tokens: int32[batch, sequences, max_len]: what follows the prompt, up to and with the EOS, then padding.
      scores: float32[batch, sequences]: log-likelihoods of these tokens under the model, for `Beam` divided by its
        length penalty. 0 for rows that are padding, -inf where a row has fewer sequences.
      lengths: int32[batch, sequences]: how many tokens there are, the EOS included.
    """

    tokens: Any
    scores: Any
    lengths: Any


class Prompts(NamedTuple):
    """What is given before decoding begins.

    Attributes:
      tokens: int32[rows, length], each row from the left, then padding.
      lengths: int32[rows].
      mask: bool[rows]: which rows are examples. The others are not decoded.
      row_ids: int32[rows]: what tells the rows apart; random numbers depend on it, and not on the batch.
    """

    tokens: jax.Array
    lengths: jax.Array
    mask: jax.Array
    row_ids: jax.Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decoder(abc.ABC):
    """Settings of a decoder, as a config holds them. `DecodeProgram` brings one together with a model.

    Attributes:
      max_len: How many tokens follow the prompt at most.
      eos_id: The token that ends a sequence; None decodes `max_len` tokens always.
      pad_id: What stands behind the end, and in prompts that are shorter than others.
      bos_id: What is fed at the first position.
      prompt: Key of int[batch, length] tokens to begin with; None begins with nothing.
      tokens: Key of the model's input tokens, which are replaced. Only without a cache.
      logits: Key of the model's logits. Only without a cache.
      use_cache: Whether the model decodes with its cache (see `CachedModel`); None: if it has one.
    """

    max_len: int
    eos_id: int | None = 1
    pad_id: int = 0
    bos_id: int = 0
    prompt: kontext.Key | None = None
    tokens: kontext.Key = "batch.decoder_input_tokens"
    logits: kontext.Key = "preds"
    use_cache: bool | None = None

    def __post_init__(self):
        _at_least(self, max_len=1, pad_id=0, bos_id=0)
        if self.eos_id is not None and self.eos_id == self.pad_id:
            raise ConfigError(f"{type(self).__name__}.eos_id: {self.eos_id} is the pad_id too. They must differ.")

    @abc.abstractmethod
    def decode(self, steps: Steps, prompts: Prompts) -> Decoded:
        """Returns what follows the prompts. Traced."""

    def _begin(self, steps: Steps, prompts: Prompts, num_copies: int) -> tuple[jax.Array, jax.Array, Any]:
        """Returns the first position that is gone through one by one, what is fed there, and the carry.

        What all prompts have is taken at once, if the model can do that.
        """
        num_rows, length = prompts.tokens.shape
        first = jnp.full((num_rows, 1), self.bos_id, jnp.int32)
        fed = jnp.concatenate([first, prompts.tokens], axis=1)
        shared = jnp.min(jnp.where(prompts.mask, prompts.lengths, length))
        carry, index = steps.start(num_copies, fed[:, :length], shared)
        return index, jnp.repeat(jnp.take(fed, index, axis=1), num_copies), carry

    def _is_eos(self, tokens: jax.Array) -> jax.Array:
        return jnp.zeros(tokens.shape, bool) if self.eos_id is None else tokens == self.eos_id

    def _decoded(self, out: jax.Array, scores: jax.Array, prompts: Prompts) -> Decoded:
        """Returns the part of `out`, of shape (batch, sequences, positions), that follows the prompts."""
        places = prompts.lengths[:, None] + jnp.arange(self.max_len)
        tokens = jnp.take_along_axis(out, places[:, None, :], axis=2)
        is_eos = self._is_eos(tokens)
        lengths = jnp.where(is_eos.any(-1), is_eos.argmax(-1) + 1, self.max_len)
        is_there = prompts.mask[:, None] & (scores > -jnp.inf)
        return Decoded(
            tokens=jnp.where(is_there[..., None], tokens, self.pad_id).astype(jnp.int32),
            scores=jnp.where(prompts.mask[:, None], scores, 0.0),
            lengths=jnp.where(is_there, lengths, 0).astype(jnp.int32),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneByOne(Decoder):
    """Base class of decoders whose sequences do not compete."""

    @property
    def num_sequences(self) -> int:
        """Sequences for each row of the batch."""
        return 1

    @abc.abstractmethod
    def choose(self, logits: jax.Array, index: jax.Array, row_ids: jax.Array) -> jax.Array:
        """Returns the next token of each row. Traced.

        Args:
          logits: float32[rows, vocabulary].
          index: The position.
          row_ids: int32[rows]; sequences of one row of the batch follow each other.
        """

    def decode(self, steps: Steps, prompts: Prompts) -> Decoded:
        copies = self.num_sequences
        given, lengths, mask, row_ids = (jnp.repeat(part, copies, axis=0) for part in prompts)
        num_rows, num_positions = given.shape[0], given.shape[1] + self.max_len
        given = jnp.pad(given, ((0, 0), (0, self.max_len)), constant_values=self.pad_id)

        def is_running(loop: tuple[Any, ...]) -> jax.Array:
            index, _, _, _, _, is_done = loop
            return (index < num_positions) & ~is_done.all()

        def extend(loop: tuple[Any, ...]) -> tuple[Any, ...]:
            index, tokens, carry, out, scores, is_done = loop
            logits, carry = steps(carry, tokens, index)
            logits = as_logits(logits, self.eos_id)
            is_given = index < lengths
            chosen = jnp.where(is_given, given[:, index], self.choose(logits, index, row_ids))
            tokens = jnp.where(is_done, self.pad_id, chosen).astype(jnp.int32)
            gained = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, None], axis=1)[:, 0]
            scores += jnp.where(is_given | is_done, 0.0, gained)
            is_done |= ~is_given & (self._is_eos(tokens) | (index + 1 - lengths >= self.max_len))
            return index + 1, tokens, carry, out.at[:, index].set(tokens), scores, is_done

        start = (
            *self._begin(steps, prompts, copies),
            jnp.full((num_rows, num_positions), self.pad_id, jnp.int32),
            jnp.zeros(num_rows, jnp.float32),
            ~mask,
        )
        *_, out, scores, _ = jax.lax.while_loop(is_running, extend, start)
        return self._decoded(out.reshape(-1, copies, num_positions), scores.reshape(-1, copies), prompts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Greedy(OneByOne):
    """Takes the most likely token each time: `evaluators.Greedy(max_len=32, eos_id=1)`."""

    def choose(self, logits: jax.Array, index: jax.Array, row_ids: jax.Array) -> jax.Array:
        return logits.argmax(-1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sample(OneByOne):
    """Draws each token. The same row gets the same tokens in any batch: keys follow from the seed and the row's id.

    Attributes:
      temperature: Divides the logits; below 1 the likely tokens get likelier.
      top_k: Only the so many likeliest tokens are drawn.
      top_p: Only the likeliest tokens that together have this probability, the one that reaches it included.
      num_samples: Sequences for each row.
      seed: Root of the randomness.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    num_samples: int = 1
    seed: int = 0

    def __post_init__(self):
        super().__post_init__()
        if not self.temperature > 0:
            raise ConfigError(f"Sample.temperature: {self.temperature} is not above 0. Greedy takes the likeliest.")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ConfigError(f"Sample.top_p: {self.top_p} is not a probability above 0.")
        _at_least(self, num_samples=1, **({} if self.top_k is None else {"top_k": 1}))

    @property
    def num_sequences(self) -> int:
        return self.num_samples

    def choose(self, logits: jax.Array, index: jax.Array, row_ids: jax.Array) -> jax.Array:
        logits = keep_top(logits / self.temperature, top_k=self.top_k, top_p=self.top_p)
        sample = jnp.arange(logits.shape[0]) % self.num_samples
        keys = jax.vmap(self._key, in_axes=(0, 0, None))(row_ids, sample, index)
        return jax.vmap(jax.random.categorical)(keys, logits)

    def _key(self, row_id: jax.Array, sample: jax.Array, index: jax.Array) -> jax.Array:
        key = jax.random.key(self.seed, impl="threefry2x32")
        for number in (row_id, sample, index):
            key = jax.random.fold_in(key, number)
        return key


def keep_top(logits: jax.Array, *, top_k: int | None = None, top_p: float | None = None) -> jax.Array:
    """Returns logits with -inf for what is not among the `top_k` likeliest, or beyond the probability `top_p`."""
    if top_k is not None and top_k < logits.shape[-1]:
        least = jax.lax.top_k(logits, top_k)[0][..., -1:]
        logits = jnp.where(logits < least, -jnp.inf, logits)
    if top_p is not None and top_p < 1:
        ordered = -jnp.sort(-logits, axis=-1)
        probabilities = jax.nn.softmax(ordered)
        # What stands before a token must not have reached it yet.
        is_kept = jnp.cumsum(probabilities, axis=-1) - probabilities < top_p
        least = jnp.where(is_kept, ordered, jnp.inf).min(-1, keepdims=True)
        logits = jnp.where(logits < least, -jnp.inf, logits)
    return logits


def as_logits(logits: Any, eos_id: int | None) -> jax.Array:
    """Returns logits in float32, after a look at their shape."""
    if jnp.ndim(logits) != 2:
        raise ConfigError(f"logits: a step gave shape {jnp.shape(logits)}, not (rows, vocabulary).")
    if eos_id is not None and eos_id >= logits.shape[-1]:
        raise ConfigError(f"eos_id: {eos_id} is outside of the vocabulary of {logits.shape[-1]} tokens.")
    return logits.astype(jnp.float32)


def _at_least(decoder: Decoder, **limits: int) -> None:
    for name, least in limits.items():
        value = getattr(decoder, name)
        if value < least:
            raise ConfigError(f"{type(decoder).__name__}.{name}: must be at least {least}, not {value}.")
