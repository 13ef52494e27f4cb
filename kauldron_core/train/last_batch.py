"""Whether the last batch of the data, which may be shorter, fits into the step."""

from __future__ import annotations

from typing import Any

import jax

from kauldron_core.data import Pipeline
from kauldron_core.errors import ConfigError
from kauldron_core.sharding import IndivisibleError, ShardingStrategy


def check_last_batch(
    ds: Any, *, num_steps: int | None, num_batches: int | None, microbatches: int, sharding: ShardingStrategy
) -> None:
    """Refuses data whose last batch is shorter where it would not fit into the step.

    Args:
      ds: The training data.
      num_steps: How many steps are asked for, None if as many as there are batches.
      num_batches: How many batches the data has, None if it does not say.
      microbatches: In how many parts a batch is worked off.
      sharding: What is split over the devices.

    Raises:
      ConfigError: If training gets there, and the batch can't be split into microbatches or over the devices.
    """
    is_reached = num_batches is None or num_steps is None or num_steps >= num_batches
    if not isinstance(ds, Pipeline) or not is_reached:
        return
    size = ds.last_batch_size
    if size == ds.batch_size or (fault := _misfit(ds, size, microbatches, sharding)) is None:
        return
    what = "may be shorter than the others" if size is None else f"has {size} examples and others {ds.batch_size}"
    raise ConfigError(
        f"train_ds.batch_drop_remainder: {ds.batch_drop_remainder!r}, so the last batch {what}, and {fault}. Use "
        "'pad', which fills it up and masks what it adds, or True, which leaves it out."
    )


def _misfit(ds: Pipeline, size: int | None, microbatches: int, sharding: ShardingStrategy) -> str | None:
    """Returns why a batch of `size` examples does not fit, None if it does; the size None is any."""
    if microbatches > 1 and (size is None or size % microbatches):
        return f"it has to divide by microbatches={microbatches}"
    if sharding.is_trivial:
        return None
    spec = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((size or 1, *leaf.shape[1:]), leaf.dtype), ds.element_spec)
    try:
        sharding.batch_shardings(spec)
    except IndivisibleError as error:
        return f"it does not divide over the devices ({error})"
    return None
