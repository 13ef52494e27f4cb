"""What the driver knows about its trials, shared between its threads and written to every `status.json`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kauldron_core import rundir

_logger = logging.getLogger(__name__)


class StatusBoard:
    """The status of every trial of a plan; the only writer of their status files."""

    def __init__(self, run: rundir.RunDir, overrides: Mapping[str, Iterable[tuple[str, Any]]]):
        """Reads the statuses that stand.

        Args:
          run: The run directory.
          overrides: The overrides of each trial by name, shown with its errors.
        """
        self._run = run
        self._overrides = {name: tuple(pairs) for name, pairs in overrides.items()}
        self._statuses = {name: run.trial(name).status() for name in self._overrides}
        self._shown_errors: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def add(self, name: str, overrides: Iterable[tuple[str, Any]]) -> None:
        """Takes in a trial that was made while the sweep runs."""
        with self._lock:
            self._overrides[name] = tuple(overrides)
            self._statuses[name] = self._run.trial(name).status()

    def set(self, name: str, status: str, **fields: Any) -> None:
        """Sets the status of a trial, in its file too; a terminal one stays."""
        with self._lock:
            if rundir.write_status(self._run.trial(name), status, **fields):
                self._statuses[name] = status

    def status(self, name: str) -> str:
        """Returns the status of a trial."""
        with self._lock:
            return self._statuses[name]

    def names(self, *statuses: str) -> list[str]:
        """Returns the trials that have one of these statuses, in sweep order."""
        with self._lock:
            return [name for name, status in self._statuses.items() if status in statuses]

    def show_error(self, name: str, error: str, *, members: Sequence[str] = ()) -> None:
        """Warns of a trial's or a pack's error when it happens, once, with what tells a trial from others."""
        if (name, error) in self._shown_errors:
            return
        self._shown_errors.add((name, error))
        if len(members) > 1:
            _logger.warning("pack %s of %d trials: %s", name, len(members), error)
        else:
            overrides = ", ".join(f"{path}={value}" for path, value in self._overrides[name])
            _logger.warning("trial %s (%s): %s", name, overrides or "no overrides", error)
