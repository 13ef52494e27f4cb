"""`CheckpointEvaluator`: one checkpoint, one evaluator, one record. A plain class; actors wrap it."""

from __future__ import annotations

import collections
import functools
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from evaluators import trial as trial_lib
from evaluators.packed import OpenPack, parts_for
from evaluators.shards import Share, check_shards, evaluate_in_shards, evaluate_shard, merge_shards
from evaluators.trial import Changes
from kauldron_core import konfig, rundir
from kauldron_core.errors import ConfigError, unknown_name
from kauldron_core.evaluator_nodes import evaluator_fingerprint, evaluator_nodes
from kauldron_core.rundir import Record, TrialDir

_logger = logging.getLogger(__name__)
_T = TypeVar("_T")
_Measured = tuple[Any, float]  # a result, and the seconds that it took

_MAX_TRIALS = 4  # Open experiments hold their data; a trial's checkpoints mostly come one after the other.
_MAX_EVALUATORS = 16
_WAIT_S = 0.2
_MAX_PACKS = 4
_PACK_TTL_S = 600.0  # Many claims, for which nobody beats.


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
        self._packs = _Recent[OpenPack](_MAX_PACKS)

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
        while (lease := rundir.claim_evaluation(folder, target, step, again=again)) is None:
            standing = rundir.read_eval_result(folder, target, step)
            if standing is not None and not again:
                return standing
            time.sleep(_WAIT_S)  # Somebody is at it.
        try:
            started = time.monotonic()

            def measure() -> _Measured:
                evaluator, state = self._prepare(folder, name, step, changes)
                begun = time.monotonic()
                result = evaluator.evaluate(state) if shards == 1 else evaluate_in_shards(evaluator, state, shards)
                return result, time.monotonic() - begun

            found = self._found(folder, target, name, step, measure)
            return self._write(folder, target, name, step, changes, found, started=started, again=again)
        finally:
            lease.release(forget=True)

    def evaluate_pack(
        self,
        trial_dirs: Sequence[str | os.PathLike[str]],
        name: str,
        step: int,
        *,
        again: bool = False,
        as_name: str | None = None,
        changes: Changes | None = None,
    ) -> list[Record]:
        """Returns the records of evaluator `name` on the checkpoints at `step` of trials of one pack; see `evaluate`.

        All are evaluated in one program where that can be done. What another process is at is left to it.
        """
        folders, target = [TrialDir(folder) for folder in trial_dirs], as_name or name
        claims = [rundir.claim_evaluation(one, target, step, ttl_s=_PACK_TTL_S, again=again) for one in folders]
        leases = {folder: lease for folder, lease in zip(folders, claims, strict=True) if lease is not None}
        records: dict[TrialDir, Record] = {}
        try:
            results = self._evaluate_together(list(leases), name, step, changes or Changes())
            for folder, result in zip(leases, results, strict=True):
                found = self._found(folder, target, name, step, lambda result=result: (result, result.seconds))
                started = time.monotonic() - result.seconds
                records[folder] = self._write(folder, target, name, step, changes, found, started=started, again=again)
        except Exception:
            # It may be the fault of one of them, which is recorded when they are looked at one by one.
            _logger.warning("evaluator %s at step %d: trials of a pack one by one", name, step, exc_info=True)
        finally:
            for lease in leases.values():
                lease.release(forget=True)
        options = {"again": again, "as_name": as_name, "changes": changes}
        return [records.get(folder) or self.evaluate(folder, name, step, **options) for folder in folders]

    def _evaluate_together(self, folders: Sequence[TrialDir], name: str, step: int, changes: Changes) -> list[Any]:
        if not folders:
            return []
        places = tuple((os.path.abspath(folder), folder.config_path.stat().st_mtime_ns) for folder in folders)
        open_pack = functools.partial(OpenPack, folders, lambda folder: self._open(folder, changes), changes)
        return self._packs.get((places, changes.key()), open_pack).evaluate(name, step)

    def collect_share(
        self,
        trial_dir: str | os.PathLike[str],
        name: str,
        step: int,
        *,
        index: int,
        count: int,
        changes: Changes | None = None,
    ) -> Share:
        """Returns what share `index` of `count` gives on the checkpoint at `step`, or how it fails. Records nothing.

        For whoever holds the claim on the evaluation and hands its shares to several processes.
        """
        folder = TrialDir(trial_dir)

        def measure() -> Any:
            evaluator, state = self._prepare(folder, name, step, changes)
            return evaluate_shard(evaluator, state, index=index, count=count)

        collected, failure = _attempt(folder, name, step, measure)
        return Share(collected, failure)

    def record_shares(
        self,
        trial_dir: str | os.PathLike[str],
        name: str,
        step: int,
        shares: Sequence[Share],
        *,
        seconds: float,
        again: bool = False,
        as_name: str | None = None,
        changes: Changes | None = None,
    ) -> Record:
        """Returns the record of an evaluation whose shares are all there, written for whoever holds the claim on it.

        Args:
          trial_dir: The trial's folder.
          name: The evaluator's name in the config.
          step: The checkpoint's step.
          shares: All of them. If one failed, the evaluation has failed.
          seconds: How long they took, side by side.
          again: As in `evaluate`.
          as_name: As in `evaluate`.
          changes: As in `evaluate`.
        """
        folder, target = TrialDir(trial_dir), as_name or name
        failure = next((share.failure for share in shares if share.failure is not None), None)

        def measure() -> _Measured:
            evaluator = self._evaluator(self._open(folder, changes or Changes()), name)
            return merge_shards(evaluator, [share.collected for share in shares], step=step, seconds=seconds), seconds

        found = failure or self._found(folder, target, name, step, measure)
        started = time.monotonic() - seconds
        return self._write(folder, target, name, step, changes, found, started=started, again=again)

    def check(
        self, trial_dir: str | os.PathLike[str], name: str, *, changes: Changes | None = None, shards: int = 1
    ) -> None:
        """Looks whether an evaluation can begin: what is the user's to mend is no result.

        Raises:
          ConfigError: If the config can't be built, or there are more shares than batches.
        """
        opened = self._open(TrialDir(trial_dir), changes or Changes())
        if shards > 1:
            check_shards(opened.evaluator(name), shards)

    def open(self, trial_dir: str | os.PathLike[str], changes: Changes | None = None) -> Experiment:
        """Returns the trial's experiment, built once.

        Raises:
          ConfigError: If the config can't be built.
        """
        return self._open(TrialDir(trial_dir), changes or Changes()).experiment

    def _open(self, folder: TrialDir, changes: Changes) -> _OpenTrial:
        key = (os.path.abspath(folder), folder.config_path.stat().st_mtime_ns, changes.key())
        return self._trials.get(key, lambda: _OpenTrial(folder, changes))

    def _prepare(self, folder: TrialDir, name: str, step: int, changes: Changes | None) -> tuple[Any, Any]:
        """Returns the evaluator and the state that it is to look at."""
        opened = self._open(folder, changes or Changes())
        evaluator = self._evaluator(opened, name)
        return evaluator, opened.restore(step, evaluator)

    def _evaluator(self, opened: _OpenTrial, name: str) -> Any:
        opened.check(name)
        return self._evaluators.get(opened.program_key(name), lambda: opened.evaluator(name))

    def _found(self, folder: TrialDir, target: str, name: str, step: int, measure: Callable[[], _Measured]) -> Record:
        """Returns the part of a record that says what came out."""

        def found() -> Record:
            result, seconds = measure()
            return rundir.outcome(folder, target, step, result, seconds=seconds)

        record, failure = _attempt(folder, name, step, found)
        return failure or record or {}

    def _write(
        self,
        folder: TrialDir,
        target: str,
        name: str,
        step: int,
        changes: Changes | None,
        found: Record,
        *,
        started: float,
        again: bool,
    ) -> Record:
        """Records what was found, and returns the record that stands then."""
        fingerprint = _fingerprint(folder, name, changes or Changes())
        seconds = time.monotonic() - started
        return rundir.record_evaluation(
            folder, target, step, found, fingerprint=fingerprint, seconds=seconds, again=again
        )


