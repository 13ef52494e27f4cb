"""What `iter_train` tells while it runs."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

Status = Literal["done", "stopped", "pruned", "preempted", "diverged"]


@dataclasses.dataclass(frozen=True)
class Logged:
    """Training metrics of one step.

    Attributes:
      step: Number of updates made, counted after this one (1..N).
      split: `train`.
      values: `losses/total`, `metrics/accuracy`, `schedules/learning_rate`, `perf/steps_per_s`.
    """

    step: int
    split: str
    values: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """One finished evaluation inside training.

    Attributes:
      step: Step of the state that was evaluated (0..N).
      name: Name of the evaluator.
      values: `losses/total`, `metrics/accuracy`.
      num_examples: Examples counted.
      seconds: How long it took.
    """

    step: int
    name: str
    values: dict[str, float]
    num_examples: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class Summarized:
    """Summaries of the batch of one step.

    Attributes:
      step: Number of updates made, counted after this one.
      split: `train`.
      values: Pictures `uint8[n h w 3]`, texts or a histogram, by name.
      files: Names of the files in `workdir/summaries/STEP`, none where there is no workdir.
    """

    step: int
    split: str
    values: dict[str, Any]
    files: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Saved:
    """A checkpoint is on disk, complete."""

    step: int


@dataclasses.dataclass(frozen=True)
class Settled:
    """All that is measured at a step has been measured, and the next step has not begun; on request only.

    Comes after a step of which there is a record. What is measured at the last step comes with `Done`.

    Attributes:
      step: Number of updates made.
      values: What was measured there, by whole names: `train/losses/total`, `test/metrics/accuracy`.
    """

    step: int
    values: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Done:
    """Training ended; the last event.

    Attributes:
      step: Step of the state it ended with.
      status: `done`: all steps were made. `stopped`: it was to end here (`until`), and did all that it does at its
        end. `pruned`: a rule that compares the trials of a pack has ended it. `preempted`: it was asked to stop, and
        saved. `diverged`: a loss or the state was not finite, and nothing was saved since.
      reason: One line for a person; empty when done.
    """

    step: int
    status: Status
    reason: str = ""


Event = Logged | Summarized | Evaluated | Saved | Settled | Done
