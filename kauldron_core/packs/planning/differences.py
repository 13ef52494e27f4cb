"""In which leaves trials differ, and which trials have the same structure."""

from __future__ import annotations

import collections
import functools
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from kauldron_core import konfig, paths
from kauldron_core.train.step.source import STEP_FIELDS

DATA_SEED = "train_ds.seed"
SEED = "seed"

# What a trial is called, where it lies and what its config keeps for references: none of it changes the training.
_NO_DIFFERENCE = ("workdir", "aux")


class Differences:
    """The leaves in which trials differ.

    Args:
      configs: Configs of trainers.
    """

    def __init__(self, configs: Sequence[Any]):
        self.flat = [_leaves(cfg) for cfg in configs]

    @functools.cached_property
    def differing(self) -> list[str]:
        """Paths of the leaves that are not the same in all trials."""
        names = dict.fromkeys(path for leaves in self.flat for path in leaves)
        return [path for path in names if self.varies(path, range(len(self.flat)))]

    def varies(self, path: str, members: Sequence[int]) -> bool:
        """Returns whether some of these trials differ in a leaf."""
        return len({self.value(path, index) for index in members}) > 1

    def value(self, path: str, index: int) -> Hashable:
        """Returns what is equal for trials with the same leaf; trials without it are alike."""
        return token(self.flat[index].get(path))

    def groups(self) -> list[list[int]]:
        """Returns the trials that have the same structure: that differ in numbers only."""
        found: dict[Hashable, list[int]] = collections.defaultdict(list)
        for index, own in enumerate(self.flat):
            found[tuple(self._kind(path, own.get(path)) for path in self.differing)].append(index)
        return list(found.values())

    def parted(self, members: Sequence[int], fixed: Sequence[str]) -> list[list[int]]:
        """Returns the trials among `members` that agree in some leaves."""
        found: dict[Hashable, list[int]] = collections.defaultdict(list)
        for index in members:
            found[tuple(self.value(path, index) for path in fixed)].append(index)
        return list(found.values())

    def numbers_in(self, members: Sequence[int]) -> list[str]:
        """Returns the numbers in which trials of the same structure differ."""
        own = self.flat[members[0]]
        return [path for path in self.differing if is_number(path, own.get(path)) and self.varies(path, members)]

    def why_structural(self, path: str) -> str:
        """Returns why a leaf that is no number everywhere splits packs."""
        if paths.parse(path)[0] not in STEP_FIELDS:
            return "it is no part of the compiled step"
        kinds = {type(own.get(path)) for own in self.flat}
        if kinds == {int, float}:
            return "it is an integer in some trials"
        return "it is no number in every trial" if kinds & {int, float} else "it is no number"

    def _kind(self, path: str, value: Any) -> Hashable:
        return type(value).__name__ if is_number(path, value) else token(value)


def is_number(path: str, value: Any) -> bool:
    """Returns whether a leaf is a number that the step reads, or the seed of the data."""
    is_read = path == DATA_SEED or paths.parse(path)[0] in STEP_FIELDS
    return is_read and type(value) in (int, float)


def data_seed_of(leaves: Mapping[str, Any]) -> str:
    """Returns the path of the seed of the data: its own, or the trainer's."""
    return SEED if leaves.get(DATA_SEED) is None else DATA_SEED


def token(value: Any) -> Hashable:
    """Returns what is equal for equal values, whatever they are."""
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return type(value).__name__, value if value == value else "nan"


def _leaves(cfg: Any) -> dict[str, Any]:
    return {path: value for path, value in konfig.flatten(cfg).items() if paths.parse(path)[0] not in _NO_DIFFERENCE}
