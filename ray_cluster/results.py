"""What a sweep came to: one row a trial, read back from the run directory."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from kauldron_core.errors import ConfigError, listing, unknown_name
from kauldron_core.rundir import Directions, Mode, Ranking

FINISHED = ("done", "diverged", "pruned", "stopped")
"""Statuses of a trial that ended as a result; `failed`, `preempted`, `queued` and `running` are not."""


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """The last state of one trial.

    Attributes:
      name: Its folder under `RUN/trials`.
      index: Position in the sweep.
      overrides: `(path, value)` pairs.
      status: As in `status.json`.
      step: Last step that a metric was logged for, 0 before that.
      error: Text of the exception that ended it, if any.
      reason: Why it ended without all its steps, where that is no failure: it diverged, or was stopped.
      values: Last value of every metric: `train/losses/total`, and `<evaluator>/metrics/accuracy` at the evaluator's
        last step.
      num_evaluations: Finished evaluations.
      failed_evaluations: `(evaluator, step, error)` of those that failed.
    """

    name: str
    index: int
    status: str
    overrides: tuple[tuple[str, Any], ...] = ()
    step: int = 0
    error: str | None = None
    reason: str | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    num_evaluations: int = 0
    failed_evaluations: tuple[tuple[str, int, str], ...] = ()

    def as_columns(self) -> dict[str, Any]:
        """Returns the trial as one row of a table."""
        return {
            "trial": self.name,
            "index": self.index,
            "status": self.status,
            "step": self.step,
            "error": self.error,
            "reason": self.reason,
            **{f"cfg.{path}": value for path, value in self.overrides},
            **self.values,
        }

    @property
    def is_ok(self) -> bool:
        """Whether training ended as a result and no evaluation failed."""
        return self.status in FINISHED and not self.failed_evaluations


class _Pointed(Protocol):
    """A trial of any kind that knows its point."""

    @property
    def name(self) -> str: ...

    @property
    def overrides(self) -> tuple[tuple[str, Any], ...]: ...


def find_repeats(trials: Iterable[_Pointed]) -> dict[str, str]:
    """Returns the trials whose point an earlier one has already: by their name that one's name."""
    first: dict[str, str] = {}
    repeats: dict[str, str] = {}
    for trial in trials:
        if not trial.overrides:
            continue
        before = first.setdefault(repr(sorted(trial.overrides, key=lambda pair: pair[0])), trial.name)
        if before != trial.name:
            repeats[trial.name] = before
    return repeats


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """A metric over a group of trials.

    Attributes:
      mean: Mean of the values.
      std: Their standard deviation (of a sample, with n - 1); NaN for a single value.
      n: How many trials have a value.
    """

    mean: float
    std: float
    n: int


@dataclass(frozen=True, kw_only=True)
class Group:
    """Trials that differ in their seed alone.

    Attributes:
      overrides: `(path, value)` pairs that they share.
      rows: The trials.
    """

    overrides: tuple[tuple[str, Any], ...]
    rows: tuple[TrialResult, ...]

    @property
    def name(self) -> str:
        """What tells it from the other groups, in words."""
        return ", ".join(f"{path}={value}" for path, value in self.overrides) or "all"

    def statistics(self, metric: str) -> Statistics:
        """Returns mean, standard deviation and number of the values of `metric`; missing ones and NaN don't count."""
        values = [row.values.get(metric, math.nan) for row in self.rows]
        found = [value for value in values if not math.isnan(value)]
        mean = statistics.fmean(found) if found else math.nan
        return Statistics(mean=mean, std=statistics.stdev(found) if len(found) > 1 else math.nan, n=len(found))


