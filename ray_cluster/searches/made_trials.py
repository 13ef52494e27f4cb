"""Trials that are made while a sweep runs: where a searcher's points become folders of the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from kauldron_core import rundir
from ray_cluster.driver import layout
from ray_cluster.driver.board import StatusBoard
from ray_cluster.searches.spaces import Point, identity
from ray_cluster.spec import Plan, PlannedTrial, SearchPlan

_OF_NEW_TRIAL = ("config.json", "status.json")
"""What the folder of a trial holds of which nothing has run."""


class GrowingTrials:
    """The trials of a search: those that stand in the run directory, and those that are added.

    Args:
      plan: The plan; its trials stand already.
      search: What a new trial is made with.
      run: The run directory; its lock is held.
      board: Gets the new trials.
      unfinished: Names of the standing trials that have to go on first.
      describe: Returns what the supervisor of a trial is told.

    Attributes:
      trials: All of them, in order.
    """

    def __init__(
        self,
        plan: Plan,
        search: SearchPlan,
        *,
        run: rundir.RunDir,
        board: StatusBoard,
        unfinished: Iterable[str],
        describe: Callable[[PlannedTrial], dict[str, Any]],
    ):
        self._plan = plan
        self._search = search
        self._run = run
        self._board = board
        self._describe = describe
        self.trials = list(plan.trials)
        self._made = Counter(identity(trial.overrides) for trial in plan.trials)
        names = set(unfinished)
        self._waiting = [trial for trial in plan.trials if trial.name in names]
        self._remove_unlisted()

    def waiting(self) -> PlannedTrial | None:
        """Returns a trial that an earlier driver has left unfinished, if any is left."""
        return self._waiting.pop(0) if self._waiting else None

    @property
    def next_number(self) -> int | None:
        """Number of the next trial; None when there are enough."""
        is_enough = len(self.trials) >= self._plan.sweep.num_samples
        return None if is_enough else max((trial.index for trial in self.trials), default=-1) + 1

    def stands(self, point: Point) -> bool:
        """Returns whether a trial has this point."""
        return identity(point) in self._made

    @property
    def num_points(self) -> int:
        """How many different points the trials have."""
        return len(self._made)

    def add(self, point: Point) -> PlannedTrial:
        """Returns a new trial at a point, laid out in the run directory."""
        trial = self._search.make_trial(self.next_number or 0, point)
        # By what it is made with: a config may take a value in another form.
        made = identity(trial.overrides)
        self._made[made] += 1
        if self._made[made] > 1:
            # A trial of its own, whose identity says that its point stood already.
            trial = replace(trial, fingerprint=f"{trial.fingerprint}-{self._made[made]}")
        self._run.trial(trial.name).create(trial.config_json)
        rundir.write_status(self._run.trial(trial.name), "queued")
        self.trials.append(trial)
        # After its folder: whoever reads the list finds the trial.
        layout.write_list(self._run, self.trials)
        self._board.add(trial.name, trial.overrides)
        return trial

    def _remove_unlisted(self) -> None:
        """Removes what a driver has left that was killed between the folder of a trial and its place in the list."""
        listed = {trial.name for trial in self.trials}
        for folder in self._run.trials():
            # One in which anything has happened stays, wherever it comes from.
            is_new = all(path.name in _OF_NEW_TRIAL for path in folder.path.iterdir())
            if is_new and folder.name not in listed and folder.status() == "queued":
                rundir.remove(folder.path, inside=self._run)

    def describe(self, trial: PlannedTrial) -> dict[str, Any]:
        """Returns what the supervisor of a trial is told."""
        return self._describe(trial)

    @property
    def num_missing(self) -> int:
        """How many trials are still to be made or to go on."""
        return max(0, self._plan.sweep.num_samples - len(self.trials)) + len(self._waiting)
