"""`Blueprint`: what a config says of a compiled function, its numbers apart from its structure.

Two experiments that differ only in numbers (a learning rate, a loss weight, the seed) have the same structure. A
function compiled for one serves the other, if the numbers are its arguments.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, Self

import jax
import numpy as np

from kauldron_core import konfig
from kauldron_core.konfig.resolving.build import named_objects

Number = int | float

_SEED = "seed"


@dataclasses.dataclass(frozen=True, eq=False)
class Blueprint:
    """A part of a config, read once: later changes of the config do not reach it.

    Attributes:
      cfg: The fields, references replaced by their values.
      numbers: Values of the leaves that may become arguments, by path.
    """

    cfg: konfig.ConfigDict
    numbers: Mapping[str, Number]

    @classmethod
    def of(cls, cfg: Any, fields: Iterable[str], *, numbers_in: Sequence[str], others: Collection[str] = ()) -> Self:
        """Returns the blueprint of some fields of an experiment.

        Args:
          cfg: The config of the whole experiment.
          fields: The fields that the function reads; those that the config does not have are left out.
          numbers_in: The fields whose floats may become arguments. Seeds always may.
          others: Paths of further numbers that may.
        """
        part = konfig.ConfigDict({field: cfg[field] for field in fields if field in cfg})
        part = part.copy_and_resolve_references()
        leaves = konfig.flatten(part).items()
        chosen = {path: value for path, value in leaves if path in others or _may_vary(path, value, numbers_in)}
        return cls(part, chosen)

    def build(self, numbers: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """Returns the objects that the fields describe, by field.

        Args:
          numbers: Values to use instead of those of the config, by path. They may be tracers.
        """
        return konfig.resolve(self.cfg, overlay=numbers or {})

    def key(self, arguments: Iterable[str]) -> Hashable:
        """Returns what is equal for blueprints with the same structure.

        Args:
          arguments: Paths of the numbers that are arguments; the others belong to the structure.

        Raises:
          ConfigError: If the config holds what has no name.
        """
        arguments = tuple(arguments)
        # A class of a notebook cell keeps its name when the cell runs again, so names alone would not do.
        return konfig.fingerprint(self.cfg, without=arguments), arguments, tuple(map(id, self._targets))

    @functools.cached_property
    def _targets(self) -> tuple[Any, ...]:
        return named_objects(self.cfg)


def as_arguments(numbers: Mapping[str, Number]) -> dict[str, jax.Array]:
    """Returns numbers as scalars of a compiled function: weak floats, which leave the type of a state as it is."""
    return {path: jax.device_put(_wrapped(n) if isinstance(n, int) else n) for path, n in numbers.items()}


def _wrapped(seed: int) -> Any:
    """Returns the seed as `jax.random.PRNGKey` takes it: where integers have 32 bits, the lower half."""
    return np.int64(seed).astype(jax.dtypes.canonicalize_dtype(np.int64))


def _may_vary(path: str, value: Any, numbers_in: Sequence[str]) -> bool:
    if path == _SEED or path == f"rng_streams.{_SEED}":
        return type(value) is int
    return type(value) is float and any(path.startswith((f"{field}.", f"{field}[")) for field in numbers_in)
