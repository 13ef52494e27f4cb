"""The progress bar of a training in a terminal."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kauldron_core.train.setup import TqdmInfo

_LEAST_S = 0.1


class Progress(Protocol):
    """Is told how far a training is."""

    def __call__(self, step: int, loss: float | None) -> None:
        """Shows that `step` updates are made; `loss` is the last known one."""
        ...


def ignored(step: int, loss: float | None) -> None:
    """Shows nothing."""


@contextlib.contextmanager
def bar(info: TqdmInfo, *, num_steps: int | None, header: Callable[[], str]) -> Iterator[Progress]:
    """Shows steps made, steps a second, the time left and the loss, while the block runs.

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
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.fields[loss]}"),
    )
    with progress.Progress(*columns, console=console.Console(stderr=True), transient=False) as shown:
        shown.print(header())
        task = shown.add_task(info.desc, total=num_steps, speed="", loss="")
        last_time, last_step = time.monotonic(), 0

        def update(step: int, loss: float | None) -> None:
            nonlocal last_time, last_step
            now = time.monotonic()
            if now - last_time < _LEAST_S and step != num_steps:
                return
            speed = f"{(step - last_step) / max(now - last_time, 1e-9):.0f} steps/s"
            last_time, last_step = now, step
            shown.update(task, completed=step, speed=speed, loss="" if loss is None else f"loss {loss:.4g}")

        yield update
