"""Evaluation beside training that runs elsewhere: each checkpoint as it lands, until there will be no more."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, get_args

from evaluators import jobs
from evaluators import trial as trial_lib
from evaluators.backlog import Backlog
from evaluators.checkpoint_evaluator import CheckpointEvaluator
from kauldron_core import rundir
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
    if order not in get_args(Order):
        raise ConfigError(unknown_name("order", order, get_args(Order), at="--order"))
    wanted = None if names is None else set(names)
    worker = CheckpointEvaluator(trust=trust)
    records: list[Record] = []
    news_s = time.monotonic()
    with contextlib.closing(_Followed(run_or_trial, wanted)) as followed:
        while True:
            # In this order: a checkpoint that lands between the two looks is seen in the next round.
            has_ended = followed.has_ended()
            due = followed.due()
            if order == "latest":
                due = _latest_only(due)
            if due:
                trial, name, step = due[0 if order == "oldest" else -1]
                record = worker.evaluate(trial, name, step, shards=shards)
                records.append({"trial": trial.name, **record})
                news_s = time.monotonic()
                if on_record is not None:
                    on_record(records[-1])
            elif has_ended:
                return records
            elif time.monotonic() - news_s > patience_s:
                waiting = ", ".join(trial.name for trial in followed.running())
                raise RunFailed(f"no new checkpoint for {patience_s:g} s, and training has not ended: {waiting}.")
            else:
                time.sleep(poll_s)


class _Followed:
    """The trials of a run, with what waits on each."""

    def __init__(self, run_or_trial: str | os.PathLike[str], names: set[str] | None):
        self._path = run_or_trial
        self._names = names
        self._backlogs: dict[str, tuple[TrialDir, Backlog]] = {}
        for trial in self._trials():
            _check_names(trial, names)

    def due(self) -> list[tuple[TrialDir, str, int]]:
        """Returns what waits, the oldest checkpoint of all trials first."""
        found = [
            (trial, name, step)
            for trial, backlog in self._open()
            for name, step in backlog.look(finished=has_ended(trial))
            if self._names is None or name in self._names
        ]
        return sorted(found, key=lambda task: task[2])

    def running(self) -> list[TrialDir]:
        """Returns the trials whose training has not ended."""
        return [trial for trial in self._trials() if not has_ended(trial)]

    def has_ended(self) -> bool:
        return not self.running()

    def close(self) -> None:
        for _, backlog in self._backlogs.values():
            backlog.close()

    def _trials(self) -> list[TrialDir]:
        return jobs.find_trials(self._path)

    def _open(self) -> Iterator[tuple[TrialDir, Backlog]]:
        for trial in self._trials():
            if trial.name not in self._backlogs:
                self._backlogs[trial.name] = (trial, Backlog(trial))
            yield self._backlogs[trial.name]


def _latest_only(due: list[tuple[TrialDir, str, int]]) -> list[tuple[TrialDir, str, int]]:
    """Returns the newest checkpoint of each trial and evaluator, and records the others as skipped."""
    latest = {(trial.name, name): step for trial, name, step in due}
    for trial, name, step in due:
        if step != latest[trial.name, name]:
            record = {"status": "skipped", "values": {}, "num_examples": 0, "error": "only the latest was asked for"}
            rundir.write_eval_result(trial, name, step, {**record, "finished_ms": time.time_ns() // 1_000_000})
    return [task for task in due if task[2] == latest[task[0].name, task[1]]]


def has_ended(trial: TrialDir) -> bool:
    """Returns whether the training of a trial has ended: its status says so, or its own last event."""
    if rundir.read_status(trial).get("status") in rundir.TERMINAL:
        return True
    events = rundir.read_events(trial.events)
    return any(event["kind"] == "done" and event.get("status") != "preempted" for event in events)


def _check_names(trial: TrialDir, names: set[str] | None) -> None:
    available = trial_lib.standalone_strategies(trial)
    if not available:
        raise ConfigError(f"--follow: {trial.name} has no stand-alone evaluator (run=StandaloneEveryCheckpoint()).")
    for name in names or ():
        if name not in available:
            raise ConfigError(unknown_name("stand-alone evaluator", name, available, at="--evals"))
