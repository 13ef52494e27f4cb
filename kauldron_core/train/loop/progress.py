"""The progress bar of a training in a terminal."""

from __future__ import annotations

import contextlib
import datetime
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from kauldron_core.escaping import escaped

if TYPE_CHECKING:
    from kauldron_core.train.loop.setup import TqdmInfo

_LEAST_S = 0.1
_FIRST_CALLS = 3
"""Calls that wait for the compiler."""
_KNOWN_AFTER_S = 1.0


class Progress(Protocol):
    """Is told how far a training is."""

    def __call__(self, step: int, loss: float | None) -> None:
        """Shows that `step` updates are made; `loss` is the last known one."""
        ...


def ignored(step: int, loss: float | None) -> None:
    """Shows nothing."""


class TimeLeft:
    """How long a training still takes, judged by its steps so far but for the first, which wait for the compiler.

    Args:
      num_steps: Where it ends.
    """

    def __init__(self, num_steps: int | None):
        self._num_steps = num_steps
        self._num_calls = 0
        self._from: tuple[float, int] | None = None

    def __call__(self, now: float, step: int) -> float | None:
        """Returns the seconds that are left, None while nothing is known.

        Args:
          now: Seconds by any clock.
          step: Updates made.
        """
        self._num_calls += 1
        if self._num_calls == _FIRST_CALLS:
            self._from = now, step
        if self._from is None or self._num_steps is None or now - self._from[0] < _KNOWN_AFTER_S:
            return None
        began, first = self._from
        return (self._num_steps - step) * (now - began) / (step - first) if step > first else None


@contextlib.contextmanager
def bar(info: TqdmInfo, *, num_steps: int | None, header: Callable[[], str]) -> Iterator[Progress]:
    """Shows steps made, steps a second, the time left once it is known, and the loss, while the block runs.

    Args:
      info: What the bar looks like, and whether there is one.
      num_steps: Where it ends.
      header: Returns a line to put above it.
    """
    if not info.is_shown:
        yield ignored
        return
    from rich import console, progress  # 0.1 s, and only for a terminal.

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[speed]}"),
        progress.TextColumn("{task.fields[left]}"),
        progress.TextColumn("{task.fields[loss]}"),
    )
    with progress.Progress(*columns, console=console.Console(stderr=True), transient=False) as shown:
        shown.print(escaped(header()), markup=False)
        task = shown.add_task(info.desc, total=num_steps, speed="", left="", loss="")
        time_left = TimeLeft(num_steps)
        last_time, last_step = time.monotonic(), None

        def update(step: int, loss: float | None) -> None:
            nonlocal last_time, last_step
            now = time.monotonic()
            left_s = time_left(now, step)
            if now - last_time < _LEAST_S and step != num_steps:
                return
            speed = "" if last_step is None else f"{(step - last_step) / max(now - last_time, 1e-9):.0f} steps/s"
            last_time, last_step = now, step
            left = "" if left_s is None else f"{datetime.timedelta(seconds=round(left_s))} left"
            shown.update(task, completed=step, speed=speed, left=left, loss="" if loss is None else f"loss {loss:.4g}")

        yield update
