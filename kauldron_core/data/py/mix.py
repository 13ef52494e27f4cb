"""`Mix`: several data sets in one stream of examples."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import jax
import numpy as np

from kauldron_core.data import trees
from kauldron_core.data.mixing import Concatenated, Pattern, Weighted, period_counts
from kauldron_core.data.order import InOrder, Order, mixed_seed, require_seed, shuffled
from kauldron_core.data.prefetching import PrefetchingPipeline
from kauldron_core.data.random_access import Examples, RandomAccessPipeline
from kauldron_core.data.schedule import split_epochs
from kauldron_core.errors import ConfigError, unknown_name

_STOPS = ("first", "all", "once")


@dataclasses.dataclass(frozen=True)
class Mix(PrefetchingPipeline):
    """Pipeline over several data sets.

    Of each data set its source, transforms, shuffling and seed count; batches, epochs, hosts and workers are settings
    of the mixture. One without a seed gets its own, made of the mixture's and its name. Transforms of the mixture are
    applied after those of the data set.

    Attributes:
      datasets: Pipelines by name, or a list of them.
      weights: Shares of the data sets, up to a factor, in the form of `datasets`; None for equal ones.
      stop: When an epoch ends: when the 'first' data set is used up, when 'all' have been (smaller ones begin again
        meanwhile), or when every example of every data set has come 'once' (one data set after the other, whatever the
        weights; with `shuffle`, all mixed up).
    """

    datasets: Mapping[str, RandomAccessPipeline] | Sequence[RandomAccessPipeline]
    weights: Mapping[str, float] | Sequence[float] | None = None
    stop: Literal["first", "all", "once"] = "first"

    def __post_init__(self):
        super().__post_init__()
        if self.stop not in _STOPS:
            raise ConfigError(unknown_name("stop rule", str(self.stop), _STOPS, at=str(self)))
        if not self.datasets:
            raise ConfigError(f"{self} has no datasets.")
        for name, dataset in self._named().items():
            _check_part(name, dataset)
        self._weights()

    def for_eval(self) -> Self:
        parts = {name: dataset.for_eval() for name, dataset in self._named().items()}
        # A list of weights stays right: the order is the same.
        weights = None if self.weights is None else dict(zip(parts, self._weights(), strict=True))
        return dataclasses.replace(super().for_eval(), datasets=parts, weights=weights, stop="once")

    def cache(self) -> Self:
        """Returns the same mixture of data sets whose examples are read only once."""
        return dataclasses.replace(self, datasets={name: part.cache() for name, part in self._named().items()})

    def examples(self) -> Examples:
        return self._mixed_examples

    @functools.cached_property
    def _mixed_examples(self) -> _MixedExamples:
        parts = {name: self._part(name, dataset).examples() for name, dataset in self._named().items()}
        sizes = [part.num_examples for part in parts.values()]
        for name, size in zip(parts, sizes, strict=True):
            if not size:
                raise ConfigError(f"{self}: the data set {name!r} is empty.")
        pattern = self._pattern(sizes)
        seed = require_seed(self.seed, str(self)) if self.shuffle else 0
        return _MixedExamples(parts, pattern, shuffled(pattern.length, seed) if self.shuffle else InOrder())

    def _pattern(self, sizes: list[int]) -> Pattern:
        if self.stop == "once":
            return Concatenated(sizes)
        return Weighted(sizes, self._weights(), ends_with_first=self.stop == "first")

    def _part(self, name: str, dataset: RandomAccessPipeline) -> RandomAccessPipeline:
        """Returns a data set with what it takes over from the mixture."""
        seed = dataset.seed
        if seed is None and self.seed is not None:
            seed = mixed_seed(self.seed, name)
        return dataclasses.replace(dataset, seed=seed, transforms=(*dataset.record_transforms, *self.record_transforms))

    def _named(self) -> dict[str, RandomAccessPipeline]:
        if isinstance(self.datasets, Mapping):
            return dict(self.datasets)
        return {str(number): dataset for number, dataset in enumerate(self.datasets)}

    def _weights(self) -> list[float]:
        """Returns the weights in the order of the data sets.

        Raises:
          ConfigError: If they are not one positive number for each.
        """
        names = list(self._named())
        if self.weights is None:
            return [1] * len(names)
        if isinstance(self.weights, Mapping):
            if self.weights.keys() != set(names):
                raise ConfigError(f"{self}: weights are for {sorted(self.weights)}, the data sets are {sorted(names)}.")
            weights = [self.weights[name] for name in names]
        else:
            weights = list(self.weights)
            if len(weights) != len(names):
                raise ConfigError(f"{self}: {len(weights)} weights for {len(names)} data sets.")
        period_counts(weights)
        return weights

    def _order_state(self, num_examples: int) -> dict[str, Any]:
        parts = {}
        for name, dataset in self._named().items():
            part = self._part(name, dataset)
            parts[name] = part._order_state(part.examples().num_examples)
        return {**super()._order_state(num_examples), "stop": self.stop, "weights": self._weights(), "parts": parts}


class _MixedExamples:
    """The stream of a mixture."""

    def __init__(self, parts: dict[str, Examples], pattern: Pattern, order: Order):
        self._parts = list(parts.values())
        self._pattern = pattern
        self._order = order
        self.num_examples = pattern.length
        _check_alike(parts)

    def gather(self, positions: np.ndarray) -> Any:
        pieces = split_epochs(positions, self.num_examples)
        ordered = [epoch * self.num_examples + self._order.records(epoch, offsets) for epoch, offsets in pieces]
        places = self._pattern.places(np.concatenate(ordered))
        batch, structure = None, None
        for part in np.unique(places.part):
            rows = np.flatnonzero(places.part == part)
            # Parts take rising positions; shuffled ones are not.
            rows = rows[np.argsort(places.position[rows], kind="stable")]
            leaves, structure = jax.tree.flatten(self._parts[part].gather(places.position[rows]))
            if batch is None:
                batch = [np.empty((len(positions), *leaf.shape[1:]), leaf.dtype) for leaf in leaves]
            for mixed, leaf in zip(batch, leaves, strict=True):
                mixed[rows] = leaf
        return jax.tree.unflatten(structure, batch or [])


def _check_part(name: str, dataset: Any) -> None:
    if not isinstance(dataset, RandomAccessPipeline):
        raise ConfigError(f"Mix: {name!r} is no pipeline whose examples can be read in any order, but {dataset!r}.")
    for setting in ("max_batches", "batch_transforms", "sharding"):
        if getattr(dataset, setting):
            raise ConfigError(f"Mix: {setting} of the data set {name!r} has no effect. Set it on the mixture.")


def _check_alike(parts: dict[str, Examples]) -> None:
    """Raises ConfigError unless the examples of all parts go into one array."""
    specs = {
        name: {path: (leaf.dtype.name, leaf.shape[1:]) for path, leaf in trees.leaf_paths(part.gather(np.arange(1)))}
        for name, part in parts.items()
    }
    (first_name, first), *others = specs.items()
    for name, spec in others:
        for path in sorted(spec.keys() | first.keys()):
            if spec.get(path) != first.get(path):
                raise ConfigError(
                    f"Mix: {path} is {_describe(first.get(path))} in {first_name!r} and {_describe(spec.get(path))} in "
                    f"{name!r}. Make them alike with Elements, AddConstants, Cast or Resize."
                )


def _describe(leaf: tuple[str, tuple[int, ...]] | None) -> str:
    return "missing" if leaf is None else f"{leaf[0]}{list(leaf[1])}"
