"""Merges what batches gave, behind the device: it works on a batch while the host merges earlier ones."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from kauldron_core.errors import ConfigError
from kauldron_core.evals.packing import Packed, Stack, gathered, merged, merged_rows, split
from kauldron_core.evals.per_example import PerExample
from kauldron_core.evals.program import Parts
from kauldron_core.evals.results import Collected
from kauldron_core.forward import AuxiliariesState, padding_mask_of

_AT_ONCE = 32
"""Batches whose states go to the host together."""
_MAX_BEHIND = 64
_MAX_BEHIND_BYTES = 256 * 2**20
"""How far the device may be behind, in batches and in what they hold: inputs stay until a batch is done."""


class Collector:
    """The states of the batches so far, and rows of their examples if they are kept."""

    def __init__(self, per_example: PerExample | None = None):
        self._per_example = per_example
        self._total, self._num_examples = AuxiliariesState(), 0
        self._pending: list[Packed | Stack] = []
        self._examples: list[dict[str, Any]] | None = None if per_example is None else []
        self._kept: tuple[Any, ...] | None = None
        self._is_empty = True
        self._max_behind = 2
        self._behind = 0
        self._num_pending = 0

    def add(self, states: Packed | Stack, *, without: Parts | None = None) -> None:
        """Takes the states of a batch, or of several.

        Args:
          states: The states. They need not be computed yet.
          without: Losses and metrics to leave out.
        """
        self._is_empty = False
        is_alike = not self._pending or _are_alike(states, self._pending[-1])
        if without or not is_alike:
            self._flush(None)
        elif self._num_pending >= _AT_ONCE + self._max_behind:
            self._flush(_AT_ONCE)
        if without:
            left = merged([states]).without(losses=without.losses, metrics=without.metrics)
            self._total = self._total.merge(left)
            return
        self._pending.append(states)
        self._num_pending += _count(states)
        self._behind += 1
        most = max(self._max_behind // _count(states), 2)
        if self._behind > most:
            # Half of them at once: waking up for each batch costs more than a small model needs for one.
            self._behind = most // 2
            _packed(self._pending[-1 - self._behind]).small.block_until_ready()

    def count(self, num_examples: int, batch: Any) -> None:
        """Takes the number of examples in a batch."""
        if not self._num_examples:
            num_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(batch))
            self._max_behind = max(2, min(_MAX_BEHIND, _MAX_BEHIND_BYTES // max(num_bytes, 1)))
        self._num_examples += num_examples

    def keep(self, outputs: dict[str, Any], batch: Any, places: np.ndarray) -> None:
        """Takes what is kept of each row of a batch, whose rows stand at `places` in the data."""
        kept, self._kept = self._kept, (outputs, batch, places)
        if kept is not None:
            self._add_rows(*kept)

    def finish(self, *, at: str) -> Collected[AuxiliariesState]:
        """Returns everything together.

        Raises:
          ConfigError: If there was no batch.
        """
        if self._is_empty:
            raise ConfigError(f"{at}: there is no data to evaluate on.")
        self._flush(None)
        if self._kept is not None:
            self._add_rows(*self._kept)
        return Collected(self._total, self._num_examples, self._examples)

    def _flush(self, count: int | None) -> None:
        """Merges the first `count` batches that wait, or all, always as many at a time: sums have one order."""
        taken, number = 0, 0
        while taken < len(self._pending) and (count is None or number < count):
            number += _count(self._pending[taken])
            taken += 1
        now, self._pending = self._pending[:taken], self._pending[taken:]
        self._behind = min(self._behind, len(self._pending))
        self._num_pending -= number
        if not now:
            return
        left = gathered(now)
        while left.count and (count is None or left.count >= count):
            part, left = split(left, min(left.count, _AT_ONCE))
            self._total = self._total.merge(merged_rows(part))
        if left.count:
            self._pending.insert(0, left)
            self._num_pending += left.count

    def _add_rows(self, outputs: dict[str, Any], batch: Any, places: np.ndarray) -> None:
        if self._per_example is not None and self._examples is not None:
            mask = padding_mask_of(batch)
            rows = self._per_example.rows(jax.device_get(outputs), batch, places=places, mask=mask)
            self._examples.extend(rows)


def _packed(states: Packed | Stack) -> Packed:
    return states.packed if isinstance(states, Stack) else states


def _count(states: Packed | Stack) -> int:
    return states.count if isinstance(states, Stack) else 1


def _are_alike(one: Packed | Stack, other: Packed | Stack) -> bool:
    left, right = _packed(one), _packed(other)
    if left.specs is right.specs and left.structure is right.structure and type(one) is type(other):
        return True
    shapes = ([leaf.shape[isinstance(of, Stack) :] for leaf in _packed(of).large] for of in (one, other))
    return left.specs == right.specs and left.structure == right.structure and next(shapes) == next(shapes)
