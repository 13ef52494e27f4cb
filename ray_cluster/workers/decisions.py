"""When a trial is reported to whoever decides about it: at the steps at which the metric that decides was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Decisions:
    """The steps of one trial at which is decided about it, with what was measured there.

    Args:
      metric: What is decided by; None: whatever is measured.
      at_checkpoints: Whether the state of the step has to be on disk, too, since another trial may take it.
    """

    def __init__(self, metric: str | None, *, at_checkpoints: bool = False):
        self._metric = metric
        self._at_checkpoints = at_checkpoints
        self._measured: dict[int, Mapping[str, float]] = {}
        self._saved: set[int] = set()
        self._due: int | None = None
        self._last = -1

    @property
    def is_due(self) -> bool:
        """Whether there is a step to decide at."""
        return self._due is not None

    def settled(self, step: int, values: Mapping[str, float]) -> None:
        """Takes all that was measured at a step."""
        if self._metric is None or self._metric in values:
            self._measured[step] = values
            self._look_at(step)

    def saved(self, step: int) -> None:
        """Takes that the state of a step is on disk."""
        self._saved.add(step)
        self._look_at(step)

    def take(self) -> dict[str, Any]:
        """Returns the `step` that is due and what was measured there, and waits for the next one; else nothing."""
        if self._due is None:
            return {}
        self._last, self._due = self._due, None
        values = self._measured[self._last]
        self._measured = {step: later for step, later in self._measured.items() if step > self._last}
        self._saved = {step for step in self._saved if step > self._last}
        return {**values, "step": self._last}

    def _look_at(self, step: int) -> None:
        # A trial that begins again at a checkpoint tells once more what was measured there.
        is_there = step in self._measured and (not self._at_checkpoints or step in self._saved)
        if is_there and step > self._last:
            self._due = step
