"""Beam search: the likeliest sequences, several prefixes at a time."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from evaluators.decode.decoders import Decoded, Decoder, Prompts, as_logits
from evaluators.decode.steps import Steps
from kauldron_core.errors import ConfigError


class _Beams(NamedTuple):
    """Sequences of each row, best first: `tokens` int32[batch, width, positions], `scores` float32[batch, width]."""

    tokens: jax.Array
    scores: jax.Array

    def best(self, other: _Beams) -> _Beams:
        """Returns as many of the sequences of both as there are here."""
        tokens = jnp.concatenate([self.tokens, other.tokens], axis=1)
        scores, places = jax.lax.top_k(jnp.concatenate([self.scores, other.scores], axis=1), self.scores.shape[1])
        return _Beams(_take(tokens, places), scores)

    def where(self, condition: jax.Array, other: _Beams) -> _Beams:
        """Returns the rows of this where `condition` holds, else those of `other`."""
        return jax.tree.map(
            lambda left, right: jnp.where(condition.reshape(-1, *[1] * (left.ndim - 1)), left, right), self, other
        )


class _Loop(NamedTuple):
    position: jax.Array
    last: jax.Array
    carry: Any
    live: _Beams
    finished: _Beams
    is_done: jax.Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class Beam(Decoder):
    """Beam search: `evaluators.Beam(width=4, max_len=32)`.

    Each step keeps the `width` likeliest prefixes; those that end are set aside and compete by their score, the
    log-likelihood divided by `((5 + length) / 6) ** length_penalty`. A sequence that has no EOS after `max_len` tokens
    competes as it is. A row ends when no prefix can get better than what it has.

    Source: Wu et al. 2016, Google's Neural Machine Translation System, equation 14, for the length penalty.

    Attributes:
      width: How many prefixes are kept.
      num_sequences: How many sequences are returned for each row, best first; at most `width`.
      length_penalty: 0 compares log-likelihoods; larger numbers favour longer sequences.
    """

    width: int
    num_sequences: int = 1
    length_penalty: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        if self.width < 1:
            raise ConfigError(f"Beam.width: must be at least 1, not {self.width}.")
        if not 1 <= self.num_sequences <= self.width:
            raise ConfigError(f"Beam.num_sequences: must be 1 to the width {self.width}, not {self.num_sequences}.")
        if self.length_penalty < 0:
            raise ConfigError(f"Beam.length_penalty: must be at least 0, not {self.length_penalty}.")

    def decode(self, steps: Steps, prompts: Prompts) -> Decoded:
        num_positions = prompts.tokens.shape[1] + self.max_len
        given = jnp.pad(prompts.tokens, ((0, 0), (0, self.max_len)), constant_values=self.pad_id)

        def is_running(loop: _Loop) -> jax.Array:
            return (loop.position < num_positions) & ~loop.is_done.all()

        def extend(loop: _Loop) -> _Loop:
            return self._extend(steps, prompts._replace(tokens=given), loop)

        loop = jax.lax.while_loop(is_running, extend, self._start(steps, prompts, num_positions))
        best = jax.tree.map(lambda part: part[:, : self.num_sequences], loop.finished)
        return self._decoded(best.tokens, best.scores, prompts)

    def _start(self, steps: Steps, prompts: Prompts, num_positions: int) -> _Loop:
        num_rows = prompts.mask.shape[0]
        tokens = jnp.full((num_rows, self.width, num_positions), self.pad_id, jnp.int32)
        nothing = jnp.full((num_rows, self.width), -jnp.inf, jnp.float32)
        position, last, carry = self._begin(steps, prompts, self.width)
        return _Loop(
            position=position,
            last=last,
            carry=carry,
            # One prefix only: `width` equal ones would stay equal.
            live=_Beams(tokens, nothing.at[:, 0].set(0.0)),
            finished=_Beams(tokens, nothing),
            is_done=~prompts.mask,
        )

    def _extend(self, steps: Steps, prompts: Prompts, loop: _Loop) -> _Loop:
        index, live, finished = loop.position, loop.live, loop.finished
        logits, carry = steps(loop.carry, loop.last, index)
        gained = jax.nn.log_softmax(as_logits(logits, self.eos_id))
        totals = live.scores[..., None] + gained.reshape(*live.scores.shape, -1)

        is_given = index < prompts.lengths
        length = index + 1 - prompts.lengths
        penalty = self._penalty(length)[:, None]
        if self.eos_id is not None:
            ended = _Beams(live.tokens.at[:, :, index].set(self.eos_id), totals[..., self.eos_id] / penalty)
            finished = finished.where(is_given | loop.is_done, finished.best(ended))
            totals = totals.at[..., self.eos_id].set(-jnp.inf)
        parents, tokens, scores = self._best_extensions(totals)
        parents = jnp.where(is_given[:, None], jnp.arange(self.width), parents)
        tokens = jnp.where(is_given[:, None], prompts.tokens[:, index, None], tokens)
        scores = jnp.where(is_given[:, None], live.scores, scores)
        live = _Beams(_take(live.tokens, parents).at[:, :, index].set(tokens), scores)

        is_full = ~is_given & (length >= self.max_len)
        cut = finished.best(live._replace(scores=live.scores / penalty))
        finished = cut.where(is_full & ~loop.is_done, finished)
        # Log-likelihoods only fall, and the penalty is largest at the end: this is the best that can still come.
        bound = live.scores[:, 0] / self._penalty(jnp.int32(self.max_len))
        is_done = loop.is_done | is_full | (~is_given & (bound <= finished.scores[:, -1]))
        return _Loop(index + 1, tokens.reshape(-1), self._follow(carry, parents), live, finished, is_done)

    def _best_extensions(self, totals: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Returns parent, token and score of the `width` best prefixes, of shape (batch, width) each."""
        num_rows, _, vocabulary = totals.shape
        scores, places = jax.lax.top_k(totals.reshape(num_rows, -1), self.width)
        return places // vocabulary, (places % vocabulary).astype(jnp.int32), scores

    def _follow(self, carry: Any, parents: jax.Array) -> Any:
        """Returns the carry with each row where its prefix went."""
        num_rows, width = parents.shape
        rows = (jnp.arange(num_rows)[:, None] * width + parents).reshape(-1)
        return jax.tree.map(lambda leaf: leaf[rows] if jnp.ndim(leaf) else leaf, carry)

    def _penalty(self, length: jax.Array) -> jax.Array:
        # Lengths within the prompt are not scored; 1 keeps them positive.
        return ((5.0 + jnp.maximum(length, 1)) / 6.0) ** self.length_penalty


def _take(tokens: jax.Array, places: jax.Array) -> jax.Array:
    return jnp.take_along_axis(tokens, places[..., None], axis=1)
