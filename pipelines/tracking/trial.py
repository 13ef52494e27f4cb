"""One trial's run: made when the trial starts, then fed with its news in batches."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kauldron_core import rundir
from pipelines.follow import TrialFollower
from pipelines.tracking.curves import Curves, Point
from pipelines.tracking.experiment import STATUS, SweepRecord
from pipelines.tracking.names import as_params, clean_text
from pipelines.tracking.settings import read_settings
from pipelines.tracking.writer import RunDeleted, RunWriter

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

MLFLOW_STATUS = {
    rundir.DAMAGED: "KILLED",
    "queued": "SCHEDULED",
    "running": "RUNNING",
    "preempted": "KILLED",
    "stopped": "KILLED",
    "pruned": "KILLED",
    "diverged": "FAILED",
    "failed": "FAILED",
    "done": "FINISHED",
}
"""What MLflow shows for a trial's status; the tag `kdr.status` has our own word."""

_MOST_POINTS = 20_000  # held in memory; what comes after waits in the files


class TrialRecord:
    """Writes one trial into its MLflow run.

    Args:
      client: A client of the store.
      sweep: The sweep's experiment and runs.
      follower: The trial's files.
      overrides: What tells this trial from the others, by path.
      warn: Gets one line for each entry that can't be recorded.
    """

    def __init__(
        self,
        client: MlflowClient,
        sweep: SweepRecord,
        follower: TrialFollower,
        *,
        overrides: Mapping[str, Any],
        warn: Callable[[str], None],
    ) -> None:
        self._client = client
        self._sweep = sweep
        self._follower = follower
        self._overrides = overrides
        self._warn = warn
        self._curves = Curves()
        self._writer: RunWriter | None = None
        self._is_deleted = False
        self._points: list[Point] = []
        self._status: dict[str, Any] = {"status": "running"}
        self._written_status = ""
        self._written_tags: dict[str, str] = {}

    def record(self) -> None:
        """Writes what is new; what could not be written is kept and comes first the next time."""
        trial = self._follower.trial
        if self._is_deleted:
            return
        if self._writer is None and trial.status() == "queued":
            self._close_left_over()
            return
        try:
            writer = self._writer or self._open()
            self._take_news()
            self._write(writer)
        except RunDeleted:
            self._is_deleted = True
            self._warn(f"MLflow: the run of trial {trial.name} was deleted, so it is not recorded.")

    def finish(self) -> bool:
        """Closes the run if nobody else will, and says whether its trial had ended by itself."""
        has_ended = self._follower.trial.status() in rundir.TERMINAL
        if self._writer is not None and not has_ended and not self._is_deleted:
            self._client.set_terminated(self._writer.run_id, "KILLED")
        return has_ended

    def _close_left_over(self) -> None:
        """Closes the run that a killed driver left open: its trial waits to be run again."""
        standing = self._sweep.child(self._follower.trial.name)
        if standing is not None and standing.info.status == "RUNNING" and self._written_status != "KILLED":
            self._client.set_terminated(standing.info.run_id, "KILLED")
            self._written_status = "KILLED"

    def _open(self) -> RunWriter:
        """Finds or makes the run, and writes its settings."""
        trial = self._follower.trial
        standing = self._sweep.child(trial.name)
        run = standing or self._sweep.create_child(trial, start_ms=self._began_ms())
        writer = RunWriter(self._client, run.info.run_id, warn=self._warn)
        if run.info.lifecycle_stage == "deleted":
            raise RunDeleted(run.info.run_id)
        self._write_settings(writer, run)
        recorded = {metric.key: metric.step for metric in run.data.to_proto().metrics}
        self._curves = Curves(recorded if standing else None)
        self._writer = writer
        return writer

    def _write_settings(self, writer: RunWriter, run: Run) -> None:
        """Writes parameters, the marks of swept ones, and the config; a parameter that has changed becomes a tag."""
        settings = {key: clean_text(value) for key, value in as_params(self._settings()).items()}
        swept = as_params({f"sweep.{path}": value for path, value in self._overrides.items()})
        known = run.data.params
        changed = {key: value for key, value in settings.items() if known.get(key, value) != value}
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        notes = {f"kdr.changed.{key}": f"{now}: {known[key]} -> {value}" for key, value in changed.items()}
        # MLflow refuses a whole batch for one parameter that has another value.
        writer.params({key: value for key, value in settings.items() if key not in known})
        writer.tags({**swept, **notes, "kdr.swept": ", ".join(self._overrides), "kdr.trial_dir": self._folder})
        if changed or not known:
            self._client.log_artifact(writer.run_id, str(self._follower.trial.config_path))

    def _settings(self) -> dict[str, Any]:
        return {**read_settings(self._follower.trial.config_path), **self._overrides}

    @property
    def _folder(self) -> str:
        return str(self._follower.trial.path.absolute())

    def _take_news(self) -> None:
        if len(self._points) >= _MOST_POINTS:
            return
        news = self._follower.poll()
        for event in news.events:
            self._points += self._curves.add_event(event)
        for name, step, record in news.evaluations:
            self._points += self._curves.add_evaluation(name, step, record)
        self._status = news.status or self._status
        for metric in self._curves.not_numbers:
            self._warn(f"MLflow takes numbers only; the other values of metric {metric!r} are left out.")

    def _write(self, writer: RunWriter) -> None:
        writer.metrics(self._points)
        self._points.clear()
        tags = {**self._curves.tags, **self._status_tags()}
        if tags != self._written_tags:
            writer.tags(tags)
            self._written_tags = tags
        status = MLFLOW_STATUS[self._status["status"]]
        if status != self._written_status:
            self._write_status(writer, status)

    def _status_tags(self) -> dict[str, str]:
        error = self._status.get("error")
        reason = self._status.get("reason")
        return {
            STATUS: self._status["status"],
            **({"kdr.error": str(error)} if error else {}),
            **({"kdr.reason": str(reason)} if reason else {}),
        }

    def _write_status(self, writer: RunWriter, status: str) -> None:
        if status in ("SCHEDULED", "RUNNING"):
            self._client.update_run(writer.run_id, status=status)
        else:
            self._client.set_terminated(writer.run_id, status, self._status.get("time_ms"))
        self._written_status = status

    def _began_ms(self) -> int:
        """Returns when the trial logged its first event, or else when it got its status."""
        trial = self._follower.trial
        first = next((event["time_ms"] for event in rundir.read_events(trial.events)), None)
        return first or rundir.read_status(trial).get("time_ms") or int(time.time() * 1000)
