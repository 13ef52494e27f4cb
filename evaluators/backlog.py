"""`Backlog`: what waits to be evaluated on one trial, kept from the trainer's rotation while somebody is at it."""

from __future__ import annotations

import collections
import logging
import os
import pathlib
import time
from collections.abc import Iterable

from evaluators import ledger, trial, watcher
from kauldron_core import rundir

_logger = logging.getLogger(__name__)

_TTL_S = 60.0
_CHECK_S = 10.0
"""Time between two looks at whether a watch is still held, or can be had."""


class RunWatch:
    """The claim to see to some evaluators for all trials of a run, also for those that have not begun.

    A trial may save and remove its first checkpoints before anybody has looked at it; with this they stay.
    """

    def __init__(self, run_dir: str | os.PathLike[str], names: Iterable[str]):
        """Claims what nobody else holds."""
        self._run_dir = run_dir
        self._leases: dict[str, rundir.Lease | None] = dict.fromkeys(names)
        self._checked_at = -_CHECK_S
        self.check()

    def check(self) -> None:
        """Claims what was lost, or has become free, if it is time for a look."""
        if time.monotonic() - self._checked_at < _CHECK_S:
            return
        self._checked_at = time.monotonic()
        for name, lease in self._leases.items():
            if lease is None or not lease.heartbeat():
                if lease is not None:
                    lease.release()
                path = rundir.run_watch_path(self._run_dir, name)
                self._leases[name] = _claim(path, name)

    def holds(self, name: str) -> bool:
        """Returns whether the claim on evaluator `name` stands."""
        return self._leases.get(name) is not None

    def close(self) -> None:
        """Gives the claims back. A second call does nothing."""
        while self._leases:
            lease = self._leases.popitem()[1]
            if lease is not None:
                lease.release()


class Backlog:
    """What is due on a trial, for whoever sees to its stand-alone evaluators (the driver of a sweep, a follower).

    It holds one lease for each evaluator, with a heartbeat, and tells beside it what is due at each look. The trainer
    keeps those checkpoints. Where checkpoints are removed at all, only the newest `max_pending` wait; an older one is
    recorded as skipped, unless somebody evaluates it just now.
    """

    def __init__(self, trial_dir: str | os.PathLike[str], *, run_watch: RunWatch | None = None):
        """Claims nothing yet; that comes with the first look.

        Args:
          trial_dir: The trial's folder.
          run_watch: The caller's claim on the whole run. Only what it does not hold is claimed for this trial.
        """
        self._run_watch = run_watch
        self._trial = rundir.TrialDir(trial_dir)
        self._watches: dict[str, rundir.Lease] = {}
        self._told: dict[str, rundir.Pending] = {}
        self._checked_at = -_CHECK_S

    def look(self, *, finished: bool) -> list[tuple[str, int]]:
        """Returns the (evaluator name, step) pairs that are due, oldest first, and tells the trainer of them.

        Args:
          finished: Whether training has ended: nothing is removed any more, so nothing is claimed, told or skipped.
        """
        if finished:
            return ledger.due(self._trial, finished=True)
        if time.monotonic() - self._checked_at >= _CHECK_S:
            self._checked_at = time.monotonic()
            self._hold_watches()
        # In this order: a checkpoint that lands in between is newer than `seen`, and thereby kept.
        seen = max(watcher.committed_steps(self._trial.checkpoints), default=-1)
        due = self._without_too_many(ledger.due(self._trial, finished=False))
        self._tell(due, seen)
        return due

    def close(self) -> None:
        """Gives the leases back. A second call does nothing."""
        while self._watches:
            self._watches.popitem()[1].release()

    def _hold_watches(self) -> None:
        for name in trial.standalone_strategies(self._trial):
            watch = self._watches.get(name)
            is_watched_by_run = rundir.is_watched_by_run(self._trial, name)
            if watch is not None and (is_watched_by_run or not watch.heartbeat()):
                self._watches.pop(name).release()
                watch = None
            if watch is None and not is_watched_by_run:
                self._told.pop(name, None)
                watch = _claim(rundir.watch_path(self._trial, name), name)
                # None: somebody else sees to this evaluator, and tells what is due.
                if watch is not None:
                    self._watches[name] = watch

    def _names(self) -> list[str]:
        """Returns the evaluators that this process is to tell of."""
        by_run = self._run_watch
        names = trial.standalone_strategies(self._trial)
        return [name for name in names if name in self._watches or (by_run is not None and by_run.holds(name))]

    def _without_too_many(self, due: list[tuple[str, int]]) -> list[tuple[str, int]]:
        limits = trial.pending_limits(self._trial)
        waiting: dict[str, list[int]] = collections.defaultdict(list)
        for name, step in due:
            if name in self._names() and not rundir.Lease.is_live(rundir.work_path(self._trial, name, step)):
                waiting[name].append(step)
        skipped: set[tuple[str, int]] = set()
        for name, steps in waiting.items():
            limit = limits[name]
            skipped |= {(name, step) for step in steps[:-limit]} if limit is not None else set()
        for name, step in sorted(skipped, key=lambda pair: pair[1]):
            self._skip(name, step, limits[name])
        return [pair for pair in due if pair not in skipped]

    def _skip(self, name: str, step: int, limit: int | None) -> None:
        record = {
            "status": "skipped",
            "values": {},
            "num_examples": 0,
            "error": f"more than {limit} checkpoints were waiting (max_pending), the oldest was left out",
            "finished_ms": time.time_ns() // 1_000_000,
        }
        if rundir.write_eval_result(self._trial, name, step, record):
            _logger.warning("%s: evaluator %s at step %d skipped: %s", self._trial.name, name, step, record["error"])

    def _tell(self, due: list[tuple[str, int]], seen: int) -> None:
        for name in self._names():
            limit = trial.pending_limits(self._trial)[name]
            pending = rundir.Pending(
                due=tuple(step for other, step in due if other == name),
                seen=seen,
                max_pending=rundir.DEFAULT_MAX_PENDING if limit is None else limit,
            )
            if self._told.get(name) != pending:
                rundir.write_pending(self._trial, name, pending)
                self._told[name] = pending


def _claim(path: pathlib.Path, name: str) -> rundir.Lease | None:
    """Claims a watch, with a heartbeat of its own: the next look may come after a long evaluation."""
    lease = rundir.Lease.acquire(path, _TTL_S, note=f"evaluating for {name}")
    return None if lease is None else lease.keep_alive()
