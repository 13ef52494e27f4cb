"""Runs the sidecars of a sweep, each in a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from kauldron_core import rundir
from ray_cluster.results import Results
from ray_cluster.spec import Sidecar

_POLL_S = 1.0
_logger = logging.getLogger(__name__)


class SidecarThreads:
    """Starts sidecars, polls them about once a second and closes them; keeps their errors to itself."""

    def __init__(self, sidecars: Iterable[Sidecar], run: rundir.RunDir):
        self._run = run
        self._results: Results | None = None
        self._is_over = threading.Event()
        self.errors: list[str] = []
        self._threads = [
            threading.Thread(target=self._watch, args=(sidecar,), name=type(sidecar).__name__, daemon=True)
            for sidecar in sidecars
        ]

    def start(self) -> None:
        """Starts all of them, without waiting."""
        for thread in self._threads:
            thread.start()

    def close(self, results: Results) -> None:
        """Closes all of them with these results and returns when the last one is done."""
        self._results = results
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _watch(self, sidecar: Sidecar) -> None:
        if not self._guard(sidecar, lambda: sidecar.start(self._run)):
            return
        while not self._is_over.wait(_POLL_S) and self._guard(sidecar, sidecar.poll):
            pass
        self._is_over.wait()
        if self._results is not None:
            results = self._results
            self._guard(sidecar, lambda: sidecar.close(results))

    def _guard(self, sidecar: Sidecar, call: Callable[[], None]) -> bool:
        try:
            call()
        except Exception as error:
            # Whatever watches a run must not be able to end it.
            _logger.warning("%s failed and watches no more", type(sidecar).__name__, exc_info=True)
            self.errors.append(f"{type(sidecar).__name__}: {type(error).__name__}: {error}")
            return False
        return True
