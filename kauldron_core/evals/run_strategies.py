"""When an evaluator runs: at steps inside training, or on checkpoints outside of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal, get_args

from kauldron_core.errors import ConfigError, unknown_name

WhenBehind = Literal["skip_oldest", "block"]


class RunStrategy:
    """Says at which steps an evaluation is due."""

    is_standalone: ClassVar[bool] = False

    def should_run(self, step: int, is_last: bool) -> bool:
        """Returns whether to evaluate inside training after `step` updates.

        Args:
          step: Updates made, 0 before the first one.
          is_last: Whether training ends here.
        """
        return False

    def num_runs_before(self, step: int) -> int:
        """Returns how often it has run inside training before `step`."""
        return sum(self.should_run(earlier, False) for earlier in range(step))

    def due_steps(self, checkpoint_steps: Iterable[int], is_final: bool) -> list[int]:
        """Returns the checkpoints to evaluate outside of training, oldest first.

        Args:
          checkpoint_steps: Steps of the checkpoints so far. Those that were removed since may be among them.
          is_final: Whether training has ended, so that no checkpoint will follow.
        """
        return []


@dataclasses.dataclass(frozen=True)
class EveryNSteps(RunStrategy):
    """Inside training: at the multiples of `n`, step 0 among them, and at the last step.

    Attributes:
      n: Interval in steps.
      skip_first: Leave out step 0, the untrained model.
    """

    n: int
    skip_first: bool = False

    def __post_init__(self):
        if self.n < 1:
            raise ConfigError(f"EveryNSteps: n must be at least 1, not {self.n}.")

    def should_run(self, step: int, is_last: bool) -> bool:
        if step == 0:
            return not self.skip_first
        return is_last or step % self.n == 0

    def num_runs_before(self, step: int) -> int:
        # Multiples of n below the step, 0 among them.
        return -(-step // self.n) - (1 if self.skip_first and step > 0 else 0)


@dataclasses.dataclass(frozen=True)
class Once(RunStrategy):
    """Inside training: at step `n` only."""

    n: int

    def should_run(self, step: int, is_last: bool) -> bool:
        return step == self.n


@dataclasses.dataclass(frozen=True)
class Final(RunStrategy):
    """Inside training: at the last step only."""

    def should_run(self, step: int, is_last: bool) -> bool:
        return is_last


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Standalone(RunStrategy):
    is_standalone: ClassVar[bool] = True

    job_group: str = "eval"
    resources: Mapping[str, Any] | None = None
    max_pending: int | None = None
    when_behind: WhenBehind = "skip_oldest"

    def __post_init__(self):
        if self.when_behind not in get_args(WhenBehind):
            name = type(self).__name__
            raise ConfigError(unknown_name("choice", self.when_behind, get_args(WhenBehind), at=f"{name}.when_behind"))
        if self.max_pending is not None and self.max_pending < 1:
            raise ConfigError(f"{type(self).__name__}: max_pending must be at least 1, not {self.max_pending}.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StandaloneEveryCheckpoint(_Standalone):
    """Outside of training: each checkpoint, as it lands or later, and always the last one.

    Attributes:
      job_group: Evaluators of one group share their processes.
      resources: What such a process owns; None lets the driver choose.
      max_pending: How many checkpoints may wait while others are removed.
      when_behind: What happens beyond that: `skip_oldest` leaves the oldest out, on record; `block` leaves none out:
        removal waits, as long as it takes, and training does not.
      min_interval_s: Leave out checkpoints that were saved less than this after the last one that was evaluated.
    """

    min_interval_s: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        if self.min_interval_s < 0:
            raise ConfigError(
                f"StandaloneEveryCheckpoint: min_interval_s must be at least 0, not {self.min_interval_s}."
            )

    def due_steps(self, checkpoint_steps: Iterable[int], is_final: bool) -> list[int]:
        return sorted(checkpoint_steps)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EveryNCheckpoints(_Standalone):
    """Outside of training: every n-th checkpoint, and always the last one.

    Attributes:
      n: Interval in checkpoints, those counted that were removed since.
      job_group: Evaluators of one group share their processes.
      resources: What such a process owns; None lets the driver choose.
      max_pending: How many checkpoints may wait while others are removed.
      when_behind: What happens beyond that: `skip_oldest` leaves the oldest out, on record; `block` leaves none out:
        removal waits, as long as it takes, and training does not.
    """

    n: int

    # Whoever asks for `due_steps` counts removed checkpoints too.
    counts_removed: ClassVar[bool] = True

    def __post_init__(self):
        super().__post_init__()
        if self.n < 1:
            raise ConfigError(f"EveryNCheckpoints: n must be at least 1, not {self.n}.")

    def due_steps(self, checkpoint_steps: Iterable[int], is_final: bool) -> list[int]:
        steps = sorted(checkpoint_steps)
        return sorted({*steps[self.n - 1 :: self.n], *(steps[-1:] if is_final else [])})


@dataclasses.dataclass(frozen=True, kw_only=True)
class StandaloneLastCheckpoint(_Standalone):
    """Outside of training: the last checkpoint, once training has ended.

    Attributes:
      job_group: Evaluators of one group share their processes.
      resources: What such a process owns; None lets the driver choose.
      max_pending: How many checkpoints may wait while others are removed.
      when_behind: What happens beyond that: `skip_oldest` leaves the oldest out, on record; `block` leaves none out:
        removal waits, as long as it takes, and training does not.
    """

    def due_steps(self, checkpoint_steps: Iterable[int], is_final: bool) -> list[int]:
        return sorted(checkpoint_steps)[-1:] if is_final else []
