"""Merges what batches gave, behind the device: it works on a batch while the host merges earlier ones."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from kauldron_core.errors import ConfigError
from kauldron_core.evals.packing import Packed, merged
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
        self._pending: list[Packed] = []
        self._examples: list[dict[str, Any]] | None = None if per_example is None else []
        self._kept: tuple[Any, ...] | None = None
        self._is_empty = True
        self._max_behind = 2
        self._behind = 0

    def add(self, states: Packed, *, without: Parts | None = None) -> None:
        """Takes the states of a batch.

        Args:
          states: The states. They need not be computed yet.
          without: Losses and metrics to leave out.
        """
        self._is_empty = False
        is_alike = not self._pending or _are_alike(states, self._pending[-1])
        if without or not is_alike:
            self._flush(None)
        elif len(self._pending) >= _AT_ONCE + self._max_behind:
            self._flush(_AT_ONCE)
        if without:
            left = merged([states]).without(losses=without.losses, metrics=without.metrics)
            self._total = self._total.merge(left)
            return
        self._pending.append(states)
        self._behind += 1
        if self._behind > self._max_behind:
            # Half of them at once: waking up for each batch costs more than a small model needs for one.
            self._behind = self._max_behind // 2
            self._pending[-1 - self._behind].small.block_until_ready()

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
        now = self._pending[:count]
        self._pending = self._pending[len(now) :]
        self._behind = min(self._behind, len(self._pending))
        if now:
            self._total = self._total.merge(merged(now))

    def _add_rows(self, outputs: dict[str, Any], batch: Any, places: np.ndarray) -> None:
        if self._per_example is not None and self._examples is not None:
            mask = padding_mask_of(batch)
            rows = self._per_example.rows(jax.device_get(outputs), batch, places=places, mask=mask)
            self._examples.extend(rows)


def _are_alike(left: Packed, right: Packed) -> bool:
    if left.specs is right.specs and left.structure is right.structure:
        return True
    shapes = ([leaf.shape for leaf in part.large] for part in (left, right))
    return left.specs == right.specs and left.structure == right.structure and next(shapes) == next(shapes)
