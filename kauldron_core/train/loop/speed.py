"""`Speed`: how fast a training runs, and what it waits for."""

from __future__ import annotations

import collections
import time
from collections.abc import Callable, Hashable

import jax
import numpy as np

_GIB = 2**30
_REMEMBERED = 20


class Speed:
    """Measures between two reports; evaluations and what waits for the compiler are left out.

    The host hands a step over long before the device has made it, so the clock is read where something came back: a
    time of a step is that between two reports over the steps between them. What is called median and 95th percentile is
    taken over the last twenty such times.

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
        self._handed_over: float | None = None
        self._compiled: set[Hashable] = set()
        self._waited_s = 0.0
        self._step_times_s: collections.deque[float] = collections.deque(maxlen=_REMEMBERED)

    def call_begins(self) -> None:
        """Says that the next call is prepared, with the data first."""
        self._call_began = time.perf_counter()

    def data_is_there(self) -> None:
        """Says that the data of the call has arrived."""
        self._handed_over = time.perf_counter()
        if self._call_began is not None:
            self._waited_s += self._handed_over - self._call_began

    def call_ended(self, program: Hashable) -> None:
        """Says that the call was handed to the device, which may still be at it. The first of a program was compiled.

        Args:
          program: What is equal for calls of one program.
        """
        if program not in self._compiled and self._handed_over is not None:
            self._compiled.add(program)
            self.exclude(time.perf_counter() - self._handed_over)

    def exclude(self, seconds: float) -> None:
        """Says that training stood still for so long."""
        self._began += seconds

    def cut(self) -> float:
        """Returns the seconds waited for data since the last cut. To be called when a report is made."""
        waited_s, self._waited_s = self._waited_s, 0.0
        return waited_s

    def read(self, step: int, waited_s: float) -> dict[str, float]:
        """Returns what was measured since the last report; nothing at the first, which waited for the compiler.

        Args:
          step: Of the report that has just come back from the device.
          waited_s: What the host had waited for data when it was made.
        """
        now = time.perf_counter()
        before, self._last_step = self._last_step, step
        seconds, self._began = max(now - self._began, 1e-9), now
        if before is None or step <= before:
            return {}
        steps_per_s = (step - before) / seconds
        self._step_times_s.append(seconds / (step - before))
        found = {
            "steps_per_s": steps_per_s,
            "examples_per_s": steps_per_s * self._batch_size,
            "data_wait": min(waited_s / seconds, 1.0),
            "step_median_s": float(np.median(self._step_times_s)),
            "step_p95_s": float(np.quantile(self._step_times_s, 0.95)),
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
