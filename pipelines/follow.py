"""Reads a run directory while it grows: what is new in each trial since the last look.

The recorder and the live table both stand on this. Nothing is held but positions: the files are the truth, and a
follower that starts anew sees everything again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kauldron_core import rundir

Evaluation = tuple[str, int, dict[str, Any]]
"""Evaluator name, step, record."""


@dataclass(frozen=True, kw_only=True)
class News:
    """What happened in one trial since the last look.

    Attributes:
      events: New lines of its `events/`.
      evaluations: Finished evaluations that are new or were replaced.
      status: Its status record, if that has changed.
    """

    events: list[dict[str, Any]] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    status: dict[str, Any] | None = None

    def __bool__(self) -> bool:
        return bool(self.events or self.evaluations or self.status)


class TrialFollower:
    """Follows the files of one trial."""

    def __init__(self, trial: rundir.TrialDir) -> None:
        self.trial = trial
        self._events = rundir.EventFollower(trial.events)
        self._versions: dict[Path, tuple[int, int]] = {}

    def poll(self) -> News:
        """Returns what is new.

        The status is read first: by the time that a terminal one is seen, the events before it are seen as well.
        """
        status_file = self.trial.path / "status.json"
        status = rundir.read_status(self.trial) if self._is_new(status_file) else None
        return News(status=status, evaluations=list(self._new_evaluations()), events=self._events.poll())

    def _new_evaluations(self) -> Iterator[Evaluation]:
        for name, step in sorted(rundir.list_eval_results(self.trial)):
            if self._is_new(rundir.result_path(self.trial, name, step)):
                record = rundir.read_eval_result(self.trial, name, step)
                if record is not None:
                    yield name, step, record

    def _is_new(self, path: Path) -> bool:
        """Says whether the file is another one than at the last look; files here are replaced, never changed."""
        try:
            found = os.stat(path)
        except FileNotFoundError:
            return False
        version = (found.st_ino, found.st_mtime_ns)
        if self._versions.get(path) == version:
            return False
        self._versions[path] = version
        return True


class RunFollower:
    """Follows all trials of a run directory, those that appear later too."""

    def __init__(self, run: rundir.RunDir) -> None:
        self.run = run
        self._trials: dict[str, TrialFollower] = {}

    def poll(self) -> Iterator[tuple[rundir.TrialDir, News]]:
        """Yields each trial that has news."""
        for trial in self.run.trials():
            news = self.follower(trial).poll()
            if news:
                yield trial, news

    def follower(self, trial: rundir.TrialDir) -> TrialFollower:
        """Returns the follower of one trial."""
        if trial.name not in self._trials:
            self._trials[trial.name] = TrialFollower(trial)
        return self._trials[trial.name]
