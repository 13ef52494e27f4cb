"""The random streams of an NNX module, fed from those of the Linen scope that it runs in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import nnx

from kauldron_core import paths, random

_DEFAULT, _PARAMS = "default", "params"

# There from the start, for constructors that split or fork all streams (`nnx.vmap` over layers).
_USUAL = (_PARAMS, "dropout", _DEFAULT)


class Seeds:
    """The key of each stream in one call of a module."""

    def __init__(self, scope: nn.Module):
        self._scope = scope
        self._keys: dict[str, jax.Array] = {}

    def get(self, name: str) -> jax.Array | None:
        """Returns the key of a stream, or None if it does not exist here, and none it could be derived from."""
        if name not in self._keys:
            # One that nobody configured follows from the default stream, or from the one key of `init(key, x)`.
            source = next((source for source in (name, _DEFAULT, _PARAMS) if self._scope.has_rng(source)), None)
            if source is None:
                return None
            key = self._scope.make_rng(source)
            self._keys[name] = typed(key if source == name else random.PRNGKey(key).fold_in(name).rng)
        return self._keys[name]


class Placeholders:
    """Seeds for a module of which nobody wants the values."""

    def get(self, name: str) -> jax.Array | None:
        return jax.random.key(0)


class Streams(nnx.Rngs):
    """The streams that a constructor is given: each exists as soon as it is asked for, under its own name."""

    def __init__(self, seeds: Seeds | Placeholders):
        known = {name: key for name in _USUAL if (key := seeds.get(name)) is not None}
        super().__init__(**known)
        self.seeds = nnx.static(seeds)

    def __getitem__(self, name: str) -> nnx.RngStream:
        if name not in vars(self):
            key = self.seeds.get(name)
            if key is None:
                raise ValueError(_missing(name))
            setattr(self, name, nnx.RngStream(key, tag=name))
        return vars(self)[name]

    def __getattr__(self, name: str) -> nnx.RngStream:
        if name.startswith("_") or name == "seeds":
            raise AttributeError(name)
        return self[name]


def reseed(module: nnx.Module, seeds: Seeds) -> list[tuple[nnx.RngStream, Any]]:
    """Gives each stream that `module` holds its key for this call.

    Returns:
      The streams for which there is none, each with its counter.
    """
    unseeded = []
    for path, node in nnx.iter_graph(module):
        if isinstance(node, Streams):
            node.seeds = nnx.static(seeds)
        elif isinstance(node, nnx.RngStream):
            key = seeds.get(node.tag)
            if key is None:
                unseeded.append((node, node.count.get_value()))
                continue
            node.key.set_value(key_at(path, key, shape=node.key.get_value().shape))
            node.count.set_value(jnp.zeros(node.count.get_value().shape, jnp.uint32))
    return unseeded


def check_unused(streams: Iterable[tuple[nnx.RngStream, Any]]) -> None:
    """Raises ValueError if one of the streams that `reseed` returned was drawn from."""
    for stream, count in streams:
        if stream.count.get_value() is not count:
            raise ValueError(_missing(stream.tag))


def key_at(path: tuple[Any, ...], key: jax.Array, *, shape: tuple[int, ...]) -> jax.Array:
    """Returns the key of the stream at `path` of a module: layers do not share their bits."""
    folded = random.PRNGKey(key).fold_in(paths.format(path)).rng
    return jax.random.split(folded, shape) if shape else folded


def typed(key: jax.Array) -> jax.Array:
    """Returns `key` as NNX wants it."""
    return key if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else jax.random.wrap_key_data(key)


def _missing(name: str) -> str:
    return (
        f"the model draws from the random stream {name!r}, which does not exist here. Add "
        f"kd.train.RngStream(name={name!r}) to the trainer's rng_streams, with eval=True if evaluations need it."
    )
