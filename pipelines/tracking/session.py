"""An open store and one run directory: every trial's news goes into the trial's own run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kauldron_core import rundir
from kauldron_core.errors import ConfigError
from pipelines.follow import RunFollower
from pipelines.tracking.experiment import RUN_DIR, SweepRecord, close_abandoned
from pipelines.tracking.names import as_params
from pipelines.tracking.settings import read_overrides, sweep_settings
from pipelines.tracking.store import Store
from pipelines.tracking.trial import MLFLOW_STATUS, TrialRecord
from pipelines.tracking.writer import RunWriter


class MlflowSession:
    """Writes a run directory while its store can be written; raises when it can't, and may be called again.

    Args:
      store: Where to write.
      run: The run directory.
      warn: Gets one line for each entry that can't be recorded.
      is_driver: Whether this process runs the sweep.

    Attributes:
      damaged: Trials that can't be recorded, since a file of theirs can't be read.
    """

    def __init__(self, store: Store, run: rundir.RunDir, *, warn: Callable[[str], None], is_driver: bool) -> None:
        self._run = run
        self._warn = _once(warn)
        self._is_driver = is_driver
        self._client = store.open()
        self._record = SweepRecord(self._client, store, run)
        self._followers = RunFollower(run)
        self._overrides = read_overrides(run)
        self._trials: dict[str, TrialRecord] = {}
        self.damaged: list[str] = []
        self._open_parent()

    def record(self) -> None:
        """Writes everything that is new."""
        self.damaged = []
        for trial in self._run.trials():
            try:
                self._trial(trial).record()
            except ConfigError as error:  # Its config can't be read; the others are recorded.
                self.damaged.append(trial.name)
                self._warn(f"trial {trial.name} is not recorded: {error}")

    def finish(self, *, is_ok: bool | None) -> None:
        """Closes the parent run, and as the driver those of trials that nobody works on any more.

        The parent is FINISHED when nothing is missing and no child run says FAILED, which a diverged trial's does.
        """
        if not self._is_driver:
            return
        ended = [trial.finish() for trial in self._trials.values()]
        has_failed = any(MLFLOW_STATUS[trial.status()] == "FAILED" for trial in self._run.trials())
        outcome = {True: "FAILED" if has_failed else "FINISHED", False: "FAILED", None: "KILLED"}[is_ok]
        self._client.set_terminated(self._record.parent, outcome if all(ended) else "KILLED")

    def _open_parent(self) -> None:
        writer = RunWriter(self._client, self._record.parent, warn=self._warn)
        writer.tags({RUN_DIR: str(self._run.path.absolute())})  # it may have been moved
        standing = self._client.get_run(self._record.parent).data.params
        params = as_params(sweep_settings(self._run))
        writer.params({key: value for key, value in params.items() if key not in standing})
        self._client.log_artifact(self._record.parent, str(self._run.sweep_path))
        if self._is_driver:
            for folder in close_abandoned(self._client, but=self._run):
                self._warn(f"MLflow: the unfinished runs of {folder}, whose driver is gone, are marked as killed.")
            self._client.update_run(self._record.parent, status="RUNNING")

    def _trial(self, trial: rundir.TrialDir) -> TrialRecord:
        if trial.name not in self._trials:
            self._trials[trial.name] = TrialRecord(
                self._client,
                self._record,
                self._followers.follower(trial),
                overrides=self._overrides_of(trial.name),
                warn=self._warn,
            )
        return self._trials[trial.name]

    def _overrides_of(self, trial: str) -> Mapping[str, Any]:
        """Returns what tells a trial from the others; a search adds trials while it runs."""
        if trial not in self._overrides:
            self._overrides = read_overrides(self._run)
        return self._overrides.get(trial, {})


def _once(warn: Callable[[str], None]) -> Callable[[str], None]:
    """Returns `warn` for different lines only: one bad metric of a thousand trials is one warning."""
    said: set[str] = set()

    def say(line: str) -> None:
        if line not in said:
            said.add(line)
            warn(line)

    return say
