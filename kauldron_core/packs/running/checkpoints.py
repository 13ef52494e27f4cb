"""One checkpoint for all trials of a pack, and a pointer to its row for each."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from kauldron_core import ckpts, rundir
from kauldron_core.ckpts import reader
from kauldron_core.errors import ConfigError
from kauldron_core.forward import TrainState
from kauldron_core.packs.running.points import part_of
from kauldron_core.rundir import formats
from kauldron_core.train.trainer import Trainer

_logger = logging.getLogger(__name__)

SpecOf = Callable[[int], TrainState]
"""Returns the shapes of stacked states with that many rows."""
GHOST = -1
"""Index of a row that belongs to no trial."""


@dataclasses.dataclass(frozen=True)
class Standing:
    """How a pack stands, besides the states.

    Attributes:
      rows: Index of the trial in each row of the states.
      going_on: Indices of the trials that have a row from here on, in the order of these rows.
      iterators: State of the data iterator that all share, or of each row's.
      ended: Who has ended, as `Members.ended` says it.
      pointed: Indices of the trials that get a pointer.
      evaluated: Names of the evaluators that have run at this step.
      scores: What a rule last knew of each trial, by index.
      points: What `Points.to_json` returned.
    """

    rows: tuple[int, ...]
    going_on: tuple[int, ...]
    iterators: list[Any]
    ended: dict[str, Any]
    pointed: tuple[int, ...]
    evaluated: tuple[str, ...] = ()
    scores: dict[str, float] = dataclasses.field(default_factory=dict)
    points: dict[str, Any] = dataclasses.field(default_factory=dict)

    def part(self, indices: Sequence[int]) -> Standing:
        """Returns how some of the trials stand, as a pack of their own."""
        new = {old: new for new, old in enumerate(indices)}
        return dataclasses.replace(
            self,
            rows=tuple(new.get(index, GHOST) for index in self.rows),
            going_on=tuple(new[index] for index in self.going_on if index in new),
            ended={},
            pointed=(),
            scores=part_of(self.scores, indices),
            points={name: part_of(part, indices) for name, part in self.points.items()},
        )

    def to_json(self) -> dict[str, Any]:
        """Returns it as JSON can carry it."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Standing:
        """Returns what `to_json` wrote."""
        fields: dict[str, Any] = {field.name: record[field.name] for field in dataclasses.fields(cls)}
        tuples: dict[str, Any] = {name: tuple(fields[name]) for name in ("rows", "going_on", "pointed", "evaluated")}
        return cls(**fields | tuples)


_FORMAT = formats.record(
    {
        "identity": formats.text,
        **dict.fromkeys(("rows", "going_on", "pointed"), formats.many(formats.whole)),
        "iterators": formats.many(formats.anything),
        "evaluated": formats.many(formats.text),
        "ended": formats.by_name(formats.anything),
        "scores": formats.by_name(formats.anything),
        "points": formats.by_name(formats.anything),
    }
)
"""What the data state of a pack's checkpoint has to hold."""

Snapshot = tuple[int, TrainState, Standing]
"""A step, the states on the host, and how the pack stood."""


