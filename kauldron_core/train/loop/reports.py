"""Reports of steps, fetched from the device when they are ready and not before."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Sequence

import jax

from kauldron_core.forward import AuxiliariesState, Health
from kauldron_core.train.loop import summary_files
from kauldron_core.train.loop.events import Logged, Summarized
from kauldron_core.train.loop.speed import Speed
from kauldron_core.train.step.program import OnNonfinite, StepReport


class Diverged(Exception):
    """The state can't be used any more; the text says since when."""


class LateReports:
    """Holds the report of the last logged step until the device has computed it.

    Waiting for it at once would let the device run dry. It is fetched between two later steps, once it is there, and
    at the latest when the next one comes.

    Args:
      losses: Names of the losses, in the order of `Health.first_bad_loss`.
      on_nonfinite: Whether a non-finite loss ends the run.
      speed: Measures.
      summaries: Where files of summaries go; None writes none.
    """

    def __init__(
        self,
        losses: Sequence[str],
        *,
        on_nonfinite: OnNonfinite,
        speed: Speed,
        summaries: pathlib.Path | None,
    ):
        self.last_loss: float | None = None
        self._losses = losses
        self._on_nonfinite: OnNonfinite = on_nonfinite
        self._speed = speed
        self._summaries = summaries
        self._held: tuple[int, StepReport, float] | None = None

    def put(self, step: int, report: StepReport) -> None:
        """Takes the report of `step`; there may be no other one."""
        self._held = (step, report, self._speed.cut())

    def is_ready(self) -> bool:
        """Returns whether there is a report that can be had without waiting."""
        # One program computes all of it, so one array speaks for all.
        return self._held is not None and self._held[1].health.is_ready()  # pyright: ignore[reportAttributeAccessIssue]

    def flush(self) -> Iterator[Logged | Summarized]:
        """Yields the report that is held, if any; waits for it.

        Raises:
          Diverged: If a loss was not finite and that ends the run.
        """
        if self._held is None:
            return
        (step, report, waited_s), self._held = self._held, None
        report = jax.device_get(report)
        health = Health.of(report.health)
        aux = report.aux.to_host()
        if aux.loss_states:
            values = self._values(aux, report, health) | self._perf(step, waited_s)
            yield Logged(step=step, split="train", values=values)
        if aux.summary_states:
            yield self._summarized(step, aux)
        if self._on_nonfinite == "stop" and health.first_bad_step > 0:
            raise Diverged(describe(health, self._losses))

    def _perf(self, step: int, waited_s: float) -> dict[str, float]:
        return {f"perf/{name}": value for name, value in self._speed.read(step, waited_s).items()}

    def _values(self, aux: AuxiliariesState, report: StepReport, health: Health) -> dict[str, float]:
        values = values_of(aux, report, health, on_nonfinite=self._on_nonfinite)
        self.last_loss = values.get("losses/total")
        return values

    def _summarized(self, step: int, aux: AuxiliariesState) -> Summarized:
        values = {name: state.compute() for name, state in aux.summary_states.items()}
        files = () if self._summaries is None else tuple(summary_files.write(self._summaries / str(step), values))
        return Summarized(step=step, split="train", values=values, files=files)


def values_of(
    aux: AuxiliariesState, report: StepReport, health: Health, *, on_nonfinite: OnNonfinite
) -> dict[str, float]:
    """Returns the training metrics that a report holds.

    Args:
      aux: Its states, on the host.
      report: The report, on the host.
      health: What its flag says.
      on_nonfinite: Whether steps may have been skipped.
    """
    values = aux.scalars()
    values |= {f"schedules/{name}": float(value) for name, value in report.schedules.items()}
    if on_nonfinite == "skip":
        values["health/skipped_steps"] = float(health.num_bad_steps)
    return values


def describe(health: Health, losses: Sequence[str]) -> str:
    """Returns which of the losses, in the order of `Health.first_bad_loss`, was not finite, and when."""
    return f"loss {losses[health.first_bad_loss]!r} was not finite at step {health.first_bad_step}"
