"""What is due on a trial: committed checkpoints times stand-alone evaluators, less what has a record."""

from __future__ import annotations

import dataclasses
import functools
import os
import threading
from collections.abc import Iterable, Mapping
from typing import Protocol

from kauldron_core.rundir import committed, events, results, status
from kauldron_core.rundir.layout import TrialDir


class Strategy(Protocol):
    """When an evaluator runs (`kauldron_core.evals.RunStrategy` fits).

    It may also have `counts_removed`, whether removed checkpoints are to be among the steps, and `min_interval_s`, how
    long after the one before a checkpoint must have been saved.
    """

    def due_steps(self, checkpoint_steps: Iterable[int], is_final: bool) -> list[int]:
        """Returns the checkpoints to evaluate, oldest first."""
        ...


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What a stand-alone evaluator wants of a trial's checkpoints.

    Attributes:
      strategy: Which of them.
      max_pending: How many may wait where others are removed; None is any number.
      is_blocking: Whether none of them is ever left out: removal waits for it.
    """

    strategy: Strategy
    max_pending: int | None = None
    is_blocking: bool = False


def due(trial_dir: str | os.PathLike[str], wanted: Mapping[str, Wanted], *, finished: bool) -> list[tuple[str, int]]:
    """Returns the (evaluator name, step) pairs that wait to be evaluated, oldest checkpoint first.

    Args:
      trial_dir: The trial's folder.
      wanted: What each of its stand-alone evaluators wants, by name.
      finished: Whether its training has ended; the last checkpoint is then due for every one of them.
    """
    folder = TrialDir(trial_dir)
    steps = committed.committed_steps(folder.checkpoints)
    if not steps:
        return []
    recorded = results.list_eval_results(folder)
    last = steps[-1:] if finished else []
    pairs = {
        (name, step)
        for name, one in wanted.items()
        for step in (*_due(folder, name, one.strategy, steps, finished), *last)
    }
    order = {name: position for position, name in enumerate(wanted)}
    return sorted(pairs - recorded, key=lambda pair: (pair[1], order[pair[0]]))


def removed(
    trial_dir: str | os.PathLike[str], wanted: Mapping[str, Wanted], *, finished: bool
) -> list[tuple[str, int]]:
    """Returns the (evaluator name, step) pairs that would be due, and whose checkpoint is there no more.

    Args:
      trial_dir: The trial's folder.
      wanted: What each of its stand-alone evaluators wants, by name.
      finished: Whether its training has ended. Until then what is missing after the newest checkpoint counts as not
        made yet: a damaged one is set aside, and its step is made again.
    """
    folder = TrialDir(trial_dir)
    steps = committed.committed_steps(folder.checkpoints)
    saved = _with_removed(folder, steps)
    gone = {step for step in saved if step not in steps and (finished or step < max(steps, default=-1))}
    if not gone:
        return []
    last = saved[-1:] if finished else []
    pairs = {
        (name, step)
        for name, one in wanted.items()
        for step in (*_due(folder, name, one.strategy, saved, finished), *last)
        if step in gone
    }
    return sorted(pairs - results.list_eval_results(folder), key=lambda pair: (pair[1], pair[0]))


def has_ended(trial_dir: str | os.PathLike[str]) -> bool:
    """Returns whether the training of a trial has ended: its status says so, or its own last event."""
    folder = TrialDir(trial_dir)
    if folder.status() in status.TERMINAL:
        return True
    known = events.read_events(folder.events)
    return any(event["kind"] == "done" and event.get("status") != "preempted" for event in known)


def _due(folder: TrialDir, name: str, strategy: Strategy, steps: list[int], finished: bool) -> list[int]:
    counted = _with_removed(folder, steps) if getattr(strategy, "counts_removed", False) else steps
    found = sorted(set(strategy.due_steps(counted, finished)) & set(steps))
    min_interval_s = getattr(strategy, "min_interval_s", 0.0)
    return _spaced(folder, name, found, min_interval_s) if min_interval_s else found


def _with_removed(folder: TrialDir, steps: list[int]) -> list[int]:
    """Returns the steps of all checkpoints so far. Counting those that are left would shift as they are removed."""
    try:
        made = folder.path.stat().st_ino
    except FileNotFoundError:
        return steps
    return sorted({*steps, *_saved(os.path.abspath(folder.events), made).times_s()})


class _Saved:
    """The checkpoints that a trial ever made, as its events say; each event is read once."""

    def __init__(self, folder: str):
        self._events = events.EventFollower(folder)
        self._times_s: dict[int, float] = {}
        self._lock = threading.Lock()

    def times_s(self) -> dict[int, float]:
        """Returns when each checkpoint so far was saved, by step."""
        with self._lock:
            for event in self._events.poll():
                if event["kind"] == events.RESUMED_FROM:
                    self._times_s = {step: time_s for step, time_s in self._times_s.items() if step <= event["step"]}
                elif event["kind"] == "checkpoint":
                    self._times_s[event["step"]] = event.get("time_ms", 0) / 1000
            return dict(self._times_s)


@functools.lru_cache(maxsize=4096)
def _saved(folder: str, *identity: int) -> _Saved:
    del identity  # In the cache's key: another trial may come to lie in the same place.
    return _Saved(folder)


def _spaced(folder: TrialDir, name: str, steps: list[int], min_interval_s: float) -> list[int]:
    """Returns those of `steps` that were saved long enough after the last one that is evaluated or will be."""
    records = {step: record for (other, step), record in results.read_eval_results(folder).items() if other == name}
    skipped = {step for step, record in records.items() if record.get("status") == "skipped"}
    evaluated = records.keys() - skipped
    times_s = {step: (records[step].get("saved_ms") or 0) / 1000 for step in evaluated}
    times_s |= {step: committed.saved_at_s(folder.checkpoints, step) for step in steps if step not in skipped}
    chosen, last_s = [], float("-inf")
    for step, time_s in sorted(times_s.items()):
        if step in evaluated or time_s - last_s >= min_interval_s:
            last_s = max(last_s, time_s)
            chosen.append(step)
    return [step for step in chosen if step in steps]
