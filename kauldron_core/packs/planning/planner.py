"""Which trials can be trained in one program, and why the others can't."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from kauldron_core import konfig
from kauldron_core.errors import ConfigError, first_line
from kauldron_core.packs.planning import eligibility, sizes
from kauldron_core.packs.planning.differences import DATA_SEED, Differences, data_seed_of
from kauldron_core.packs.planning.tracing import Tracing
from kauldron_core.packs.running import data
from kauldron_core.train.trainer import Trainer


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One number in which trials differ.

    Attributes:
      path: Its path in the config.
      is_packed: Whether trials that differ in it train together.
      reason: Why, or why not.
      table: Path of the schedule that is tabulated, since it branches on this number.
    """

    path: str
    is_packed: bool
    reason: str
    table: str | None = None


@dataclasses.dataclass(frozen=True)
class Pack:
    """Trials that are trained together.

    Attributes:
      members: Their places in the list of configs.
      arguments: Paths of the numbers, and of the tabulated schedules, in which they may differ.
    """

    members: tuple[int, ...]
    arguments: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns the pack as JSON can carry it."""
        return {"members": list(self.members), "arguments": list(self.arguments)}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """Returns the pack that `to_json` wrote."""
        return cls(tuple(record["members"]), tuple(record["arguments"]))


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is trained together.

    Attributes:
      packs: In the order of their first members; a trial alone is a pack of one.
      leaves: Every leaf in which the trials differ.
      notes: What else was found out: how fast, and how large a pack may be.
    """

    packs: tuple[Pack, ...]
    leaves: tuple[Leaf, ...]
    notes: tuple[str, ...] = ()

    def explain(self) -> Iterator[str]:
        """Yields a line for each pack, each leaf and each note."""
        for pack in self.packs:
            if len(pack.members) > 1:
                yield f"pack of {len(pack.members)}: trials {ranges(pack.members)}"
        alone = [pack.members[0] for pack in self.packs if len(pack.members) == 1]
        if alone:
            yield f"alone: trials {ranges(alone)}"
        yield from self.reasons()

    def reasons(self) -> Iterator[str]:
        """Yields a line for each leaf and each note."""
        packed = "packed" if any(len(pack.members) > 1 for pack in self.packs) else "could be packed"
        for leaf in self.leaves:
            yield f"{leaf.path}: {packed if leaf.is_packed else 'not packed'}, {leaf.reason}"
        yield from self.notes


def plan(
    configs: Sequence[Any],
    *,
    limit: int | None = None,
    memory_bytes: int | None = None,
    data_budget_bytes: int = data.BUDGET_BYTES,
) -> Plan:
    """Returns which of the experiments train together. Traces, and computes nothing.

    Args:
      configs: Configs of trainers.
      limit: The most trials in one pack; None is as many as fit into memory.
      memory_bytes: Memory that a pack may take; None is a share of what the device has, see `sizes`.
      data_budget_bytes: Memory for the batches of a pack whose trials read their data in different orders. Data in
        memory needs none of it.
    """
    differences = Differences(configs)
    groups = [_Group(configs, differences, members) for members in differences.groups()]
    packs: list[Pack] = []
    notes: list[str] = []
    for group in groups:
        for members in group.parted():
            most, why = (limit, None) if limit else group.most(members, memory_bytes, data_budget_bytes)
            parts = list(shared_out(members, most))
            if why is not None and len(parts) > 1:
                notes.append(f"{_sizes_text(parts)}: {why}")
            packs += [Pack(part, group.arguments) for part in parts]
        notes += group.notes
    packs.sort(key=lambda pack: pack.members[0])
    leaves = [
        _merged([group.leaves[path] for group in groups if path in group.leaves])
        or Leaf(path, False, differences.why_structural(path))
        for path in differences.differing
    ]
    return Plan(tuple(packs), tuple(leaves), tuple(dict.fromkeys(notes)))


def shared_out(members: Sequence[int], most: int | None) -> Iterator[tuple[int, ...]]:
    """Yields parts of `members`, as equal as they can be, none larger than `most`."""
    count = math.ceil(len(members) / most) if most else 1
    start = 0
    for number in range(count):
        size = len(members) // count + (number < len(members) % count)
        yield tuple(members[start : start + size])
        start += size


