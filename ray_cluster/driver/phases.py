"""How long each phase of a sweep took, in `RUN/timings.json`."""

from __future__ import annotations

import time

from kauldron_core import rundir

FILE = "timings.json"


class Phases:
    """Seconds by phase, written to the run directory whenever one ends, so that a kill loses the last one at most."""

    def __init__(self, run: rundir.RunDir):
        self._run = run
        self._began_at = self._last_at = time.time()
        self.seconds: dict[str, float] = {}

    def end(self, name: str, *, at: float | None = None) -> None:
        """Ends the phase that began when the one before ended.

        Args:
          name: Its name.
          at: When it ended, in seconds since 1970, if not now.
        """
        ended_at = time.time() if at is None else at
        self.seconds[name] = round(max(0.0, ended_at - self._last_at), 3)
        self.seconds["total"] = round(ended_at - self._began_at, 3)
        self._last_at = ended_at
        rundir.write_json(self._run.path / FILE, {"phases_s": self.seconds})
