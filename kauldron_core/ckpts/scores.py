"""The metric by which a checkpoint is best: told by the trainer, or found in the records of stand-alone evaluators."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from etils import epath

from kauldron_core import rundir
from kauldron_core.ckpts import layout
from kauldron_core.errors import ConfigError, unknown_name

TRAINING = "train"
METRICS = "metrics"
"""Where the metadata of a checkpoint keeps what had been measured at its step when it was saved."""


class Measured:
    """What was measured at the newest step so far; a save takes it along."""

    def __init__(self):
        self._step = -1
        self._values: dict[str, float] = {}

    def add(self, step: int, name: str, values: Mapping[str, float]) -> None:
        """Takes metrics of an evaluator, or of training; earlier steps than the newest are past being saved."""
        if step > self._step:
            self._step, self._values = step, {}
        if step == self._step:
            self._values |= {f"{name}/{key}": float(value) for key, value in values.items()}

    def at(self, step: int) -> dict[str, float]:
        """Metrics measured at `step`."""
        return dict(self._values) if step == self._step else {}


class CheckpointScores:
    """The values of one metric by checkpoint. Values that were found once are not looked up again."""

    def __init__(self, metric: str, *, directory: epath.Path):
        self.metric = metric
        self.evaluator, _, self._key = metric.partition("/")
        self._directory = directory
        self._found: dict[int, float] = {}

    def check(self, values: Mapping[str, float]) -> None:
        """Looks whether an evaluation by this metric's evaluator has it.

        A metric that no evaluation has made yet is waited for; one that a whole evaluation did not make is a mistake.

        Raises:
          ConfigError: If it does not.
        """
        if self._key in values:
            return
        kind = self._key.partition("/")[0]
        if self.evaluator == TRAINING and not any(key.startswith(f"{kind}/") for key in values):
            return  # Training logs its kinds of values at different steps.
        available = [f"{self.evaluator}/{key}" for key in values]
        raise ConfigError(unknown_name("metric", self.metric, available, at="checkpointer.best_metric"))

    def of(self, steps: Iterable[int]) -> dict[int, float]:
        """Returns the values that are known by now.

        Raises:
          ConfigError: If a stand-alone evaluation did not make the metric.
        """
        for step in steps:
            if step not in self._found:
                value = self._look_up(step)
                if value is not None:
                    self._found[step] = value
        return {step: self._found[step] for step in steps if step in self._found}

    def _look_up(self, step: int) -> float | None:
        metrics = layout.read_metadata(layout.step_path(self._directory, step)).get(METRICS) or {}
        if self.metric in metrics:
            return float(metrics[self.metric])
        if self.evaluator == TRAINING:
            return None
        record = rundir.read_eval_result(os.fspath(self._directory.parent), self.evaluator, step)
        if record is None or record.get("status") != "done":
            return None
        values = record.get("values") or {}
        self.check(values)
        return float(values[self._key]) if self._key in values else None