class _Group:
    """Trials that have the same structure."""

    def __init__(self, configs: Sequence[Any], differences: Differences, members: list[int]):
        self._differences = differences
        self._members = members
        self._configs = configs
        self._cfg = configs[members[0]]
        self.leaves: dict[str, Leaf] = {}
        self.arguments: tuple[str, ...] = ()
        self.notes: list[str] = []
        self._is_fit = False
        self._data_seed = data_seed_of(differences.flat[members[0]])
        if len(members) > 1:
            self._trainer = _resolved(self._cfg)
            self._sort_out(differences.numbers_in(members))

    def _sort_out(self, numbers: Sequence[str]) -> None:
        """Finds out which numbers can be packed."""
        reason = eligibility.why_alone(self._cfg, self._trainer)
        if reason is not None:
            self.leaves = {path: Leaf(path, False, reason) for path in numbers}
            if not numbers:
                self.notes.append(f"alone: {reason}")
            return
        tracing = Tracing(self._cfg, self._trainer, [path for path in numbers if path != DATA_SEED])
        self.leaves = {path: self._leaf(tracing, path) for path in numbers}
        packed = [leaf for leaf in self.leaves.values() if leaf.is_packed and leaf.path != DATA_SEED]
        self.arguments = tuple(dict.fromkeys(leaf.table or leaf.path for leaf in packed))
        if not self.arguments:
            # Trials that differ in the order of their data alone, or in nothing: any number tells rows apart.
            self.arguments = tuple(path for path in tracing.numbers if tracing.error(path) is None)[:1]
        self._is_fit = bool(self.arguments)
        if not self._is_fit:
            mistake = tracing.mistake()
            why = "has no number that could be an argument" if mistake is None else f"fails: {shortly(mistake)}"
            self.notes.append(f"alone: the step {why}")

    def _leaf(self, tracing: Tracing, path: str) -> Leaf:
        if path == self._data_seed:
            reason = data.why_not_multiplied(self._trainer.train_ds)
            if reason is not None:
                return Leaf(path, False, reason)
        if path == DATA_SEED:
            return Leaf(path, True, "each trial reads the data in its own order")
        error = tracing.error(path)
        if error is None:
            return Leaf(path, True, "the step can be traced with it")
        table = tracing.table_for(path)
        if table is not None:
            return Leaf(path, True, f"the schedule {table} branches on it and is tabulated", table=table)
        return Leaf(path, False, f"the step can't be traced with it: {shortly(error)}")

    def parted(self) -> Iterator[list[int]]:
        """Yields the trials that agree in what can't be packed."""
        if not self._is_fit:
            yield from ([index] for index in self._members)
            return
        fixed = [path for path, leaf in self.leaves.items() if not leaf.is_packed]
        yield from self._differences.parted(self._members, fixed)

    def most(
        self, members: Sequence[int], memory_bytes: int | None, data_budget_bytes: int
    ) -> tuple[int | None, str | None]:
        """Returns how many of these trials may be in one pack, and why; None is any number."""
        count = len(members)
        if count == 1:
            return None, None
        cfg = self._configs[members[0]]
        trainer = self._trainer if cfg is self._cfg else _resolved(cfg)
        has_own_data = self._differences.varies(self._data_seed, members) and data.depends_on_seed(trainer.train_ds)
        found = [
            sizes.most_in_memory(
                cfg, trainer, self.arguments, count, has_own_batches=has_own_data, memory_bytes=memory_bytes
            )
        ]
        if has_own_data:
            found.append(data.most_in_budget(trainer.train_ds, data_budget_bytes))
        known = [(most, why) for most, why in found if most is not None and most < count]
        return min(known, default=(None, None))


def _merged(found: Sequence[Leaf]) -> Leaf | None:
    """Returns what is to be said of a leaf about which this was found in some groups of trials; None if nothing was."""
    bad = [leaf for leaf in found if not leaf.is_packed]
    if bad and len(bad) < len(found):
        return dataclasses.replace(bad[0], reason=f"in some trials {bad[0].reason}")
    return found[0] if found else None


def _resolved(cfg: Any) -> Trainer:
    trainer = konfig.resolve(cfg)
    if not isinstance(trainer, Trainer):
        raise ConfigError(f"a pack is made of trainers, and the config describes a {type(trainer).__name__}.")
    return trainer


def shortly(error: BaseException) -> str:
    """Returns what an error says, in one line that is not too long."""
    return first_line(error)[:160]


def _sizes_text(parts: Sequence[Sequence[int]]) -> str:
    """Returns `3 packs of 171, 171, 170`; many are counted by size."""
    counts = collections.Counter(len(part) for part in parts)
    if len(parts) <= 4:
        return f"{len(parts)} packs of {', '.join(str(len(part)) for part in parts)}"
    return f"{len(parts)} packs, " + " and ".join(f"{count} of {size}" for size, count in counts.items())


def ranges(numbers: Sequence[int]) -> str:
    """Returns `0-3, 7` for 0, 1, 2, 3, 7."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)
