"""Follows a run directory and writes it to MLflow, whatever happens to the store meanwhile.

The files of the run directory are the truth and MLflow gets a copy of them. A recorder may be stopped, killed and
started again at any time, and it may come late: what MLflow holds already is not written twice, what it lacks is added.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from kauldron_core import rundir
from pipelines.tracking.session import MlflowSession
from pipelines.tracking.store import Store

_RETRY_S = (1.0, 2.0, 5.0, 10.0, 30.0)


class Recorder:
    """Writes one run directory into one store; a sidecar (`start`, `poll`, `close`).

    Args:
      store: Where to write.
      warn: Gets one line for each kind of trouble.
      is_driver: Whether this process runs the sweep: it then closes runs that nobody works on any more as KILLED.
      patience_s: How long `close` waits for a store that is down.

    Attributes:
      is_complete: Whether everything was written when it closed.
    """

    def __init__(
        self, store: Store, *, warn: Callable[[str], None] = print, is_driver: bool = True, patience_s: float = 30.0
    ) -> None:
        self.store = store
        self._warn = warn
        self._is_driver = is_driver
        self._patience_s = patience_s
        self._run: rundir.RunDir | None = None
        self._session: MlflowSession | None = None
        self._failures = 0
        self._retry_at = 0.0
        self.is_complete = False

    def start(self, run_dir: rundir.RunDir) -> None:
        """Opens the store, which takes seconds the first time, and writes what is there already."""
        self._run = run_dir
        self._attempt(self._record)

    def poll(self) -> None:
        """Writes what is new. While the store is down it only tries again now and then."""
        if self._run is not None and time.monotonic() >= self._retry_at:
            self._attempt(self._record)

    def close(self, results: object = None) -> None:
        """Writes the rest and the final statuses; `is_complete` says whether all of it got through.

        Args:
          results: What the driver came to; its `ok` decides about the parent run. None: nobody knows.
        """
        if self._run is None:
            return
        is_ok = getattr(results, "ok", None)
        deadline = time.monotonic() + self._patience_s
        while not self._attempt(lambda: self._record().finish(is_ok=is_ok)):
            if time.monotonic() >= deadline:
                self._warn(f"MLflow lacks a part of this run. To add it later: kdr record {self._run.path}")
                return
            time.sleep(1.0)
        self.is_complete = self._session is None or not self._session.damaged

    def _record(self) -> MlflowSession:
        if self._run is None:
            raise RuntimeError("start() comes first")
        if self._session is None:
            self._session = MlflowSession(self.store, self._run, warn=self._warn, is_driver=self._is_driver)
        self._session.record()
        return self._session

    def _attempt(self, work: Callable[[], object]) -> bool:
        """Does what may fail while the store is down, and says whether it worked."""
        try:
            work()
        except Exception as error:  # whatever a store can raise: training goes on, and the files keep the data
            self._postpone(error)
            return False
        if self._failures:
            self._warn("MLflow can be written again; nothing was lost.")
        self._failures = 0
        return True

    def _postpone(self, error: Exception) -> None:
        if not self._failures:
            text = (str(error).splitlines() or [""])[0]
            self._warn(f"MLflow at {self.store.uri} can't be written, trying again: {type(error).__name__}: {text}")
        self._retry_at = time.monotonic() + _RETRY_S[min(self._failures, len(_RETRY_S) - 1)]
        self._failures += 1
