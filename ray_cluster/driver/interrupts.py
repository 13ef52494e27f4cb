"""Why a sweep ends early: Ctrl-C or SIGTERM (once is graceful, twice stops now), `kdr stop`, or nothing can run."""

from __future__ import annotations

import math
import signal
import threading
import time
from types import FrameType
from typing import Any

from kauldron_core import rundir
from kauldron_core.errors import RunFailed
from ray_cluster.driver import control
from ray_cluster.driver.ground import Abandoned

_WATCHED = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """While active, the first signal asks all trials to save and end; the second one raises KeyboardInterrupt.

    Does nothing outside the main thread, where Python allows no handlers.
    """

    def __init__(self, run: rundir.RunDir, *, time_budget_s: float | None = None):
        """Prepares them.

        Args:
          run: The run directory.
          time_budget_s: Seconds from now after which the sweep ends as if it had been asked to.
        """
        self._run = run
        self._ends_at = math.inf if time_budget_s is None else time.monotonic() + time_budget_s
        self._old_handlers: dict[signal.Signals, Any] = {}
        self.received: signal.Signals | None = None
        self.gave_up_over: str | None = None
        self._was_asked = False
        self._lost: RunFailed | None = None

    def is_requested(self) -> bool:
        """Returns whether the sweep shall end early.

        Raises:
          Abandoned: If it can't even end in order.
        """
        if self._lost is not None:
            raise Abandoned
        if self.received is None and self.gave_up_over is None and not self._was_asked:
            if time.monotonic() > self._ends_at:
                control.request_stop(self._run, reason="the time budget is used up")
            self._was_asked = control.is_stop_requested(self._run)
        return self.received is not None or self.gave_up_over is not None or self._was_asked

    def give_up(self, error: str) -> None:
        """Ends the sweep early because nothing can run, for this reason."""
        self.gave_up_over = error
        control.request_stop(self._run, reason=error)

    def abandon(self, loss: RunFailed) -> None:
        """Ends the sweep where it stands: what it needs to go on is lost."""
        self._lost = loss

    def install(self) -> None:
        """Takes the signals; again after a library may have taken them (Ray does when it starts)."""
        if threading.current_thread() is threading.main_thread():
            for number in _WATCHED:
                old = signal.signal(number, self._handle)
                self._old_handlers.setdefault(number, old)

    def raise_if_requested(self) -> None:
        """Ends the process's work as the first signal asked for.

        Raises:
          KeyboardInterrupt: After Ctrl-C (the command line exits with 130).
          SystemExit: After SIGTERM or `kdr stop`, with 143.
          RunFailed: If nothing could run.
        """
        if self.received == signal.SIGINT:
            raise KeyboardInterrupt
        if self.received == signal.SIGTERM:
            raise SystemExit(128 + signal.SIGTERM)
        if self.gave_up_over is not None:
            raise RunFailed(f"the sweep was stopped, its workers can't start: {self.gave_up_over}")
        if self._was_asked:
            raise SystemExit(128 + signal.SIGTERM)

    def __enter__(self) -> Interrupts:
        self.install()
        return self

    def __exit__(self, *_: object) -> None:
        if threading.current_thread() is threading.main_thread():
            for number, handler in self._old_handlers.items():
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)
        control.request_stop(self._run, reason=self.received.name)
