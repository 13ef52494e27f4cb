"""`Profiler`: traces of some steps, for TensorBoard and Perfetto."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from typing import Any

import jax

from kauldron_core import rundir
from kauldron_core.errors import ConfigError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Profiler:
    """Writes what host and devices do in a window of steps to `workdir/profile`.

        cfg.profiler = kd.train.Profiler(first_step=100, num_steps=5)

    Look at it with `tensorboard --logdir WORKDIR/profile`, or open its `perfetto_trace.json.gz` at ui.perfetto.dev.

    Attributes:
      first_step: The first step of the window; late enough for nothing to compile in it.
      num_steps: Length of the window.
      every: Steps from the start of one window to the next; None has one window.
      workdir: The folder of the experiment; the trainer's where unset.
    """

    first_step: int = 20
    num_steps: int = 5
    every: int | None = None
    workdir: str | os.PathLike[str] | None = None

    def __post_init__(self):
        if self.workdir is not None:
            rundir.refuse_address(self.workdir, at="profiler.workdir")
        for name, least in (("first_step", 1), ("num_steps", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"profiler.{name}: must be at least {least}, not {getattr(self, name)}.")
        if self.every is not None and self.every < self.num_steps:
            raise ConfigError(f"profiler.every: {self.every} is shorter than a window of {self.num_steps} steps.")

    def is_inside(self, step: int) -> bool:
        """Returns whether `step` belongs to a window."""
        after = step - self.first_step
        return after >= 0 and (after if self.every is None else after % self.every) < self.num_steps

    def open(self) -> Windows:
        """Returns what starts and stops the traces."""
        return Windows(self)


class Windows:
    """The traces of one training."""

    def __init__(self, profiler: Profiler):
        self._profiler = profiler
        self._is_tracing = False

    def before(self, step: int) -> None:
        """Is called before the call that makes `step`."""
        if self._profiler.is_inside(step) and not self._is_tracing and self._profiler.workdir is not None:
            folder = pathlib.Path(self._profiler.workdir) / "profile"
            jax.profiler.start_trace(os.fspath(folder), create_perfetto_trace=True)
            self._is_tracing = True

    def after(self, step: int, state: Any) -> None:
        """Is called after it, with the state it gave."""
        if self._is_tracing and not self._profiler.is_inside(step + 1):
            jax.block_until_ready(state)
            self.close()

    def close(self) -> None:
        """Ends a trace that runs."""
        if self._is_tracing:
            self._is_tracing = False
            jax.profiler.stop_trace()
