"""One checkpoint for all trials of a pack, and a pointer to its row for each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import jax

from kauldron_core import ckpts
from kauldron_core.errors import ConfigError
from kauldron_core.forward import TrainState
from kauldron_core.train.trainer import Trainer


class StackedCheckpoints:
    """Saves the states of a pack.

    Args:
      folder: The folder of the pack.
      trainers: Those of its trials, in the order of the rows. One without a workdir has no pointers.
      identity: What tells this pack from others.
    """

    def __init__(self, folder: str | os.PathLike[str], trainers: Sequence[Trainer], *, identity: str):
        self._keeper = ckpts.Checkpointer(workdir=folder, save_interval_steps=None)
        self._trainers = trainers
        self._identity = identity
        self._pending: dict[int, tuple[TrainState, list[Any], list[str]]] = {}

    def load(self, spec: TrainState) -> ckpts.Checkpoint | None:
        """Returns the newest checkpoint, None if there is none; pointers to it that a kill has prevented are made up.

        Args:
          spec: Shapes of the stacked states.
        """
        if self._keeper.latest_step is None:
            return None
        found = self._keeper.load(spec)
        if found.data_state["identity"] != self._identity:
            raise ConfigError(
                f"{self._keeper.directory}: holds the checkpoints of another pack. Choose another folder."
            )
        for damaged in found.damaged_steps:
            self._keeper.set_aside(damaged)
        self._pending[found.step] = (_of_one(spec), found.data_state["iterators"], found.data_state["statuses"])
        for _ in self._pointed([found.step]):
            pass
        return found

    def save(self, states: TrainState, iterators: list[Any], statuses: Sequence[str], *, step: int) -> None:
        """Starts to save.

        Args:
          states: The stacked states.
          iterators: State of the data iterator that all share, or of each.
          statuses: How each trial stands; one that does not run gets no pointer.
          step: The step.
        """
        data_state = {"identity": self._identity, "iterators": iterators, "statuses": list(statuses)}
        self._keeper.save(states, data_state, step=step)
        self._pending[step] = (_of_one(jax.eval_shape(lambda: states)), iterators, list(statuses))

    def finished(self) -> Iterator[tuple[int, list[int]]]:
        """Yields the steps that were committed since the last call, each with the rows that have a pointer now."""
        yield from self._pointed(self._keeper.finished())

    def wait(self) -> None:
        """Waits until nothing is being written."""
        self._keeper.wait()

    def close(self) -> None:
        """Waits, and frees the background threads."""
        self._keeper.close()

    def _pointed(self, steps: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
        for step in steps:
            spec, iterators, statuses = self._pending.pop(step)
            rows = [row for row, status in enumerate(statuses) if status == "running"]
            for row in rows:
                self._point(row, spec, iterators, step)
            self._remove_unused()
            yield step, rows

    def _point(self, row: int, spec: TrainState, iterators: list[Any], step: int) -> None:
        keeper = self._trainers[row].checkpointer
        if keeper is None or keeper.workdir is None or (keeper.latest_step or 0) >= step:
            return
        target = ckpts.Row(ckpts.step_path(self._keeper.directory, step), row, len(self._trainers))
        keeper.point(target, spec, iterators[row if len(iterators) > 1 else 0], step=step)

    def _remove_unused(self) -> None:
        """Removes checkpoints to which no trial points any more, but for the newest."""
        keepers = [trainer.checkpointer for trainer in self._trainers if trainer.checkpointer is not None]
        if any(keeper.max_to_keep is None for keeper in keepers):
            return
        used = {step for keeper in keepers if keeper.workdir is not None for step in keeper.all_steps}
        self._keeper.remove([step for step in self._keeper.all_steps[:-1] if step not in used])


def _of_one(spec: TrainState) -> TrainState:
    """Returns the shapes of the state of one trial."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), spec)
