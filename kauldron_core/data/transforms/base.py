"""What a transform is: a class with one of three methods, a config entry like everything else.

Any function of an example is a transform too, and so are those of Grain, which have the same methods. A deterministic
transform may add `map_batch`, which gives for stacked examples what `map` gives for each: then data stored in columns
is transformed a batch at a time. One with the attribute `is_selection` only chooses and names entries, whatever they
hold.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kauldron_core.errors import unknown_name

Keys = str | Sequence[str] | Mapping[str, str]


class MapTransform(abc.ABC):
    """A deterministic change of one example."""

    @abc.abstractmethod
    def map(self, element: Any) -> Any:
        """Returns the changed example. The given one, and arrays in it, must stay as they are."""


class RandomMapTransform(abc.ABC):
    """A random change of one example."""

    @abc.abstractmethod
    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        """Returns the changed example.

        Args:
          element: The example, which must stay as it is.
          rng: The generator of this example in this epoch: the same on every host and in every worker process.
        """


@dataclasses.dataclass(frozen=True)
class Filter:
    """Keeps the examples for which `predicate` is true.

    When the data is opened every record is read once to find out which they are, so that `len`, sharding and resuming
    stay exact. Stands before random transforms.
    """

    predicate: Callable[[Any], bool]

    def filter(self, element: Any) -> bool:
        return bool(self.predicate(element))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ElementWise:
    """Base of transforms of single entries of an example.

    Attributes:
      key: The entry to change, several of them, or a mapping from the entry to read to the one to write.
    """

    key: Keys

    def _apply(self, features: Mapping[str, Any], function: Callable[[Any], Any]) -> dict[str, Any]:
        """Returns `features` with `function` applied to the entries that `key` names."""
        changed = {}
        for read, written in self._pairs():
            check_present(read, features, type(self).__name__)
            changed[written] = function(features[read])
        return {**features, **changed}

    def _pairs(self) -> list[tuple[str, str]]:
        if isinstance(self.key, str):
            return [(self.key, self.key)]
        if isinstance(self.key, Mapping):
            return list(self.key.items())
        return [(key, key) for key in self.key]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ElementWiseTransform(ElementWise, MapTransform):
    """Base of deterministic transforms of single entries; a subclass defines `map_element`."""

    def map(self, element: Mapping[str, Any]) -> dict[str, Any]:
        return self._apply(element, self.map_element)

    @abc.abstractmethod
    def map_element(self, value: Any) -> Any:
        """Returns the changed entry."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ElementWiseRandomTransform(ElementWise, RandomMapTransform):
    """Base of random transforms of single entries; a subclass defines `random_map_element`.

    Every entry sees the same random numbers, so that an image and its segmentation are cropped alike.
    """

    def random_map(self, element: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        start = rng.bit_generator.state

        def change(value: Any) -> Any:
            rng.bit_generator.state = start
            return self.random_map_element(value, rng)

        return self._apply(element, change)

    @abc.abstractmethod
    def random_map_element(self, value: Any, rng: np.random.Generator) -> Any:
        """Returns the changed entry."""


def check_present(key: str, features: Mapping[str, Any], owner: str) -> None:
    """Raises KeyError with the closest match if `features` has no entry `key`."""
    if not isinstance(features, Mapping):
        raise TypeError(f"{owner} works on examples that are dictionaries, not {type(features).__name__}.")
    if key not in features:
        raise KeyError(unknown_name("entry", key, features, at=owner))


def check_free(key: str, features: Mapping[str, Any], owner: str) -> None:
    """Raises KeyError if `features` has an entry `key` already."""
    if key in features:
        raise KeyError(f"{owner}: the entry {key!r} exists already. Drop or rename it first.")
