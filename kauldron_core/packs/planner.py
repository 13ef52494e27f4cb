"""Which trials can be trained in one program, and why the others can't."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Self

import jax
import numpy as np

from kauldron_core import konfig, paths
from kauldron_core.errors import ConfigError
from kauldron_core.forward import as_arguments
from kauldron_core.packs.tables import Tabulated, is_schedule, tabulate
from kauldron_core.train.compiled import Compilation, Source, Structure
from kauldron_core.train.trainer import STEP_FIELDS, Trainer, step_source

_NO_DIFFERENCE = ("workdir",)


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
                yield f"pack of {len(pack.members)}: trials {_ranges(pack.members)}"
        alone = [pack.members[0] for pack in self.packs if len(pack.members) == 1]
        if alone:
            yield f"alone: trials {_ranges(alone)}"
        for leaf in self.leaves:
            yield f"{leaf.path}: {'packed' if leaf.is_packed else 'not packed'}, {leaf.reason}"
        yield from self.notes


def plan(configs: Sequence[Any], *, limit: int | None = None) -> Plan:
    """Returns which of the experiments train together.

    Args:
      configs: Configs of trainers.
      limit: The most trials in one pack; None is no limit.
    """
    flat = [_leaves(cfg) for cfg in configs]
    differing = _differing(flat)
    leaves: dict[str, Leaf] = {}
    by_structure: dict[Hashable, list[int]] = collections.defaultdict(list)
    structural = {path for path in differing if not _is_number_of_step(path, flat)}
    for path in structural:
        leaves[path] = Leaf(path, False, _why_structural(path))
    numbers = [path for path in differing if path not in structural]
    # Whether a number can be traced may depend on the rest, a kind of optimizer for example: found for each rest.
    for index, own in enumerate(flat):
        by_structure[tuple(_token(own.get(path)) for path in sorted(structural))].append(index)
    packs: list[Pack] = []
    for members in by_structure.values():
        found = _sort_out(configs[members[0]], numbers)
        for leaf in found:
            leaves[leaf.path] = _merged(leaves.get(leaf.path), leaf)
        packs += _split(members, flat, found, limit)
    packs.sort(key=lambda pack: pack.members[0])
    return Plan(tuple(packs), tuple(leaves[path] for path in differing))


def _split(members: list[int], flat: list[dict[str, Any]], found: list[Leaf], limit: int | None) -> Iterator[Pack]:
    """Yields packs of members that agree in what can't be packed."""
    fixed = [leaf.path for leaf in found if not leaf.is_packed]
    arguments = dict.fromkeys(leaf.table or leaf.path for leaf in found if leaf.is_packed)
    groups: dict[Hashable, list[int]] = collections.defaultdict(list)
    for index in members:
        groups[tuple(_token(flat[index].get(path)) for path in fixed)].append(index)
    for group in groups.values():
        size = limit or len(group)
        for start in range(0, len(group), size):
            yield Pack(tuple(group[start : start + size]), tuple(arguments))


def _sort_out(cfg: Any, numbers: Sequence[str]) -> list[Leaf]:
    """Returns for each number whether the step can be traced with it."""
    if not numbers:
        return []
    trial = _Trial(_resolved(cfg), step_source(cfg, others=numbers))
    return [trial.leaf(path) for path in numbers]


