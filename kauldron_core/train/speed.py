"""`Speed`: how fast a training runs, and what it waits for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

_GIB = 2**30


class Window(NamedTuple):
    """What the host did between two reports.

    Attributes:
      waited_s: Time spent waiting for data.
      step_times_s: Time of each call, for each of its steps.
    """

    waited_s: float
    step_times_s: list[float]


class Speed:
    """Measures between two reports; evaluations and saves are left out.

    Args:
      batch_size: Examples in a global batch.
      flops: Returns the floating point operations of one step, None where they are not known. Called once, late.
    """

    def __init__(self, *, batch_size: int, flops: Callable[[], float | None]):
        self._batch_size = batch_size
        self._flops_of = flops
        self._flops: float | None = None
        self._last_step: int | None = None
        self._began = time.perf_counter()
        self._call_began: float | None = None
        self._waited_s = 0.0
        self._step_times_s: list[float] = []

    def call_begins(self) -> None:
        """Says that the next call is prepared, with the data first."""
        self._call_began = time.perf_counter()

    def data_is_there(self) -> None:
        """Says that the data of the call has arrived."""
        if self._call_began is not None:
            self._waited_s += time.perf_counter() - self._call_began

    def call_ended(self, num_steps: int) -> None:
        """Says that the call was handed to the device, which may still be at it."""
        if self._call_began is not None:
            self._step_times_s.append((time.perf_counter() - self._call_began) / num_steps)

    def exclude(self, seconds: float) -> None:
        """Says that training stood still for so long."""
        self._began += seconds

    def cut(self) -> Window:
        """Returns what was noted since the last cut. To be called when a report is made, which is read later."""
        window = Window(self._waited_s, self._step_times_s)
        self._waited_s, self._step_times_s = 0.0, []
        return window

    def read(self, step: int, window: Window) -> dict[str, float]:
        """Returns what was measured since the last report; nothing at the first, which waited for the compiler."""
        now = time.perf_counter()
        before, self._last_step = self._last_step, step
        seconds, self._began = max(now - self._began, 1e-9), now
        if before is None or step <= before or not window.step_times_s:
            return {}
        steps_per_s = (step - before) / seconds
        found = {
            "steps_per_s": steps_per_s,
            "examples_per_s": steps_per_s * self._batch_size,
            "data_wait": min(window.waited_s / seconds, 1.0),
            "step_median_s": float(np.median(window.step_times_s)),
            "step_p95_s": float(np.quantile(window.step_times_s, 0.95)),
        }
        return found | self._device(steps_per_s)

    def _device(self, steps_per_s: float) -> dict[str, float]:
        """Returns what an accelerator tells. A CPU tells nothing about its memory."""
        device = jax.local_devices()[0]
        if device.platform == "cpu":
            return {}
        if self._flops is None:
            self._flops = self._flops_of() or 0.0
        stats = device.memory_stats() or {}
        peak = {"device_memory_peak_gib": stats["peak_bytes_in_use"] / _GIB} if "peak_bytes_in_use" in stats else {}
        return peak | ({"model_flops_per_s": steps_per_s * self._flops} if self._flops else {})
