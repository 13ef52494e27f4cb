"""Trains a pack: many trials in one program, each of which stays itself."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import logging
import os
import threading
import time
from collections.abc import Callable, Container, Generator, Sequence
from typing import Any

import jax
import numpy as np

from kauldron_core import konfig
from kauldron_core.errors import ConfigError
from kauldron_core.forward import TrainState
from kauldron_core.packs.planning import planner
from kauldron_core.packs.planning.tracing import Tracing
from kauldron_core.packs.rules.rule import Rule
from kauldron_core.packs.running import placement
from kauldron_core.packs.running.checkpoints import StackedCheckpoints
from kauldron_core.packs.running.division import Division, Origin, half_folder, is_shortage, origin_of_part
from kauldron_core.packs.running.loop import PackLoop
from kauldron_core.packs.running.members import MemberEvent, Members
from kauldron_core.packs.running.points import Points
from kauldron_core.train.loop.iteration import drain
from kauldron_core.train.loop.memory import explained
from kauldron_core.train.trainer import Trainer

_logger = logging.getLogger(__name__)
_ASK_EVERY_S = 1.0

StopMembers = Callable[[], Container[int]]
"""Returns the places of the trials, in the list of configs, that are to end."""


@dataclasses.dataclass(frozen=True)
class Packed:
    """How a pack ended.

    Attributes:
      members: Places of the trials in the list of configs.
      statuses: How each ended.
      rows: Places of those trials, of a pack with a rule, whose states were not let go at a rung.
      states: Their states, with a first dimension for the trial.
    """

    members: tuple[int, ...]
    statuses: tuple[str, ...]
    rows: tuple[int, ...]
    states: TrainState

    def state_of(self, member: int) -> TrainState:
        """Returns the state of one trial."""
        row = self.rows.index(member)
        return jax.tree.map(lambda leaf: leaf[row], self.states)


def train(
    configs: Sequence[Any],
    pack: planner.Pack | None = None,
    *,
    folder: str | os.PathLike[str] | None = None,
    rule: Rule | None = None,
) -> Packed:
    """Trains a pack to its end. See `iter_train`."""
    return drain(iter_train(configs, pack, folder=folder, rule=rule))


def iter_train(
    configs: Sequence[Any],
    pack: planner.Pack | None = None,
    *,
    folder: str | os.PathLike[str] | None = None,
    stop: threading.Event | None = None,
    stop_members: StopMembers | None = None,
    rule: Rule | None = None,
) -> Generator[MemberEvent, None, Packed]:
    """Trains the trials of a pack; yields their events.

    Each trial writes the events that it would write alone, to its own workdir. One that diverges ends; the others
    do not notice. All states are saved in one checkpoint, and each trial has a pointer to its row where a checkpoint of
    its own would be: whatever loads that can load this. Called again, it goes on from the last one, and tells first how
    those ended that had ended before it.

    Args:
      configs: Configs of trainers.
      pack: Which of them, as `plan` made it; all of them where None.
      folder: The folder of the pack, `RUN/packs/ID`, for its checkpoints; None saves none.
      stop: When set, all is saved at the end of the running call, and those that still train end as preempted.
      stop_members: Asked now and then, at most once a second, who is to end: what it has learned is saved at the end of
        the running call, and it ends as stopped. The bits of the others do not depend on it.
      rule: Compares the trials while they train: `Halving` or `Population`.

    On several devices the trials are dealt out among them. A pack that runs out of memory is divided, and its halves
    train one after the other from the last checkpoint; this is on record in the folder. A rule then looks at each half
    for itself.

    Raises:
      ConfigError: If they can't be trained together.
    """
    if pack is None:
        packs = planner.plan(configs).packs
        if len(packs) != 1:
            raise ConfigError(f"{len(configs)} trials make {len(packs)} packs, not one; train them one by one.")
        (pack,) = packs
    job = _Job(configs, stop or threading.Event(), _Asking(stop_members), rule)
    with explained():
        return (yield from job.train(pack, folder, lambda spec_of: None))


class _Asking:
    """Asks who is to end, now and then."""

    def __init__(self, stop_members: StopMembers | None):
        self._stop_members = stop_members
        self._asked_at = -_ASK_EVERY_S

    def __call__(self) -> Container[int]:
        now = time.monotonic()
        if self._stop_members is None or now - self._asked_at < _ASK_EVERY_S:
            return ()
        self._asked_at = now
        return self._stop_members()


@dataclasses.dataclass(frozen=True)
class _Job:
    """What to do with a pack, or with a part of one."""

    configs: Sequence[Any]
    stop: threading.Event
    asked: Callable[[], Container[int]]
    rule: Rule | None

    def train(
        self, pack: planner.Pack, folder: str | os.PathLike[str] | None, origin: Origin
    ) -> Generator[MemberEvent, None, Packed]:
        """Trains a pack, whole or in halves."""
        opened = _Opened(self.configs, pack, folder, self.rule)
        division = Division.read(folder)
        if division is None:
            try:
                return (yield from self._train_whole(opened, origin))
            except Exception as error:
                if len(pack.members) == 1 or not is_shortage(error):
                    raise
                _logger.warning("%d trials together need too much memory, so they train in halves.", len(pack.members))
            # Not in the block above: the error holds what takes the memory.
            gc.collect()
            division = opened.divide()
        return (yield from self._train_halves(opened, origin, division))

    def _train_whole(self, opened: _Opened, origin: Origin) -> Generator[MemberEvent, None, Packed]:
        members, saves = Members(opened.pack.members, opened.trainers), opened.saves()
        loop = PackLoop(members, opened.points, saves=saves, rule=opened.rule, origin=origin)
        with contextlib.closing(loop):
            yield from loop.run(self.stop, self.asked)
            rows, states = loop.result()
            places = opened.pack.members
            return Packed(places, members.statuses, tuple(places[index] for index in rows), states)

    def _train_halves(
        self, opened: _Opened, origin: Origin, division: Division
    ) -> Generator[MemberEvent, None, Packed]:
        saves, step, pack = opened.saves(), division.step, opened.pack
        statuses: dict[int, str] = {}
        if saves is not None and step is not None:
            with contextlib.closing(Members(pack.members, opened.trainers)) as members:
                yield from members.tell_ended(saves.ended_at(step))
                statuses = dict(zip(pack.members, members.statuses, strict=True))
            origin = functools.partial(saves.load_at, step)
        found = []
        for number, indices in enumerate(division.halves):
            half = dataclasses.replace(pack, members=tuple(pack.members[index] for index in indices))
            folder = half_folder(opened.folder, number)
            found.append((yield from self.train(half, folder, origin_of_part(origin, indices))))
            # What the other half needs room for is kept on the host.
            found[-1] = dataclasses.replace(found[-1], states=jax.device_get(found[-1].states))
            statuses |= dict(zip(half.members, found[-1].statuses, strict=True))
        states = jax.tree.map(lambda *leaves: np.concatenate(leaves), *(one.states for one in found))
        rows = tuple(place for one in found for place in one.rows)
        return Packed(pack.members, tuple(statuses[place] for place in pack.members), rows, states)


class _Opened:
    """The trials of a pack, resolved."""

    def __init__(
        self, configs: Sequence[Any], pack: planner.Pack, folder: str | os.PathLike[str] | None, rule: Rule | None
    ):
        self.pack = pack
        self.folder = folder
        self._configs = [configs[index] for index in pack.members]
        self.trainers: list[Trainer] = [konfig.resolve(cfg) for cfg in self._configs]
        lead = self.trainers[0]
        if jax.device_count() > 1 and (reason := placement.why_alone(lead)):
            raise ConfigError(f"{reason}, so it can't share devices with other trials; train it alone.")
        last_step = lead.last_step
        if rule is not None:
            rule.check(lead, last_step=last_step)
            rule = rule.directed(lead)
        self.rule = rule
        self.points = Points(self._configs, pack.arguments, num_steps=last_step, rule=rule)
        self._check_new_arguments()

    def saves(self) -> StackedCheckpoints | None:
        """Returns its checkpoints, None where none are to be made."""
        if self.folder is None or self.trainers[0].checkpointer is None:
            return None
        return StackedCheckpoints(self.folder, self.trainers, identity=_identity(self._configs, self.points.varying))

    def divide(self) -> Division:
        """Returns its division, which is on record from now on."""
        saves = self.saves()
        step = None if saves is None else saves.latest_step
        ended = {} if saves is None or step is None else saves.ended_at(step)
        running = [index for index in range(len(self.trainers)) if str(index) not in ended]
        division = Division.of(running, step=step)
        if self.folder is not None:
            division.write(self.folder)
        return division

    def _check_new_arguments(self) -> None:
        """Raises unless the step can be traced with what a rule is to change besides that in which trials differ."""
        new = [path for path in self.points.arguments if path not in self.pack.arguments]
        if not new:
            return
        tracing = Tracing(self._configs[0], self.trainers[0], self.points.arguments)
        for path in new:
            if (error := tracing.error(path)) is not None:
                raise ConfigError(f"rule.paths: {path} can't be changed while a pack trains: {error}")


def _identity(configs: Sequence[Any], varying: Sequence[str]) -> str:
    """Returns what is equal for the same trials, wherever they lie and however far they are to go.

    Args:
      configs: Their configs.
      varying: Paths of what a rule changes in them.
    """
    ignored = ("workdir", "num_train_steps", "stop_after_steps")
    parts = [{key: cfg[key] for key in cfg if key not in ignored} for cfg in configs]
    if not varying:
        return konfig.fingerprint(parts)
    whole = [konfig.ConfigDict(part).copy_and_resolve_references() for part in parts]
    return konfig.fingerprint([konfig.fingerprint(part, without=varying) for part in whole])
