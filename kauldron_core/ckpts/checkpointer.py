"""`Checkpointer`: saves in the background, keeps the newest ones, tells when one is safely on disk."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeVar

import jax
from etils import epath
from jax.experimental import multihost_utils

from kauldron_core import rundir
from kauldron_core.ckpts import layout, mismatch, pointers, reader, retention
from kauldron_core.ckpts.background import BackgroundSaver, SaveFailed
from kauldron_core.ckpts.ownership import OwnedFolder
from kauldron_core.ckpts.pointers import Row
from kauldron_core.ckpts.scores import METRICS, TRAINING, CheckpointScores, Measured
from kauldron_core.ckpts.storage_errors import cause_of
from kauldron_core.errors import ConfigError, listing, unknown_name

_T = TypeVar("_T")
_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Checkpointer:
    """Saves to `workdir/checkpoints/ckpt_N` with Orbax.

    Attributes:
      save_interval_steps: A checkpoint is saved at its multiples, and at the end. None saves by the clock only.
      save_interval_s: Also when so many seconds have passed since the last save began, at the end of the running call.
      max_to_keep: How many of the newest are kept; None keeps all. The latest is always kept. Only checkpoints that
        were written for this folder are ever removed, and none that a live evaluator still waits for.
      keep_every_n_steps: Multiples of it are kept too.
      best_metric: `<evaluator>/<kind>/<name>`, such as `test/losses/total`, measured inside training at the
        checkpoint's step (`train/...` are the training metrics) or by a stand-alone evaluator.
      mode: Whether `max` or `min` of it is best; where unset the metric says it. Losses are best when lowest.
      keep_best: How many of the best are kept too; 1 where there is a metric. Those without a finite value are never
        among them.
      workdir: The folder of the experiment; the trainer's where unset.
    """

    save_interval_steps: int | None = 1_000
    save_interval_s: float | None = None
    max_to_keep: int | None = None
    keep_every_n_steps: int | None = None
    best_metric: str | None = None
    mode: Literal["max", "min"] | None = None
    keep_best: int | None = None
    workdir: str | os.PathLike[str] | None = None

    def __post_init__(self):
        for name in ("save_interval_steps", "max_to_keep", "keep_every_n_steps", "keep_best"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name}: must be at least 1 (or None), not {value}.")
        if self.save_interval_s is not None and not self.save_interval_s > 0:
            raise ConfigError(f"save_interval_s: must be above 0 (or None), not {self.save_interval_s}.")
        if self.mode is not None and self.mode not in rundir.MODES:
            raise ConfigError(unknown_name("mode", self.mode, rundir.MODES, at="mode"))
        if self.best_metric is not None and self.best_metric.count("/") < 1:
            raise ConfigError(
                f"best_metric: {self.best_metric!r} names no evaluator. The form is 'test/losses/total', or "
                "'train/losses/total' for a training metric."
            )
        if self.max_to_keep is None and self.keep_every_n_steps is not None:
            raise ConfigError("keep_every_n_steps: has no effect while max_to_keep is None, which keeps all.")
        if self.keep_best is not None and (self.max_to_keep is None or self.best_metric is None):
            raise ConfigError("keep_best: needs best_metric, and max_to_keep (1 keeps the latest beside the best).")

    def check_evaluators(self, names: Iterable[str]) -> None:
        """Looks whether one of these evaluators, or training, can make `best_metric`.

        Raises:
          ConfigError: If none of them has its name.
        """
        if self._scores_of is not None and self._scores_of not in (*names, TRAINING):
            raise ConfigError(
                unknown_name("evaluator", self._scores_of, [*names, TRAINING], at="checkpointer.best_metric")
            )

    @property
    def _scores_of(self) -> str | None:
        return None if self.best_metric is None else self.best_metric.partition("/")[0]

    @property
    def _mode(self) -> rundir.Mode:
        """Whether most or least is best; of no consequence without a metric."""
        return rundir.Directions().mode(self.best_metric or rundir.TRAINING_LOSS, self.mode, at="checkpointer.mode")

    @property
    def directory(self) -> epath.Path:
        """The folder that holds the checkpoints."""
        if self.workdir is None:
            raise ConfigError("checkpointer.workdir: unset. Give it, or put the checkpointer into a Trainer.")
        rundir.check_path(self.workdir, at="checkpointer.workdir")
        return epath.Path(self.workdir).absolute() / "checkpoints"

    @property
    def all_steps(self) -> list[int]:
        """Steps of the committed checkpoints, ascending."""
        return layout.all_steps(self.directory)

    @property
    def latest_step(self) -> int | None:
        """The newest committed step, None if there is no checkpoint."""
        return layout.latest_step(self.directory)

    @property
    def unfinished_steps(self) -> list[int]:
        """Steps after the newest committed one whose place is taken by something that is no whole checkpoint."""
        newest = self.latest_step
        return [step for step in layout.unfinished_steps(self.directory) if newest is None or step > newest]

    def left_aside(self, damaged_steps: Iterable[int] = ()) -> list[str]:
        """Returns in words which checkpoints a resume does not go on from: those that were cut, and these."""
        cut = [f"ckpt_{step} was not complete" for step in self.unfinished_steps]
        return cut + [f"ckpt_{step} was damaged" for step in damaged_steps]

    def should_save(self, step: int) -> bool:
        """Returns whether the step's number makes a checkpoint due, whatever the time."""
        return self.save_interval_steps is not None and step > 0 and step % self.save_interval_steps == 0

    def is_due(self, step: int) -> bool:
        """Returns whether a checkpoint is due at `step`, which has just been made: by its number, or by the time.

        To be asked where a checkpoint may be made: at the end of a call that makes steps. Where a call ends must not
        depend on it, for a resumed run could not repeat that.
        """
        return self.should_save(step) or (step > 0 and self._is_clock_due())

    def observe(self, step: int, name: str, values: Mapping[str, float]) -> None:
        """Takes what was measured at `step`, to be saved along with it and to tell which checkpoint is best.

        Args:
          step: The step.
          name: The evaluator that measured, or `train`.
          values: Such as `{'losses/total': 0.1}`.

        Raises:
          ConfigError: If `best_metric` is one of this evaluator's, and it does not make it.
        """
        self._measured.add(step, name, values)
        if self._scores is not None and self._scores_of == name:
            self._scores.check(values)

    def save(self, state: Any, data_state: Any = None, *, step: int) -> None:
        """Starts a save and returns once `state` may be changed; the files are written in the background.

        Args:
          state: The state; nothing of it is kept after the call.
          data_state: State of the data iterator, anything that JSON holds.
          step: Its step, above that of every checkpoint in the folder.

        Raises:
          SaveFailed: If this save, or the one before it, failed.
          ConfigError: If the folder holds a checkpoint of this step or a later one.
        """
        self.wait()
        latest = self.latest_step
        if latest is not None and step <= latest:
            raise ConfigError(
                f"{self.directory}: can't save step {step}, there is a checkpoint at step {latest}. "
                "Resume from it, or start in an empty folder."
            )
        metadata = self._metadata(state, step)
        with self._naming_step(step):
            if jax.process_index() == 0:  # It alone writes metadata, renames and removes.
                self._folder.begin_save(step)
                metadata["owner"] = self._folder.mark
        path = layout.step_path(self.directory, step)
        saved = rundir.strict({"data_state": data_state, "metadata": metadata})
        self._saver.start(path, state=state, **saved)
        self._clock.restart()

    def point(self, target: Row, spec: Any, data_state: Any = None, *, step: int) -> None:
        """Makes a checkpoint whose arrays are a row of a pack's, and removes checkpoints that are too many.

        Args:
          target: The row, in a checkpoint that was committed.
          spec: Shapes of the state of the trial.
          data_state: State of the data iterator.
          step: Its step.
        """
        with self._naming_step(step):
            self._folder.begin_save(step)
            metadata = {**self._metadata(spec, step), "owner": self._folder.mark}
            pointers.write(layout.step_path(self.directory, step), target, data_state=data_state, metadata=metadata)
        self.remove_surplus()

    def _metadata(self, state: Any, step: int) -> dict[str, Any]:
        return {
            "format": 1,
            "step": step,
            "saved_at": time.time(),
            METRICS: self._measured.at(step),
            "state": mismatch.describe(state),
        }

    def finished(self) -> tuple[int, ...]:
        """Returns the steps that were committed since the last call, and removes checkpoints that are too many.

        Costs next to nothing, so a loop may ask at each step.

        Raises:
          SaveFailed: If a save failed.
        """
        if "_saver" not in self.__dict__:
            return ()
        steps = self._saver.take_finished()
        if steps:
            self.remove_surplus()
        return steps

    def wait(self) -> None:
        """Waits until nothing is being written.

        Raises:
          SaveFailed: If the save failed.
        """
        if "_saver" in self.__dict__:
            self._saver.wait()

    def close(self) -> None:
        """Waits like `wait` and frees the background threads. The checkpointer can be used again."""
        saver = self.__dict__.pop("_saver", None)
        if saver is not None:
            saver.close()

    def restore(self, template: _T, *, step: int = -1, noop_if_missing: bool = False) -> _T:
        """Returns the state at `step`, by default the newest that can be read. See `load`.

        Args:
          template: The state, or its shapes.
          step: Which checkpoint; -1 is the newest.
          noop_if_missing: Return `template` where there is no checkpoint at all, instead of raising.
        """
        if noop_if_missing and step == -1 and self.latest_step is None:
            return template
        return self.load(template, step=step).state

    def load(self, template: Any, *, step: int = -1, only: Collection[str] | None = None) -> reader.Checkpoint:
        """Returns the checkpoint at `step` with its data state, by default the newest that can be read.

        See `reader.load`; `only=('step', 'params', 'collections')` reads no optimizer.
        """
        return reader.load(self.directory, template, step=step, only=only)

    def set_aside(self, step: int) -> None:
        """Renames a damaged checkpoint to `ckpt_N.damaged-1`, so that its step can be saved again. Removes nothing."""
        if jax.process_index() == 0:
            self._folder.set_aside(step)

    def reasons_to_keep(self) -> dict[int, list[str]]:
        """Returns why each committed checkpoint stays, by step; those with an empty list go with the next save.

        Raises:
          ConfigError: If no evaluation makes `best_metric`, or nothing says which end of it is best.
        """
        steps = self.all_steps
        reasons = retention.reasons_to_keep(
            steps,
            max_to_keep=self.max_to_keep,
            keep_every_n_steps=self.keep_every_n_steps,
            scores=self.scores(),
            keep_best=self.keep_best or 1,
            mode=self._mode,
        )
        candidates = [step for step in steps if not reasons[step]]
        for step in candidates:
            if not self._folder.owns(step):
                reasons[step].append("not written here")
        for step, evaluator in rundir.awaited_steps(self.directory.parent, candidates).items():
            reasons[step].append(f"waits for evaluator {evaluator!r}")
        return reasons

    def scores(self) -> dict[int, float]:
        """Returns `best_metric` by checkpoint, as far as it is known; nothing where no metric is set."""
        return {} if self._scores is None else self._scores.of(self.all_steps)

    @property
    def best_step(self) -> int | None:
        """The checkpoint that is best by `best_metric`; None while none has a finite value, or no metric is set."""
        return next(iter(retention.best_steps(self.scores(), mode=self._mode)), None)

    def remove(self, steps: Iterable[int]) -> None:
        """Removes checkpoints, whatever the settings keep.

        Raises:
          ConfigError: Before anything is removed: if one is not there, was not written here, or waits for an evaluator.
        """
        steps = sorted(set(steps))
        awaited = rundir.awaited_steps(self.directory.parent, steps)
        for step in steps:
            path = layout.step_path(self.directory, step)
            if not layout.is_committed(path):
                raise ConfigError(f"{path}: there is no such checkpoint.")
            if not self._folder.owns(step):
                raise ConfigError(f"{path}: was not written for this folder, so it is not removed.")
            if step in awaited:
                raise ConfigError(f"{path}: evaluator {awaited[step]!r} is at work on it, or waits for it.")
        self._folder.remove(steps)

    def remove_surplus(self) -> None:
        """Removes the checkpoints that the settings do not keep, and that no evaluator waits for.

        Each save does so. After the last one it is for whoever evaluated what had waited till then.
        """
        if self.max_to_keep is None or jax.process_index() > 0:
            return
        unneeded = [step for step, reasons in self.reasons_to_keep().items() if not reasons]
        try:
            removed = self._folder.remove(unneeded)
        except ConfigError as error:  # The folder is a link; training goes on, and what it leads to is left alone.
            _logger.warning("%s", error)
            return
        if removed:
            _logger.info("%s: removed the checkpoints at %s.", self.directory, listing(map(str, removed)))

    @contextlib.contextmanager
    def _naming_step(self, step: int) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            path = layout.step_path(self.directory, step)
            raise SaveFailed(f"{path}: the checkpoint could not be saved: {cause_of(error)}") from error

    def _is_clock_due(self) -> bool:
        if self.save_interval_s is None:
            return False
        is_due = time.monotonic() - self._clock.started_at >= self.save_interval_s
        if jax.process_count() > 1:
            # One clock for all, so that all save.
            is_due = bool(multihost_utils.broadcast_one_to_all(is_due))
        return is_due

    @functools.cached_property
    def _saver(self) -> BackgroundSaver:
        return BackgroundSaver()

    @functools.cached_property
    def _folder(self) -> OwnedFolder:
        return OwnedFolder(self.directory)

    @functools.cached_property
    def _clock(self) -> _Clock:
        return _Clock()

    @functools.cached_property
    def _measured(self) -> Measured:
        return Measured()

    @functools.cached_property
    def _scores(self) -> CheckpointScores | None:
        return None if self.best_metric is None else CheckpointScores(self.best_metric, directory=self.directory)


class _Clock:
    """When the last save began, or the first look at the clock was."""

    def __init__(self):
        self.restart()

    def restart(self) -> None:
        self.started_at = time.monotonic()
