"""Evaluation beside training that runs elsewhere: each checkpoint as it lands, until there will be no more."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, get_args

from evaluators import trial as trial_lib
from evaluators.jobs import find_trials
from evaluators.ledger import Backlog
from evaluators.sources import Task, evaluate_source
from evaluators.surplus import remove_surplus
from kauldron_core import konfig, rundir
from kauldron_core.errors import ConfigError, RunFailed, unknown_name
from kauldron_core.rundir import Record, TrialDir

Order = Literal["oldest", "newest", "latest"]


def follow_run(
    run_or_trial: str | os.PathLike[str],
    *,
    names: Iterable[str] | None = None,
    order: Order = "oldest",
    shards: int = 1,
    patience_s: float = 3_600.0,
    poll_s: float = 1.0,
    trust: Sequence[str] = (),
    on_record: Callable[[Record], None] | None = None,
) -> list[Record]:
    """Evaluates checkpoints as training writes them and returns the new records, in the order of evaluation.

    It ends when training has ended and each last checkpoint has a result. What is due is kept from removal.

    Args:
      run_or_trial: A run directory (all its trials, new ones too) or a trial's folder.
      names: Which of the stand-alone evaluators; by default all.
      order: Which of the checkpoints that are due comes next: the `oldest`, the `newest`, or the `latest` only, while
        older ones are recorded as skipped.
      shards: Evaluate so many disjoint shares of the data, one after the other, and merge their states.
      patience_s: How long to wait for news while training has not ended.
      poll_s: Time between two looks.
      trust: Packages whose names configs may call.
      on_record: Called with each record as it is there.

    Raises:
      ConfigError: If there is no such run or evaluator.
      RunFailed: If there was nothing new for `patience_s`.
    """
    if trust:
        konfig.trust(*trust)
    with contextlib.closing(Following(run_or_trial, names=names, order=order, patience_s=patience_s)) as following:
        return evaluate_source(following, shards=shards, poll_s=poll_s, on_record=on_record)


class Following:
    """What is due on a run that may still be trained, kept from removal until it is closed."""

    is_strict: ClassVar[bool] = False

    def __init__(
        self,
        run_or_trial: str | os.PathLike[str],
        *,
        names: Iterable[str] | None = None,
        order: Order = "oldest",
        patience_s: float = 3_600.0,
    ):
        """Claims nothing yet. The arguments are those of `follow_run`.

        Raises:
          ConfigError: If there is no such run or evaluator.
        """
        if order not in get_args(Order):
            raise ConfigError(unknown_name("order", order, get_args(Order), at="--order"))
        self.missing: tuple[Record, ...] = ()
        self._path = run_or_trial
        self._names = None if names is None else set(names)
        self._order = order
        self._patience_s = patience_s
        self._news_s = time.monotonic()
        self._backlogs: dict[str, tuple[TrialDir, Backlog]] = {}
        for trial in self._trials():
            _check_names(trial, self._names)

    def options(self) -> dict[str, Any]:
        """Returns the arguments of `CheckpointEvaluator.evaluate` that all tasks share: none."""
        return {}

    def resources(self) -> dict[str, float]:
        """Returns what the evaluators say that a process of theirs must own."""
        return trial_lib.needed_resources(self._trials(), self._names)

    def look(self) -> tuple[list[Task], bool]:
        """Returns what is due, first things first, and whether training has ended, so that nothing will follow.

        Raises:
          RunFailed: If nothing was due for a time, and training has not ended.
        """
        # In this order: a checkpoint that lands between the two looks is seen in the next round.
        running = [trial for trial in self._trials() if not rundir.has_ended(trial)]
        due = sorted(self._due(), key=lambda task: task.step, reverse=self._order != "oldest")
        if self._order == "latest":
            due = _latest_only(due)
        if due:
            self._news_s = time.monotonic()
        elif running and time.monotonic() - self._news_s > self._patience_s:
            waiting = ", ".join(trial.name for trial in running)
            raise RunFailed(f"no new checkpoint for {self._patience_s:g} s, and training has not ended: {waiting}.")
        return due, not running

    def standing(self, task: Task) -> Record | None:
        """Returns the record that makes a task needless, if there is one."""
        return rundir.read_eval_result(task.trial, task.name, task.step)

    def arrange(self, records: Mapping[Task, Record]) -> list[Record]:
        """Returns the records in the order of evaluation."""
        return list(records.values())

    def close(self) -> None:
        """Gives back what it claims, and removes what was kept for it. A second call does nothing."""
        while self._backlogs:
            trial, backlog = self._backlogs.popitem()[1]
            backlog.close()
            if rundir.has_ended(trial):
                remove_surplus(trial)

    def _due(self) -> Iterator[Task]:
        for trial in self._trials():
            if trial.name not in self._backlogs:
                self._backlogs[trial.name] = (trial, Backlog(trial))
            backlog = self._backlogs[trial.name][1]
            for name, step in backlog.look(finished=rundir.has_ended(trial)):
                if self._names is None or name in self._names:
                    yield Task(trial, name, step)

    def _trials(self) -> list[TrialDir]:
        return find_trials(self._path)


def _latest_only(due: list[Task]) -> list[Task]:
    """Returns the newest checkpoint of each trial and evaluator, and records the others as skipped.

    Not one that is being evaluated: it was the newest when that began.
    """
    latest: dict[tuple[TrialDir, str], int] = {}
    for task in due:  # newest first
        latest.setdefault((task.trial, task.name), task.step)
    chosen = []
    for task in due:
        is_latest = task.step == latest[task.trial, task.name]
        if is_latest or rundir.Lease.is_live(rundir.work_path(task.trial, task.name, task.step)):
            chosen.append(task)
            continue
        rundir.record_skipped(task.trial, task.name, task.step, "only the latest was asked for")
    return chosen


def _check_names(trial: TrialDir, names: set[str] | None) -> None:
    available = trial_lib.standalone_strategies(trial)
    if not available:
        raise ConfigError(f"--follow: {trial.name} has no stand-alone evaluator (run=StandaloneEveryCheckpoint()).")
    for name in names or ():
        if name not in available:
            raise ConfigError(unknown_name("stand-alone evaluator", name, available, at="--evals"))
