"""`PRNGKey`: a JAX key that can be folded by name and turned into a seed for NumPy or Grain."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# fmt: off
# Every sampler of `jax.random` becomes a method: `key.normal((3,))`.
_SAMPLERS = frozenset({
    "ball", "bernoulli", "beta", "binomial", "bits", "categorical", "cauchy", "chisquare", "choice", "dirichlet",
    "double_sided_maxwell", "exponential", "f", "gamma", "generalized_normal", "geometric", "gumbel", "laplace",
    "loggamma", "logistic", "lognormal", "maxwell", "multivariate_normal", "normal", "orthogonal", "pareto",
    "permutation", "poisson", "rademacher", "randint", "rayleigh", "t", "triangular", "truncated_normal", "uniform",
    "wald", "weibull_min",
})
# fmt: on


@jax.tree_util.register_pytree_node_class
class PRNGKey:
    """A random key, or a batch of them.

    `rng` is the wrapped JAX key; hand that to functions that want a plain one (`module.init(key.rng, x)`).

    Args:
      seed_or_rng: An integer seed, or a key (raw or typed) to wrap.
      impl: Name of JAX's generator; None is its default.
    """

    rng: jax.Array

    def __init__(
        self, seed_or_rng: int | np.integer | jax.Array | np.ndarray | PRNGKey = 0, *, impl: str | None = None
    ):
        if isinstance(seed_or_rng, PRNGKey):
            self.rng = seed_or_rng.rng
        elif _is_key(seed_or_rng):
            self.rng = seed_or_rng  # pyright: ignore[reportAttributeAccessIssue]
        else:
            self.rng = jax.random.PRNGKey(seed_or_rng, impl=impl)  # pyright: ignore[reportArgumentType]

    def fold_in(self, data: int | str | jax.Array) -> PRNGKey:
        """Returns the key for `data`: a step number, or the name of a stream."""
        return PRNGKey(jax.random.fold_in(self.rng, _hash(data) if isinstance(data, str) else data))

    def split(self, n: int = 2) -> PRNGKey:
        """Returns `n` independent keys, stacked along a new leading axis: `a, b = key.split()`."""
        return PRNGKey(jax.random.split(self.rng, n))

    def next(self) -> PRNGKey:
        """Returns the one key of `split(1)`."""
        return self.split(1)[0]

    def as_seed(self) -> int:
        """Returns a seed in [0, 2**32) for NumPy, Grain and the like. It is not the seed that the key was made from."""
        return int(jax.random.bits(self.rng)) % 2**32

    def __iter__(self) -> Iterator[PRNGKey]:
        return (PRNGKey(key) for key in self.rng)

    def __getitem__(self, index: Any) -> PRNGKey:
        return PRNGKey(self.rng[index])

    def __len__(self) -> int:
        return len(self.rng)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(jax.random.key_data(self.rng), dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        return f"PRNGKey({self.rng!r})"

    def __getattr__(self, name: str) -> Any:
        if name not in _SAMPLERS:
            raise AttributeError(f"PRNGKey has no attribute {name!r}")
        return functools.partial(getattr(jax.random, name), self.rng)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_SAMPLERS})

    def tree_flatten(self) -> tuple[tuple[jax.Array], None]:
        return (self.rng,), None

    @classmethod
    def tree_unflatten(cls, _aux: None, children: tuple[Any]) -> PRNGKey:
        # JAX unflattens with placeholders too, which the constructor would take for seeds.
        key = object.__new__(cls)
        key.rng = children[0]
        return key


def _is_key(value: Any) -> bool:
    """Returns whether `value` is a typed key, or a raw one (whose last axis is its words)."""
    if not hasattr(value, "dtype"):
        return False
    return jnp.issubdtype(value.dtype, jax.dtypes.prng_key) or np.ndim(value) > 0


@functools.lru_cache(maxsize=1_000)
def _hash(name: str) -> int:
    """Returns the first four bytes of the name's sha1, so that a name means the same stream everywhere and always."""
    return int.from_bytes(hashlib.sha1(name.encode()).digest()[:4], "big")
