"""`CheckpointEvaluator`: one checkpoint, one evaluator, one record. A plain class; actors wrap it."""

from __future__ import annotations

import collections
import logging
import os
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from evaluators import trial as trial_lib
from evaluators import watcher
from evaluators.shards import evaluate_in_shards
from evaluators.trial import Changes
from kauldron_core import konfig, rundir
from kauldron_core.errors import ConfigError, unknown_name
from kauldron_core.rundir import Record, TrialDir

_logger = logging.getLogger(__name__)
_T = TypeVar("_T")

_MAX_TRIALS = 4  # Open experiments hold their data; a trial's checkpoints mostly come one after the other.
_MAX_EVALUATORS = 16
_WAIT_S = 0.2
_WITHOUT_OPTIMIZER = ("step", "params", "collections")


class Experiment(Protocol):
    """What is needed of a trainer."""

    @property
    def evals(self) -> Mapping[str, Any]: ...

    @property
    def checkpointer(self) -> Any: ...

    @property
    def state_specs(self) -> Any: ...


class CheckpointEvaluator:
    """Evaluates checkpoints and records what came out, each once.

    It stays warm between calls: an experiment is built once, and evaluators that read the same data, losses, metrics
    and model (trials that differ in their optimizer only) share one compiled program.
    """

    def __init__(self, *, trust: Sequence[str] = ()):
        """Starts empty.

        Args:
          trust: Packages whose names configs may call, beside the built-in list.
        """
        if trust:
            konfig.trust(*trust)
        self._trials = _Recent[_OpenTrial](_MAX_TRIALS)
        self._evaluators = _Recent[Any](_MAX_EVALUATORS)

    def evaluate(
        self,
        trial_dir: str | os.PathLike[str],
        name: str,
        step: int,
        *,
        again: bool = False,
        as_name: str | None = None,
        changes: Changes | None = None,
        shards: int = 1,
    ) -> Record:
        """Returns the record of evaluator `name` on the checkpoint at `step`, evaluating it unless there is one.

        While another process evaluates the same, this waits for its record. Failures are recorded too, once, and
        not raised.

        Args:
          trial_dir: The trial's folder.
          name: The evaluator's name in the config.
          step: The checkpoint's step.
          again: Evaluate though there is a record, and replace it; the old one is kept. What fails replaces nothing
            that is done.
          as_name: Name to record under; `name` by default.
          changes: Changes of the config for this evaluation.
          shards: Evaluate so many disjoint shares of the data, one after the other, and merge their states.
        """
        folder, target = TrialDir(trial_dir), as_name or name
        standing = rundir.read_eval_result(folder, target, step)
        if standing is not None and not again:
            return standing
        lease = _claim(folder, target, step)
        try:
            # Whoever held the lease before may have just finished.
            standing = rundir.read_eval_result(folder, target, step)
            if standing is not None and not again:
                return standing
            record = {"evaluator": target, "step": step, **self._measure(folder, target, name, step, changes, shards)}
            if standing is not None and standing.get("status") == "done" and record["status"] != "done":
                return record
            is_first = rundir.write_eval_result(folder, target, step, record, again=again)
            return record if is_first else rundir.read_eval_result(folder, target, step) or record
        finally:
            lease.release(forget=True)

    def open(self, trial_dir: str | os.PathLike[str], changes: Changes | None = None) -> Experiment:
        """Returns the trial's experiment, built once.

        Raises:
          ConfigError: If the config can't be built.
        """
        return self._open(TrialDir(trial_dir), changes or Changes()).experiment

    def _open(self, folder: TrialDir, changes: Changes) -> _OpenTrial:
        key = (os.path.abspath(folder), folder.config_path.stat().st_mtime_ns, changes.key())
        return self._trials.get(key, lambda: _OpenTrial(folder, changes))

    def _measure(
        self, folder: TrialDir, target: str, name: str, step: int, changes: Changes | None, shards: int
    ) -> Record:
        started, fingerprint = time.monotonic(), ""
        saved_ms = int(1000 * watcher.saved_at_s(folder.checkpoints, step))
        try:
            opened = self._open(folder, changes or Changes())
            fingerprint = opened.fingerprint(name)
            evaluator = self._evaluators.get(opened.program_key(name), lambda: opened.evaluator(name))
            state = opened.restore(step, evaluator)
            begun = time.monotonic()
            result = evaluator.evaluate(state) if shards == 1 else evaluate_in_shards(evaluator, state, shards)
            measured_s = time.monotonic() - begun
            table = _write_examples(folder, target, step, getattr(result, "examples", None))
        except Exception as error:
            # One bad checkpoint, or one bad evaluator, must not end the others.
            found = _failure(error, is_gone=not watcher.is_committed(folder.checkpoints, step))
            _logger.warning(
                "%s: evaluator %s at step %d %s: %s", folder.name, name, step, found["status"], found["error"]
            )
        else:
            values = {key: float(value) for key, value in result.values.items()}
            speed = round(result.num_examples / max(measured_s, 1e-9), 3)
            found = {"status": "done", "values": values, "num_examples": int(result.num_examples), "error": None}
            found |= {"examples_per_s": speed, **table}
        seconds = round(time.monotonic() - started, 6)
        times = {"saved_ms": saved_ms, "finished_ms": time.time_ns() // 1_000_000}
        return {"fingerprint": fingerprint, **found, "seconds": seconds, **times}


class _OpenTrial:
    """A trial's config and the experiment built from it."""

    def __init__(self, folder: TrialDir, changes: Changes):
        self.cfg = trial_lib.read_config(folder, changes)
        # The stored config has none, so that a run directory can be moved.
        self.cfg.workdir = os.path.abspath(folder)
        from kauldron_core import (
            sharding,
        )  # JAX, which who opens a trial needs, and who only asks what is due does not.

        self.experiment: Experiment = sharding.fitted(konfig.resolve(self.cfg))

    def fingerprint(self, name: str) -> str:
        self._check(name)
        return trial_lib.evaluator_fingerprint(self.cfg, name)

    def program_key(self, name: str) -> str:
        return trial_lib.program_fingerprint(self.cfg, name)

    def evaluator(self, name: str) -> Any:
        return self.experiment.evals[name]

    def restore(self, step: int, evaluator: Any) -> Any:
        """Returns the state at `step`, without the optimizer's part where `evaluator` can do without."""
        if self.experiment.checkpointer is None:
            raise ConfigError("checkpointer: None, so there are no checkpoints to evaluate.")
        only = None if getattr(evaluator, "needs_opt_state", True) else _WITHOUT_OPTIMIZER
        return self.experiment.checkpointer.load(self.experiment.state_specs, step=step, only=only).state

    def _check(self, name: str) -> None:
        names = trial_lib.evaluator_nodes(self.cfg)
        if name not in names:
            raise ConfigError(unknown_name("evaluator", name, names, at="evals"))


class _Recent(Generic[_T]):
    """The last few values that were made, by key."""

    def __init__(self, size: int):
        self._size = size
        self._values: collections.OrderedDict[Any, _T] = collections.OrderedDict()

    def get(self, key: Any, make: Callable[[], _T]) -> _T:
        if key not in self._values:
            self._values[key] = make()
        self._values.move_to_end(key)
        while len(self._values) > self._size:
            self._values.popitem(last=False)
        return self._values[key]


def _claim(folder: TrialDir, name: str, step: int) -> rundir.Lease:
    path = rundir.work_path(folder, name, step)
    is_told = False
    while (lease := rundir.Lease.acquire(path, note=f"evaluating {name} at step {step}")) is None:
        if not is_told:
            _logger.info("%s: %s at step %d: waiting for %s", folder.name, name, step, rundir.read_holder(path))
            is_told = True
        time.sleep(_WAIT_S)
    return lease.keep_alive()


def _write_examples(folder: TrialDir, name: str, step: int, examples: list[dict[str, Any]] | None) -> Record:
    """Writes the rows of examples beside the record, if there are any, and returns what the record says of them."""
    if examples is None:
        return {}
    path = rundir.result_path(folder, name, step).with_suffix(".parquet")
    rundir.write_examples(path, examples)
    return {"examples": path.name}


def _failure(error: Exception, *, is_gone: bool) -> Record:
    if is_gone:
        text = "the checkpoint was removed before it could be evaluated"
        return {"status": "skipped", "values": {}, "num_examples": 0, "error": text}
    text = " ".join(str(error).split())[:500]
    return {
        "status": "failed",
        "values": {},
        "num_examples": 0,
        "error": f"{type(error).__name__}: {text}",
        "traceback": "".join(traceback.format_exception(error))[-8000:],
    }