class _OpenTrial:
    """A trial's config and the experiment built from it."""

    def __init__(self, folder: TrialDir, changes: Changes):
        self.cfg = trial_lib.read_config(folder, changes)
        # The stored config has none, so that a run directory can be moved.
        self.cfg.workdir = os.path.abspath(folder)
        from kauldron_core import sharding  # JAX, which who only asks what is due does without.

        self.experiment: Experiment = sharding.fitted(konfig.resolve(self.cfg))

    def program_key(self, name: str) -> str:
        return trial_lib.program_fingerprint(self.cfg, name)

    def evaluator(self, name: str) -> Any:
        return self.experiment.evals[name]

    def restore(self, step: int, evaluator: Any) -> Any:
        """Returns the state at `step`, without the optimizer's part where `evaluator` can do without."""
        if self.experiment.checkpointer is None:
            raise ConfigError("checkpointer: None, so there are no checkpoints to evaluate.")
        only = parts_for(evaluator)
        return self.experiment.checkpointer.load(self.experiment.state_specs, step=step, only=only).state

    def check(self, name: str) -> None:
        names = evaluator_nodes(self.cfg)
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


def _fingerprint(folder: TrialDir, name: str, changes: Changes) -> str:
    """Returns what identifies the evaluator; nothing where there is none, and the record says why."""
    try:
        cfg = trial_lib.read_config(folder, changes)
    except (OSError, ValueError):
        return ""
    return evaluator_fingerprint(cfg, name) if name in evaluator_nodes(cfg) else ""


def _attempt(folder: TrialDir, name: str, step: int, work: Callable[[], _T]) -> tuple[_T | None, Record | None]:
    """Returns what `work` gives, or else how it failed, as a record says it."""
    try:
        return work(), None
    except Exception as error:
        # One bad checkpoint, or one bad evaluator, must not end the others.
        found = rundir.failure(folder, step, error)
        _logger.warning("%s: evaluator %s at step %d %s: %s", folder.name, name, step, found["status"], found["error"])
        return None, found
