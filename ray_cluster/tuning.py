"""Runs trials on Ray Tune, the engine under explicit sweeps and searches alike."""

from __future__ import annotations

import logging
import pathlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ray import tune

from ray_cluster.board import StatusBoard
from ray_cluster.supervisor import Supervisor, SupervisorSettings

_NAME = "sweep"
_WORKER_FACTS = ("node", "pid", "platform")
_MAX_SETUP_ERRORS = 3
"""Trials that may fail before their first step with the same error, until the rest is not even tried."""


def run_trials(
    kinds: Mapping[str, str],
    *,
    settings: Mapping[str, SupervisorSettings],
    board: StatusBoard,
    storage: pathlib.Path,
    max_concurrent: int | None,
    is_stopping: Callable[[], bool],
    on_broken_setup: Callable[[str], None],
) -> Watcher:
    """Returns when every trial has ended, or all running ones have saved after a stop was asked for.

    Args:
      kinds: For each trial to run, the entry of `settings` that fits its resources.
      settings: Settings of the supervisors.
      board: Gets the statuses.
      storage: Folder for Tune's own files, which nobody reads again; removed at the end.
      max_concurrent: Most trials at a time.
      is_stopping: Whether the sweep shall end early.
      on_broken_setup: Called with the error when workers can't start, for the same reason in several trials.
    """
    # Its progress is ours to show, and a failed trial is told by the board.
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    trials = [{"name": name, "kind": kind, "resources": settings[kind].resources} for name, kind in kinds.items()]
    watcher = Watcher(board, on_broken_setup)
    max_failures = max(setting.max_failures for setting in settings.values())
    tuner = tune.Tuner(
        tune.with_parameters(Supervisor, settings=dict(settings)),
        param_space={"trial": tune.grid_search(trials)},
        tune_config=tune.TuneConfig(
            reuse_actors=True,
            max_concurrent_trials=max_concurrent,
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
        shutil.rmtree(storage, ignore_errors=True)
    return watcher


class Watcher(tune.Callback):
    """Takes Tune's reports to the status board, in the driver.

    Attributes:
      first_ready_at: When the first worker was ready for its trial, in seconds since 1970.
    """

    def __init__(self, board: StatusBoard, on_broken_setup: Callable[[str], None]):
        self._board = board
        self._on_broken_setup = on_broken_setup
        self._setup_errors: dict[str, set[str]] = {}
        self._running: set[str] = set()
        self._written: dict[str, Any] = {}
        self.first_ready_at: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Tune pickles its callbacks at the start; this one belongs to this process and its threads.
        return {}

    def is_idle(self) -> bool:
        """Returns whether no trial is running."""
        return not self._running

    def on_trial_start(self, iteration: int, trials: Sequence[Any], trial: Any, **info: Any) -> None:
        self._running.add(_name(trial))

    def on_trial_result(self, iteration: int, trials: Sequence[Any], trial: Any, result: dict[str, Any], **info: Any):
        name, worker = _name(trial), result["worker"]
        if self.first_ready_at is None and worker:
            self.first_ready_at = worker["ready_at"]
        if result["last_error"]:
            self._board.show_error(name, result["last_error"])
        if result["setup_error"] and result["done"]:
            self._count_setup_error(name, result["setup_error"])
        if result["status"] != "untouched":
            self._write_status(name, result)

    def _write_status(self, name: str, result: dict[str, Any]) -> None:
        """Writes the status file when there is more to say than a higher step: a report comes every second."""
        # What a trial has got over is no error of it.
        kind = "error" if result["status"] == "failed" else "last_error"
        worker = {key: value for key, value in result["worker"].items() if key in _WORKER_FACTS}
        fields = {key: result.get(key) for key in ("num_failures", "reason", "began_ms", "ended_ms")}
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
        self._running.discard(_name(trial))

    def on_trial_error(self, iteration: int, trials: Sequence[Any], trial: Any, **info: Any) -> None:
        name = _name(trial)
        self._running.discard(name)
        error = _last_line(trial)
        self._board.show_error(name, error)
        self._board.set(name, "failed", error=error)

    def on_trial_recover(self, iteration: int, trials: Sequence[Any], trial: Any, **info: Any) -> None:
        self._running.discard(_name(trial))
        self._board.show_error(_name(trial), f"its supervisor was lost: {_last_line(trial)}")


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


def _last_line(trial: Any) -> str:
    text = str(trial.get_error() or "unknown error").strip()
    return text.splitlines()[-1]
