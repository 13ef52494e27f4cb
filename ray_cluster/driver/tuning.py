"""Runs trials on Ray Tune, the engine under explicit sweeps and searches alike."""

from __future__ import annotations

import contextlib
import logging
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray import tune

from kauldron_core import rundir
from ray_cluster.driver.board import StatusBoard
from ray_cluster.workers.supervisor import Supervisor, SupervisorSettings

_logger = logging.getLogger(__name__)

_NAME = "sweep"
_PATIENCE_S, _TELL_EVERY_S = 10.0, 60.0
_WORKER_FACTS = ("node", "pid", "platform")
_MAX_SETUP_ERRORS = 3
"""Trials that may fail before their first step with the same error, until the rest is not even tried."""


def describe(
    name: str, kind: str, settings: Mapping[str, SupervisorSettings], *, members: Sequence[str] = ()
) -> dict[str, Any]:
    """Returns what the supervisor of a trial or pack is told.

    Args:
      name: The trial, or the pack.
      kind: The entry of `settings` that fits its resources.
      settings: Settings of the supervisors.
      members: The trials of the pack.
    """
    own = {"members": list(members)} if members else {}
    asked = settings[kind]
    # A slice is asked for by the supervisor itself.
    bundles = [asked.resources] * asked.hosts if asked.tpu_slice is None else []
    return {"name": name, "kind": kind, "bundles": bundles, **own}


def run_trials(
    trials: Sequence[Mapping[str, Any]],
    *,
    settings: Mapping[str, SupervisorSettings],
    board: StatusBoard,
    storage: pathlib.Path,
    max_concurrent: int | None,
    is_stopping: Callable[[], bool],
    on_broken_setup: Callable[[str], None],
    adaptive: Adaptive | None = None,
) -> Watcher:
    """Returns when every trial has ended, or all running ones have saved after a stop was asked for.

    Args:
      trials: The trials to run, each as `describe` says; with a searcher they are its business.
      settings: Settings of the supervisors.
      board: Gets the statuses.
      storage: Folder for Tune's own files, which nobody reads again; removed at the end.
      max_concurrent: Most trials at a time.
      is_stopping: Whether the sweep shall end early.
      on_broken_setup: Called with the error when workers can't start, for the same reason in several trials.
      adaptive: The searcher and scheduler, if there are any.
    """
    # Its progress is ours to show, and a failed trial is told by the board.
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    searcher = adaptive.search_alg if adaptive is not None else None
    watcher = Watcher(board, on_broken_setup, is_adaptive=adaptive is not None)
    max_failures = max(setting.max_failures for setting in settings.values())
    tuner = tune.Tuner(
        tune.with_parameters(Supervisor, settings=dict(settings)),
        param_space={} if searcher is not None else {"trial": tune.grid_search([dict(trial) for trial in trials])},
        tune_config=tune.TuneConfig(
            reuse_actors=True,
            max_concurrent_trials=max_concurrent,
            **(vars(adaptive) if adaptive is not None else {}),
            trial_dirname_creator=lambda trial: trial.trial_id,
        ),
        run_config=tune.RunConfig(
            name=_NAME,
            storage_path=str(storage),
            verbose=0,
            callbacks=[watcher],
            stop=_StopWhenIdle(is_stopping, watcher),
            failure_config=tune.FailureConfig(max_failures=max_failures),
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
        ),
    )
    try:
        tuner.fit()
    finally:
        with contextlib.suppress(OSError):
            rundir.remove(storage, inside=storage.parent)
    return watcher


@dataclass(frozen=True, kw_only=True)
class Adaptive:
    """What makes, ends or changes trials while they run, in Tune's own terms.

    Attributes:
      search_alg: Makes them; None: they are given.
      scheduler: Ends or changes them; None: nobody does.
      num_samples: Most trials that the searcher makes.
      metric: What both look at.
      mode: Which end of it is good.
    """

    search_alg: Any = None
    scheduler: Any = None
    num_samples: int = 1
    metric: str = ""
    mode: str = "min"


