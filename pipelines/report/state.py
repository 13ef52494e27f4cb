"""What is known of a sweep while it runs: one small record a trial, fed from its files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kauldron_core import rundir
from kauldron_core.errors import ConfigError
from kauldron_core.rundir import Directions, Ranking
from pipelines.follow import News, RunFollower
from pipelines.report.ranking import ranking_of


@dataclass
class TrialState:
    """The last state of one trial.

    Attributes:
      name: Its name.
      status: As in its status file.
      error: Why it failed.
      last_error: What went wrong before it was tried again.
      reason: Why it ended without all its steps, where that is no failure.
      step: Last step with a metric.
      values: Last value of each metric.
      evaluations: Number of finished evaluations.
      damaged: What is to be said of results that can't be read, a line each.
      span: First and last `(step, time_ms)` of training in its newest attempt. It begins with the second record: what
        is compiled is compiled before.
    """

    name: str
    status: str = "queued"
    error: str = ""
    last_error: str = ""
    reason: str = ""
    step: int = 0
    values: dict[str, float] = field(default_factory=dict)
    evaluations: int = 0
    span: tuple[tuple[int, int], tuple[int, int]] | None = None
    _has_begun: bool = False
    damaged: list[str] = field(default_factory=list)

    def take(self, news: News) -> None:
        """Adds what is new."""
        for event in news.events:
            self._take_event(event)
        for name, _, record in news.evaluations:
            self.evaluations += record.get("status") != rundir.DAMAGED
            if record.get("status") == rundir.DAMAGED:
                self.damaged.append(str(record["error"]))
            self.values.update({f"{name}/{key}": value for key, value in (record.get("values") or {}).items()})
        if news.status:
            self.status = str(news.status["status"])
            self.error = str(news.status.get("error") or "")
            self.last_error = str(news.status.get("last_error") or "")
            self.reason = str(news.status.get("reason") or "")

    def _take_event(self, event: dict[str, Any]) -> None:
        if event["kind"] == rundir.RESUMED_FROM:
            self.step = max(0, event["step"])
            self.span, self._has_begun = None, False
        split, values = rundir.measured(event)
        if not values:
            return
        self.step = max(self.step, event["step"])
        if split == "train":
            now = (event["step"], event["time_ms"])
            self.span = (self.span[0] if self.span else now, now) if self._has_begun else None
            self._has_begun = True
        for name, value in values.items():
            self.values[name if name.startswith(f"{split}/") else f"{split}/{name}"] = value


class SweepState:
    """The states of all trials of a run directory.

    Attributes:
      run: The run directory.
      trials: The trials by name.
      directions: What is better of each metric, as the run and its evaluations say it.
      unranked: Why nothing ranks the trials, as far as there is a reason.
    """

    def __init__(self, run: rundir.RunDir) -> None:
        self.run = run
        self.trials: dict[str, TrialState] = {trial.name: TrialState(trial.name) for trial in run.trials()}
        self.directions = Directions.read(run.readable_sweep.get("directions"))
        self.unranked = ""
        self._follower = RunFollower(run)
        self._num_steps: dict[str, int | None] = {}
        self._overrides: dict[str, str] = {}

    def overrides(self, trial: str) -> str:
        """Returns what tells a trial from the others, in words; empty if nothing does."""
        if trial not in self._overrides:
            rows = self.run.readable_sweep.get("trials") or ()
            points = {row["name"]: row.get("overrides") or () for row in rows}
            shown = {name: ", ".join(f"{path}={value}" for path, value in point) for name, point in points.items()}
            # A search makes trials while it runs: one that is not listed yet is looked up again.
            self._overrides.update(shown)
        return self._overrides.get(trial, "")

    def num_steps(self, trial: str) -> int | None:
        """Returns how many steps a trial is to make, None if its config doesn't say it as a number."""
        if trial not in self._num_steps:
            self._num_steps[trial] = _read_num_steps(self.run.trial(trial).config_path)
        return self._num_steps[trial]

    def poll(self) -> list[tuple[TrialState, News]]:
        """Reads what is new and returns the trials concerned."""
        changed = []
        for trial, news in self._follower.poll():
            state = self.trials.setdefault(trial.name, TrialState(trial.name))
            state.take(news)
            for name, _, record in news.evaluations:
                self.directions = self.directions.with_record(name, record)
            changed.append((state, news))
        return changed

    def damages(self) -> list[str]:
        """Returns a line for each file that can't be read."""
        lines = rundir.damages(self.run)
        for trial in self.trials.values():
            lines += [*([trial.error] if trial.status == rundir.DAMAGED else []), *trial.damaged]
        return lines

    def counts(self) -> dict[str, int]:
        """Returns how many trials have each status, those that occur."""
        statuses = [state.status for state in self.trials.values()]
        known = dict.fromkeys((*rundir.STATUSES, *statuses))
        return {status: statuses.count(status) for status in known if status in statuses}

    @property
    def metric_names(self) -> set[str]:
        """Names of all metrics that any trial has so far."""
        return {name for state in self.trials.values() for name in state.values}

    def ranking(self) -> Ranking | None:
        """Returns what ranks the trials; None where nothing does, and then `unranked` may say why."""
        try:
            return ranking_of(self.run, self.metric_names, directions=self.directions)
        except ConfigError as error:
            self.unranked = str(error)
            return None

    def ranked(self, ranking: Ranking | None) -> list[TrialState]:
        """Returns the trials, best first; those without a finite value come last, by name."""
        if ranking is None:
            return sorted(self.trials.values(), key=lambda state: state.name)
        return sorted(
            self.trials.values(), key=lambda state: (*ranking.badness(state.values.get(ranking.metric)), state.name)
        )


def _read_num_steps(config_path: Path) -> int | None:
    try:
        found = rundir.read_json(config_path)
    except (OSError, ValueError):
        return None
    steps = found.get("num_train_steps") if isinstance(found, dict) else None
    return steps if isinstance(steps, int) else None
