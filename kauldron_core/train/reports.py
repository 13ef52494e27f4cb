"""Reports of steps, fetched from the device when they are ready and not before."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import jax

from kauldron_core.forward import Health
from kauldron_core.train.events import Logged
from kauldron_core.train.program import OnNonfinite, StepReport


class Diverged(Exception):
    """The state can't be used any more; the text says since when."""


class LateReports:
    """Holds the report of the last logged step until the device has computed it.

    Waiting for it at once would let the device run dry. It is fetched between two later steps, once it is there, and
    at the latest when the next one comes.

    Args:
      losses: Names of the losses, in the order of `Health.first_bad_loss`.
      on_nonfinite: Whether a non-finite loss ends the run.
    """

    def __init__(self, losses: Sequence[str], *, on_nonfinite: OnNonfinite):
        self._losses = losses
        self._on_nonfinite = on_nonfinite
        self._held: tuple[int, StepReport] | None = None
        self._last_step: int | None = None
        self._last_time = 0.0

    def put(self, step: int, report: StepReport) -> None:
        """Takes the report of `step`; there may be no other one."""
        self._held = (step, report)

    def is_ready(self) -> bool:
        """Returns whether there is a report that can be had without waiting."""
        # One program computes all of it, so one array speaks for all.
        return self._held is not None and self._held[1].health.is_ready()  # pyright: ignore[reportAttributeAccessIssue]

    def exclude(self, seconds: float) -> None:
        """Says that training stood still for so long."""
        self._last_time += seconds

    def flush(self) -> Iterator[Logged]:
        """Yields the report that is held, if any; waits for it.

        Raises:
          Diverged: If a loss was not finite and that ends the run.
        """
        if self._held is None:
            return
        (step, report), self._held = self._held, None
        report = jax.device_get(report)
        health = Health.of(report.health)
        values = report.aux.to_host().scalars()
        values |= {f"schedules/{name}": float(value) for name, value in report.schedules.items()}
        if self._on_nonfinite == "skip":
            values["health/skipped_steps"] = float(health.num_bad_steps)
        yield Logged(step=step, split="train", values=values | self._speed(step))
        if self._on_nonfinite == "stop" and health.first_bad_step > 0:
            raise Diverged(self._describe(health))

    def _speed(self, step: int) -> dict[str, float]:
        now = time.perf_counter()
        before, self._last_step = self._last_step, step
        seconds, self._last_time = now - self._last_time, now
        # The first report waited for the compiler; it says nothing about speed.
        return {} if before is None else {"perf/steps_per_s": (step - before) / max(seconds, 1e-9)}

    def _describe(self, health: Health) -> str:
        return f"loss {self._losses[health.first_bad_loss]!r} was not finite at step {health.first_bad_step}"