class Watcher(tune.Callback):
    """Takes Tune's reports to the status board, in the driver.

    Attributes:
      first_ready_at: When the first worker was ready for its trial, in seconds since 1970.
      broken: Trials of packs that have failed, which may do better alone, with the error.
    """

    def __init__(self, board: StatusBoard, on_broken_setup: Callable[[str], None], *, is_adaptive: bool = False):
        self._board = board
        self._is_adaptive = is_adaptive
        self._on_broken_setup = on_broken_setup
        self._setup_errors: dict[str, set[str]] = {}
        self._running: set[str] = set()
        self._written: dict[str, Any] = {}
        self._tell_at = time.monotonic() + _PATIENCE_S
        self.first_ready_at: float | None = None
        self.broken: dict[str, str] = {}

    def __getstate__(self) -> dict[str, Any]:
        # Tune pickles its callbacks at the start; this one belongs to this process and its threads.
        return {}

    def is_idle(self) -> bool:
        """Returns whether no trial is running."""
        return not self._running

    def on_step_begin(self, iteration: int, trials: Sequence[Any], **info: Any) -> None:
        """Says what is waited for where the cluster is full: nothing of ours runs and something could."""
        waiting = [trial for trial in trials if trial.status == "PENDING"]
        if self._running or not waiting:
            self._tell_at = time.monotonic() + _PATIENCE_S
        elif time.monotonic() > self._tell_at:
            self._tell_at = time.monotonic() + _TELL_EVERY_S
            _tell_what_is_waited_for(waiting[0].placement_group_factory.bundles)

    def on_trial_start(self, iteration: int, trials: Sequence[Any], trial: Any, **info: Any) -> None:
        self._running.add(_name(trial))
        if self._is_adaptive:
            # Its first report comes with its first value of the metric.
            for name in _members(trial):
                self._board.set(name, "running")

    def on_trial_result(self, iteration: int, trials: Sequence[Any], trial: Any, result: dict[str, Any], **info: Any):
        name, worker = _name(trial), result["worker"]
        if self.first_ready_at is None and worker:
            self.first_ready_at = worker["ready_at"]
        if result["last_error"]:
            self._board.show_error(name, result["last_error"], members=_members(trial))
        if result["setup_error"] and result["done"]:
            self._count_setup_error(name, result["setup_error"])
        for member, own in result.get("members", {name: {}}).items():
            status = own.get("status", result["status"])
            if status == "failed" and own:
                # What makes a whole pack fail may be the fault of one trial, or of being together.
                self.broken[member] = result["last_error"]
                status = "preempted"
            if status != "untouched":
                self._write_status(member, {**result, **own, "status": status})

    def _write_status(self, name: str, result: dict[str, Any]) -> None:
        """Writes the status file when there is more to say than a higher step: a report comes every second."""
        # What a trial has got over is no error of it.
        kind = "error" if result["status"] == "failed" else "last_error"
        worker = {key: value for key, value in result["worker"].items() if key in _WORKER_FACTS}
        fields = {key: result.get(key) for key in ("num_failures", "reason", "began_ms", "ended_ms", "pack")}
        fields.update({kind: result["last_error"], "worker": worker})
        fields = {key: value for key, value in fields.items() if value}
        if self._written.get(name) != (result["status"], fields):
            self._written[name] = (result["status"], fields)
            self._board.set(name, result["status"], step=result["step"], **fields)

    def _count_setup_error(self, name: str, error: str) -> None:
        trials = self._setup_errors.setdefault(error, set())
        trials.add(name)
        if len(trials) == _MAX_SETUP_ERRORS:
            self._on_broken_setup(error)

    def on_trial_complete(self, iteration: int, trials: Sequence[Any], trial: Any, **info: Any) -> None:
        name = _name(trial)
        self._running.discard(name)
        last = trial.last_result or {}
        if self._is_adaptive and last.get("status") == "running":
            step = last["step"]
            self._board.set(name, "pruned", step=step, reason=f"ended by the scheduler at step {step}")

    def on_trial_error(self, iteration: int, trials: Sequence[Any], trial: Any, **info: Any) -> None:
        self._running.discard(_name(trial))
        error, members = _last_line(trial), _members(trial)
        self._board.show_error(_name(trial), error, members=members)
        for name in members:
            self._board.set(name, "failed", error=error)

    def on_trial_recover(self, iteration: int, trials: Sequence[Any], trial: Any, **info: Any) -> None:
        name = _name(trial)
        self._running.discard(name)
        self._board.show_error(name, f"its supervisor was lost: {_last_line(trial)}", members=_members(trial))


def _tell_what_is_waited_for(bundles: Sequence[Mapping[str, float]]) -> None:
    """Warns of a trial that finds no room; one that has found it and is only starting is none of these."""
    wanted = [dict(bundle) for bundle in bundles if bundle]
    groups = ray.util.placement_group_table().values()
    if any(one["state"] == "CREATED" and list(one["bundles"].values()) == wanted for one in groups):
        return
    free, in_all = ray.available_resources(), ray.cluster_resources()
    shown = ", ".join(f"{name} {free.get(name, 0):g} of {in_all.get(name, 0):g}" for name in wanted[0])
    asked = ", ".join(f"{name} {amount:g}" for name, amount in wanted[0].items())
    times = f"{len(wanted)} times " if len(wanted) > 1 else ""
    _logger.warning("waiting for %s%s on one node, for a trial. Free on the cluster now: %s", times, asked, shown)


class _StopWhenIdle(tune.Stopper):
    """Ends a run that was asked to stop as soon as its running trials have saved; the others are never begun."""

    def __init__(self, is_stopping: Callable[[], bool], watcher: Watcher):
        self._is_stopping = is_stopping
        self._watcher = watcher

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._is_stopping() and self._watcher.is_idle()


def _name(trial: Any) -> str:
    return trial.config["trial"]["name"]


def _members(trial: Any) -> list[str]:
    """Returns the trials of the sweep that a trial of Tune stands for."""
    return trial.config["trial"].get("members") or [_name(trial)]


def _last_line(trial: Any) -> str:
    text = str(trial.get_error() or "its process died").strip()
    return text.splitlines()[-1]