class _Trial:
    """Tries out which numbers of one experiment can be traced."""

    def __init__(self, trainer: Trainer, source: Source):
        self._source = source
        self._batch = trainer.train_ds.element_spec

    def leaf(self, path: str) -> Leaf:
        error = self._error({path: self._source.blueprint.numbers[path]})
        if error is None:
            return Leaf(path, True, "the step can be traced with it")
        table = self._schedule_above(path)
        if table is not None and self._error_of_table(table) is None:
            return Leaf(path, True, f"the schedule {table} branches on it and is tabulated", table=table)
        return Leaf(path, False, f"the step can't be traced with it: {_first_line(error)}")

    def _error(self, numbers: Mapping[str, Any]) -> Exception | None:
        return self._traced(tuple(numbers), tuple(as_arguments(numbers).values()), tables=())

    def _error_of_table(self, path: str) -> Exception | None:
        values = np.zeros((2,), np.float32)
        return self._traced((path,), (values,), tables=(path,))

    def _traced(self, names: tuple[str, ...], values: tuple[Any, ...], *, tables: Sequence[str]) -> Exception | None:
        structure = Structure(
            lambda numbers: build(self._source, numbers, tables=tables),
            names,
            compilation=Compilation(),
            batch=self._batch,
        )
        try:
            structure.trace(values)
        except Exception as error:  # Whatever it raises: the number is no argument.
            return error
        return None

    def _schedule_above(self, path: str) -> str | None:
        """Returns the path of the innermost schedule that holds the number."""
        parts = paths.parse(path)
        for length in range(len(parts) - 1, 0, -1):
            place = paths.format(parts[:length])
            try:
                node = _at(self._source.blueprint.cfg, parts[:length])
                if isinstance(node, konfig.ConfigDict) and is_schedule(konfig.resolve(node)):
                    return place
            except Exception:  # It can't be built alone, so it is no schedule that can be tabulated.
                continue
        return None


def build(source: Source, numbers: Mapping[str, Any], *, tables: Sequence[str]) -> Any:
    """Returns the program with these numbers and tabulated schedules."""
    return source.program({path: Tabulated(value) if path in tables else value for path, value in numbers.items()})


def table_of(cfg: Any, path: str, *, num_steps: int) -> np.ndarray:
    """Returns the values of the schedule at `path`."""
    node = _at(cfg, paths.parse(path))
    return tabulate(konfig.resolve(node), num_steps=num_steps)


def _at(cfg: Any, parts: Sequence[Any]) -> Any:
    for part in parts:
        cfg = cfg[part]
    return cfg


def _resolved(cfg: Any) -> Trainer:
    trainer = konfig.resolve(cfg)
    if not isinstance(trainer, Trainer):
        raise ConfigError(f"a pack is made of trainers, and the config describes a {type(trainer).__name__}.")
    return trainer


def _leaves(cfg: Any) -> dict[str, Any]:
    return {path: value for path, value in konfig.flatten(cfg).items() if path not in _NO_DIFFERENCE}


def _differing(flat: Sequence[dict[str, Any]]) -> list[str]:
    names = dict.fromkeys(path for leaves in flat for path in leaves)
    first = flat[0]
    return [p for p in names if any(p not in own or _token(own[p]) != _token(first.get(p)) for own in flat)]


def _is_number_of_step(path: str, flat: Sequence[dict[str, Any]]) -> bool:
    root = paths.parse(path)[0]
    return root in STEP_FIELDS and all(type(own.get(path)) in (int, float) for own in flat)


def _why_structural(path: str) -> str:
    if paths.parse(path)[0] not in STEP_FIELDS:
        return "it is no part of the compiled step"
    return "it is no number in every trial"


def _merged(before: Leaf | None, leaf: Leaf) -> Leaf:
    if before is None or before.is_packed == leaf.is_packed:
        return leaf
    bad = before if not before.is_packed else leaf
    return dataclasses.replace(bad, reason=f"in some trials {bad.reason}")


def _token(value: Any) -> Hashable:
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return type(value).__name__, value if value == value else "nan"


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"[:160]


def _ranges(numbers: Sequence[int]) -> str:
    """Returns `0-3, 7` for 0, 1, 2, 3, 7."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def stacked_arguments(values: Sequence[Sequence[Any]]) -> tuple[jax.Array, ...]:
    """Returns the arguments of members, each a sequence, stacked for each argument; weak types stay weak."""
    return tuple(_concatenated([value[None] for value in column]) for column in zip(*values, strict=True))


def _concatenated(parts: list[Any]) -> jax.Array:
    # In small groups: one program of a thousand operands takes seconds to compile.
    while len(parts) > 1:
        parts = [_concatenate(*parts[start : start + 32]) for start in range(0, len(parts), 32)]
    return parts[0]


@jax.jit
def _concatenate(*parts: Any) -> jax.Array:
    return jax.lax.concatenate(parts, 0)
