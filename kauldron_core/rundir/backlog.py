"""`Backlog`: what waits to be evaluated on one trial, kept from the trainer's rotation while somebody is at it."""

from __future__ import annotations

import collections
import os
import pathlib
import time
from collections.abc import Callable, Iterable, Mapping

from kauldron_core.rundir import committed, ledger, pending, unevaluated
from kauldron_core.rundir.layout import TrialDir
from kauldron_core.rundir.leases import Lease

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
        self._leases: dict[str, Lease | None] = dict.fromkeys(names)
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
                path = pending.run_watch_path(self._run_dir, name)
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
    recorded as skipped, unless somebody evaluates it just now. Of what a blocking evaluator wants none is skipped.
    What was due and is gone is recorded as skipped, too.
    """

    def __init__(
        self,
        trial_dir: str | os.PathLike[str],
        wanted: Callable[[], Mapping[str, ledger.Wanted]],
        *,
        run_watch: RunWatch | None = None,
    ):
        """Claims nothing yet; that comes with the first look.

        Args:
          trial_dir: The trial's folder.
          wanted: Returns what its stand-alone evaluators want, by name; asked at each look.
          run_watch: The caller's claim on the whole run. Only what it does not hold is claimed for this trial.
        """
        self._run_watch = run_watch
        self._trial = TrialDir(trial_dir)
        self._wanted = wanted
        self._watches: dict[str, Lease] = {}
        self._written: dict[str, pending.Pending] = {}
        self._checked_at = -_CHECK_S

    def look(self, *, finished: bool) -> list[tuple[str, int]]:
        """Returns the (evaluator name, step) pairs that are due, oldest first, and tells the trainer of them.

        Args:
          finished: Whether training has ended: nothing is removed any more, so nothing is claimed, written or left out.
        """
        wanted = self._wanted()
        if finished:
            unevaluated.record_removed(self._trial, wanted, finished=True)
            return ledger.due(self._trial, wanted, finished=True)
        if time.monotonic() - self._checked_at >= _CHECK_S:
            self._checked_at = time.monotonic()
            self._hold_watches(wanted)
            unevaluated.record_removed(self._trial, wanted, finished=False)
        # In this order: a checkpoint that lands in between is newer than `seen`, and thereby kept.
        seen = max(committed.committed_steps(self._trial.checkpoints), default=-1)
        due = self._without_too_many(ledger.due(self._trial, wanted, finished=False), wanted)
        self._tell(due, seen, wanted)
        return due

    def close(self) -> None:
        """Gives the leases back. A second call does nothing."""
        while self._watches:
            self._watches.popitem()[1].release()

    def _hold_watches(self, names: Iterable[str]) -> None:
        for name in names:
            watch = self._watches.get(name)
            is_watched_by_run = pending.is_watched_by_run(self._trial, name)
            if watch is not None and (is_watched_by_run or not watch.heartbeat()):
                self._watches.pop(name).release()
                watch = None
            if watch is None and not is_watched_by_run:
                self._written.pop(name, None)
                watch = _claim(pending.watch_path(self._trial, name), name)
                # None: somebody else sees to this evaluator, and tells what is due.
                if watch is not None:
                    self._watches[name] = watch

    def _written_here(self, names: Iterable[str]) -> list[str]:
        """Returns the evaluators that this process is to tell of."""
        by_run = self._run_watch
        return [name for name in names if name in self._watches or (by_run is not None and by_run.holds(name))]

    def _without_too_many(
        self, due: list[tuple[str, int]], wanted: Mapping[str, ledger.Wanted]
    ) -> list[tuple[str, int]]:
        own = self._written_here(wanted)
        limits = {name: None if one.is_blocking else one.max_pending for name, one in wanted.items()}
        waiting: dict[str, list[int]] = collections.defaultdict(list)
        for name, step in due:
            if name in own and not Lease.is_live(pending.work_path(self._trial, name, step)):
                waiting[name].append(step)
        skipped: set[tuple[str, int]] = set()
        for name, steps in waiting.items():
            limit = limits[name]
            skipped |= {(name, step) for step in steps[:-limit]} if limit is not None else set()
        for name, step in sorted(skipped, key=lambda pair: pair[1]):
            why = f"more than {limits[name]} checkpoints were waiting (max_pending), the oldest was left out"
            unevaluated.record_skipped(self._trial, name, step, why)
        return [pair for pair in due if pair not in skipped]

    def _tell(self, due: list[tuple[str, int]], seen: int, wanted: Mapping[str, ledger.Wanted]) -> None:
        for name in self._written_here(wanted):
            limit = wanted[name].max_pending
            pending_now = pending.Pending(
                due=tuple(step for other, step in due if other == name),
                seen=seen,
                max_pending=pending.DEFAULT_MAX_PENDING if limit is None else limit,
                is_blocking=wanted[name].is_blocking,
            )
            if self._written.get(name) != pending_now:
                pending.write_pending(self._trial, name, pending_now)
                self._written[name] = pending_now


def _claim(path: pathlib.Path, name: str) -> Lease | None:
    """Claims a watch, with a heartbeat of its own: the next look may come after a long evaluation."""
    lease = Lease.acquire(path, _TTL_S, note=f"evaluating for {name}")
    return None if lease is None else lease.keep_alive()
