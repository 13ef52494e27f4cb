"""A watchdog: says where a training hangs, without ending it."""

from __future__ import annotations

import faulthandler
import statistics
import sys
import threading
import time
from typing import Self


class Watchdog:
    """Writes the stacks of all threads to the standard error when a call takes far longer than the ones before.

    Args:
      factor: How many times the median.
      min_s: The least time, in seconds.
    """

    def __init__(self, *, factor: float, min_s: float):
        self._factor, self._min_s = factor, min_s
        self._durations: list[float] = []
        self._call_began: float | None = None
        self._is_told = False
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def tick(self) -> None:
        """Says that the training goes on: another call begins."""
        now = time.monotonic()
        if self._call_began is not None:
            self._durations.append(now - self._call_began)
            del self._durations[:-_REMEMBERED]
        self._call_began, self._is_told = now, False

    def pause(self) -> None:
        """Says that what comes now is no step: an evaluation, a save."""
        self._call_began = None

    @property
    def limit_s(self) -> float | None:
        """How long a call may take, in seconds; None while too few are known."""
        if len(self._durations) < _LEAST_KNOWN:
            return None
        return max(self._min_s, self._factor * statistics.median(self._durations))

    def _watch(self) -> None:
        while not self._is_closed:
            with self._changed:
                self._changed.wait(timeout=min(1.0, self._min_s))
            began, limit = self._call_began, self.limit_s
            if began is None or limit is None or self._is_told or time.monotonic() - began < limit:
                continue
            self._is_told = True
            print(f"a step has been running for more than {limit:.0f} s; where all threads are:", file=sys.stderr)
            faulthandler.dump_traceback(all_threads=True)


_LEAST_KNOWN = 5
_REMEMBERED = 100
