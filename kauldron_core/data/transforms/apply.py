"""Applies transforms: told apart by the method they have, so those of Grain serve as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kauldron_core.data.order import require_seed
from kauldron_core.errors import ConfigError


class RecordOrigin(NamedTuple):
    """Where an example comes from: all that its random transforms depend on."""

    seed: int | None
    epoch: int
    record: int

    def generator(self, step: int) -> np.random.Generator:
        """Returns the random generator of transform number `step` for this example."""
        key = (require_seed(self.seed, "a random transform") % 2**64, self.record)
        # The lower half of the counter is left to the draws; steps and epochs start 2**128 draws apart.
        return np.random.Generator(np.random.Philox(key=key, counter=(0, 0, step, self.epoch)))


def is_random(transform: Any) -> bool:
    return hasattr(transform, "random_map")


def is_filter(transform: Any) -> bool:
    return hasattr(transform, "filter") and not hasattr(transform, "map")


def is_packing(transform: Any) -> bool:
    return hasattr(transform, "pack") and not hasattr(transform, "map")


def check_transforms(transforms: Sequence[Any], *, of_batches: bool = False) -> None:
    """Raises ConfigError if one of `transforms` is none, or cannot stand where it does.

    Args:
      transforms: What a user put into a pipeline.
      of_batches: Whether they are applied to whole batches.
    """
    is_random_before, is_packed_before = False, False
    for transform in transforms:
        decides = is_filter(transform) or is_packing(transform)
        if of_batches and (is_random(transform) or decides):
            raise ConfigError(f"{transform!r} works on single examples: put it into transforms, not batch_transforms.")
        if decides and is_random_before:
            raise ConfigError(
                f"{transform!r} stands after a random transform, so that what it makes of the data would differ "
                "between epochs. Put it first."
            )
        if decides and is_packed_before:
            raise ConfigError(
                f"{transform!r} stands after another that packs, and would see packed rows. Put it first."
            )
        if not (is_random(transform) or decides or hasattr(transform, "map") or callable(transform)):
            raise ConfigError(
                f"{transform!r} is no transform: it has no map, random_map or filter method and cannot be called."
            )
        is_random_before = is_random_before or is_random(transform)
        is_packed_before = is_packed_before or is_packing(transform)


def transform_record(transforms: Sequence[Any], element: Any, origin: RecordOrigin, *, skip: int = 0) -> Any:
    """Returns one example after all `transforms` but filters, which were applied when the data was opened.

    Args:
      transforms: The steps.
      element: The example.
      origin: Where it comes from.
      skip: How many of the first steps it has behind it.
    """
    for step, transform in enumerate(transforms[skip:], start=skip):
        try:
            if is_random(transform):
                element = transform.random_map(element, origin.generator(step))
            elif not is_filter(transform):
                element = _mapped(transform, element)
        except Exception as error:
            error.add_note(f"in transform {step}, {transform!r}, of record {origin.record}")
            raise
    return element


def is_kept(transforms: Sequence[Any], element: Any) -> bool:
    """Returns whether all filters among `transforms` (none of them random) keep `element`."""
    for transform in transforms:
        if not is_filter(transform):
            element = _mapped(transform, element)
        elif not transform.filter(element):
            return False
    return True


def transform_columns(transforms: Sequence[Any], batch: Any) -> Any:
    """Transformed batch, equal to `transform_record` of each example; all transforms have `map_batch`."""
    for transform in transforms:
        batch = transform.map_batch(batch)
    return batch


def transform_batch(transforms: Sequence[Any], batch: Any) -> Any:
    """Returns `batch` after `transforms`, each of which takes it as one thing."""
    for transform in transforms:
        batch = _mapped(transform, batch)
    return batch


def _mapped(transform: Any, element: Any) -> Any:
    return transform.map(element) if hasattr(transform, "map") else transform(element)
