"""Applies transforms: told apart by the method they have, so those of Grain serve as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kauldron_core.data import trees
from kauldron_core.data.order import require_seed
from kauldron_core.errors import ConfigError


class Origin(NamedTuple):
    """Where an example comes from: all that its random transforms depend on."""

    seed: int | None
    epoch: int
    record: int

    def generator(self, step: int) -> np.random.Generator:
        """Returns the random generator of transform number `step` for this example."""
        key = (require_seed(self.seed, "a random transform") % 2**64, self.record)
        # Distinct counters of one key never overlap within 2**64 draws.
        return np.random.Generator(np.random.Philox(key=key, counter=(0, 0, step, self.epoch)))


def apply(transform: Any, element: Any, origin: Origin, step: int) -> Any:
    """Returns `element` after `transform`, which is number `step` of its pipeline."""
    if hasattr(transform, "random_map"):
        return transform.random_map(element, origin.generator(step))
    if hasattr(transform, "map"):
        return transform.map(element)
    if callable(transform):
        return transform(element)
    raise ConfigError(f"{transform!r} is no transform: it has no map or random_map method and cannot be called.")


def transform_record(transforms: Sequence[Any], element: Any, origin: Origin) -> Any:
    """Returns one example after all `transforms`."""
    for step, transform in enumerate(transforms):
        element = apply(transform, element, origin, step)
    return element


def transform_batch(transforms: Sequence[Any], batch: Any, origins: Sequence[Origin]) -> Any:
    """Returns a batch whose examples went through `transforms` one by one.

    Transforms that say so (`is_batchable`) are applied to the whole batch, with the same outcome.
    """
    if all(getattr(transform, "is_batchable", False) for transform in transforms):
        return apply_to_batch(transforms, batch)
    records = trees.unstack(batch)
    return trees.stack(
        [transform_record(transforms, record, origin) for record, origin in zip(records, origins, strict=True)]
    )


def apply_to_batch(transforms: Sequence[Any], batch: Any) -> Any:
    """Returns `batch` after `transforms`, each of which takes the whole of it."""
    for transform in transforms:
        if hasattr(transform, "random_map"):
            raise ConfigError(f"{transform!r} is random and works on single examples: put it into transforms.")
        batch = transform.map(batch) if hasattr(transform, "map") else transform(batch)
    return batch