class StackedCheckpoints:
    """Saves the states of a pack.

    Args:
      folder: The folder of the pack.
      trainers: Those of its trials. One without a workdir has no pointers.
      identity: What tells this pack from others.

    Attributes:
      left_aside: In words, which checkpoints of the pack were there and are not gone on from.
    """

    def __init__(self, folder: str | os.PathLike[str], trainers: Sequence[Trainer], *, identity: str):
        lead = trainers[0].checkpointer
        self._keeper = ckpts.Checkpointer(
            workdir=folder, save_interval_steps=None, save_interval_s=None if lead is None else lead.save_interval_s
        )
        self._trainers = trainers
        self._identity = identity
        self._pending: dict[int, tuple[TrainState, Standing]] = {}
        self._last_step = 0
        self.left_aside: list[str] = self._keeper.left_aside()

    def load(self, spec_of: SpecOf) -> Snapshot | None:
        """Returns the newest checkpoint, on the host: its step, the states and how the pack stood. None: there is none.

        Pointers to it that a kill has prevented are made up.

        Args:
          spec_of: Shapes of the states.
        """
        damaged: list[int] = []
        steps = self._keeper.all_steps
        for step in reversed(steps):
            try:
                found = self.load_at(step, spec_of)
            except ckpts.DamagedCheckpoint as error:
                if step == steps[0]:
                    raise
                _logger.warning("%s", error)
                damaged.append(step)
            else:
                self.left_aside = self._keeper.left_aside(damaged)
                for step in damaged:
                    self._keeper.set_aside(step)
                return found
        return None

    @property
    def latest_step(self) -> int | None:
        """The newest checkpoint, None if there is none."""
        return self._keeper.latest_step

    def ended_at(self, step: int) -> dict[str, Any]:
        """Returns who had ended at a checkpoint, as `Members.ended` says it."""
        return self._standing(step).ended

    def load_at(self, step: int, spec_of: SpecOf) -> Snapshot:
        """Returns what was saved at a step; see `load`."""
        standing = self._standing(step)
        found = self._keeper.load(_on_host(spec_of(len(standing.rows))), step=step)
        self._last_step = step
        self._pending[step] = (spec_of(1), standing)
        for _ in self._pointed([step]):
            pass
        return step, jax.tree.map(np.asarray, found.state), standing

    def is_due(self, step: int) -> bool:
        """Returns whether so much time has passed since the last save that another one is due."""
        return self._keeper.is_due(step)

    def save(self, states: TrainState, standing: Standing, *, step: int) -> None:
        """Starts to save; does nothing at a step that is saved already, and before the first step.

        Args:
          states: The stacked states.
          standing: How the pack stands.
          step: The step.
        """
        if step <= self._last_step:
            return
        self._keeper.save(states, {"identity": self._identity, **standing.to_json()}, step=step)
        self._pending[step] = (jax.eval_shape(lambda: states), standing)
        self._last_step = step

    def finished(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yields the steps that were committed since the last call, each with the trials that have a pointer now."""
        yield from self._pointed(self._keeper.finished())

    def wait(self) -> None:
        """Waits until nothing is being written."""
        self._keeper.wait()

    def close(self) -> None:
        """Waits, and frees the background threads."""
        self._keeper.close()

    def _standing(self, step: int) -> Standing:
        path = ckpts.step_path(self._keeper.directory, step)
        record = reader.read_data_state(path)
        try:
            _FORMAT(record, "")
        except rundir.Misfit as misfit:
            raise ckpts.DamagedCheckpoint(f"{path}: damaged, {misfit}.") from None
        if record["identity"] != self._identity:
            raise ConfigError(
                f"{self._keeper.directory}: holds the checkpoints of another pack. Choose another folder."
            )
        return Standing.from_json(record)

    def _pointed(self, steps: Sequence[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
        for step in steps:
            spec, standing = self._pending.pop(step)
            one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), spec)
            for index in standing.pointed:
                self._point(index, one, standing, step)
            self._remove_unused()
            yield step, standing.pointed

    def _point(self, index: int, spec: TrainState, standing: Standing, step: int) -> None:
        keeper = self._trainers[index].checkpointer
        if keeper is None or keeper.workdir is None or (keeper.latest_step or 0) >= step:
            return
        row = standing.rows.index(index)
        target = ckpts.Row(ckpts.step_path(self._keeper.directory, step), row, len(standing.rows))
        keeper.point(target, spec, standing.iterators[row if len(standing.iterators) > 1 else 0], step=step)

    def _remove_unused(self) -> None:
        """Removes checkpoints to which no trial points any more, but for the newest."""
        keepers = [trainer.checkpointer for trainer in self._trainers if trainer.checkpointer is not None]
        if any(keeper.max_to_keep is None for keeper in keepers):
            return
        used = {step for keeper in keepers if keeper.workdir is not None for step in keeper.all_steps}
        self._keeper.remove([step for step in self._keeper.all_steps[:-1] if step not in used])


def _on_host(spec: TrainState) -> TrainState:
    """Returns the shapes, to be read into the memory of the host: there may be other devices than when it was saved."""
    try:
        device = jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX was told to use one kind of device only.
        return spec
    sharding = jax.sharding.SingleDeviceSharding(device)
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), spec)