@dataclass(frozen=True, kw_only=True)
class Results:
    """All trials of a sweep, in sweep order.

    Attributes:
      run_dir: The run directory.
      rows: One result a trial.
      pending_evaluations: `(trial, evaluator, step)` that are due and have no record.
      group_path: The override in which the trials of a group differ; None: every trial is a group of its own.
      ranking: What ranks them where nothing else is asked for.
      directions: What is better of each metric, as far as the run says it.
      phases_s: Seconds of each phase of the driver.
      evaluator_errors: Why evaluators could not work, beyond single evaluations that failed.
      sidecar_errors: What went wrong in the sidecars; training is not concerned.
    """

    run_dir: str
    rows: tuple[TrialResult, ...]
    pending_evaluations: tuple[tuple[str, str, int], ...] = ()
    group_path: str | None = None
    ranking: Ranking | None = None
    directions: Directions = field(default_factory=Directions)
    phases_s: Mapping[str, float] = field(default_factory=dict)
    evaluator_errors: tuple[str, ...] = ()
    sidecar_errors: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every trial ended as a result and every evaluation is done. A diverged trial is a result."""
        return all(row.is_ok for row in self.rows) and not self.pending_evaluations

    @property
    def repeats(self) -> dict[str, str]:
        """See `find_repeats`."""
        return find_repeats(self.rows)

    @property
    def groups(self) -> tuple[Group, ...]:
        """The trials by what they share beside their seed, in sweep order. A repeat is no other seed: it is alone."""
        groups: dict[str, list[TrialResult]] = {}
        repeats = self.repeats
        for row in self.rows:
            is_alone = self.group_path is None or row.name in repeats
            groups.setdefault(row.name if is_alone else repr(self._shared(row)), []).append(row)
        return tuple(Group(overrides=self._shared(rows[0]), rows=tuple(rows)) for rows in groups.values())

    def _shared(self, row: TrialResult) -> tuple[tuple[str, Any], ...]:
        return tuple(pair for pair in row.overrides if pair[0] != self.group_path)

    @property
    def metric_names(self) -> tuple[str, ...]:
        """Names of all metrics that any trial has."""
        return tuple(sorted({name for row in self.rows for name in row.values}))

    def ranking_by(self, metric: str | Ranking | None = None, mode: Mode | None = None) -> Ranking:
        """Returns what ranks the trials: `metric`, or what ranks them in the run.

        Args:
          metric: The metric that is asked for.
          mode: Which end of it is the good one; where unset the metric says it.

        Raises:
          ConfigError: If no trial has that metric, or nothing says which end of it is the good one.
        """
        if isinstance(metric, Ranking):
            return metric
        metric = metric or (self.ranking.metric if self.ranking is not None else None)
        if metric is None:
            raise ConfigError(f"results: say by which metric. Available: {listing(self.metric_names)}.")
        if metric not in self.metric_names:
            raise ConfigError(unknown_name("metric", metric, self.metric_names, at="results"))
        if self.ranking is not None and metric == self.ranking.metric and mode is None:
            return self.ranking
        return Ranking(metric, self.directions.mode(metric, mode, at="mode"))

    def best(self, metric: str | Ranking | None = None, mode: Mode | None = None) -> TrialResult:
        """Returns the trial with the best last value of a metric; NaN, infinity and a missing value are never best.

        Args:
          metric: The metric; where unset what ranks the trials in the run.
          mode: Which end of it is the good one; where unset the metric says it.

        Raises:
          ConfigError: If no trial has a finite value of it, or nothing says which end of it is the good one.
        """
        ranking = self.ranking_by(metric, mode)
        first = next(iter(self.ranked(ranking)), None)
        if first is None or not math.isfinite(first.values.get(ranking.metric, math.nan)):
            raise ConfigError(f"results: no trial has a finite {ranking.metric!r}.")
        return first

    def ranked(self, metric: str | Ranking | None = None, mode: Mode | None = None) -> tuple[TrialResult, ...]:
        """Returns all trials, best first; those without a finite value come last, in sweep order. See `best`."""
        ranking = self.ranking_by(metric, mode)
        return tuple(sorted(self.rows, key=lambda row: (*ranking.badness(row.values.get(ranking.metric)), row.index)))

    def ranked_groups(self, metric: str | Ranking | None = None, mode: Mode | None = None) -> tuple[Group, ...]:
        """Returns the groups by the mean of a metric, best first; those without a value come last. See `best`."""
        ranking = self.ranking_by(metric, mode)
        return tuple(sorted(self.groups, key=lambda group: ranking.badness(group.statistics(ranking.metric).mean)))

    def to_pandas(self) -> Any:
        """Returns a `pandas.DataFrame`: one row a trial, a column each override (`cfg.PATH`) and metric."""
        import pandas  # 0.5 s, and only for who asks

        return pandas.DataFrame([row.as_columns() for row in self.rows])
