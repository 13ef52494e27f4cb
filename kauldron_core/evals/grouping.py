"""Several small batches in one call: Python takes longer to hand one over than a small model needs for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from kauldron_core.forward import padding_mask_of

MAX_SIZE = 16
"""Batches in one call at most."""
_MIN_SIZE = 8
_MAX_BYTES = 256 * 2**10
"""A batch that holds more keeps the device busy for so long that the call does not matter."""

Numbered = tuple[int, Any]


def is_small(batch: Any) -> bool:
    """Returns whether a batch is on the host as it comes, and small enough for a group."""
    leaves = jax.tree.leaves(batch)
    return all(isinstance(leaf, np.ndarray) for leaf in leaves) and sum(leaf.nbytes for leaf in leaves) <= _MAX_BYTES


def best_size(num_batches: int | None) -> int:
    """Returns how many batches a call takes, so that the last call is nearly full.

    Args:
      num_batches: How many there are; None is unknown.
    """
    if num_batches is None or num_batches > MAX_SIZE:
        sizes = range(MAX_SIZE, _MIN_SIZE - 1, -1)
        return MAX_SIZE if num_batches is None else min(sizes, key=lambda size: -num_batches % size)
    return max(num_batches, 1)


def grouped(batches: Iterator[Numbered], size_for: Callable[[Any], int | None]) -> Iterator[list[Numbered]]:
    """Yields lists of batches of one shape: of the size that `size_for` says of the first batch, or shorter.

    Where it says None they come one by one.
    """
    group: list[Numbered] = []
    size = None
    for number, batch in batches:
        if size is None:
            size = size_for(batch) or 1
        if group and not _are_alike(batch, group[0][1]):
            yield group
            group = []
        group.append((number, batch))
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group


def stacked(batches: Sequence[Any], size: int) -> Any:
    """Returns `size` batches as one with a first dimension for the batch; the last one is repeated to fill it."""
    filled = [*batches, *[batches[-1]] * (size - len(batches))]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *filled)


def count_examples(stack: Any, count: int) -> int:
    """Returns how many examples there are in the first `count` batches of a stack."""
    mask = padding_mask_of(stack)
    if mask is not None:
        return int(np.count_nonzero(mask[:count]))
    return count * next(leaf.shape[1] for leaf in jax.tree.leaves(stack) if leaf.ndim > 1)


def _are_alike(left: Any, right: Any) -> bool:
    leaves, structure = jax.tree.flatten(left)
    others, other = jax.tree.flatten(right)
    return structure == other and all(
        np.shape(one) == np.shape(two) and getattr(one, "dtype", None) == getattr(two, "dtype", None)
        for one, two in zip(leaves, others, strict=True)
    )
