"""The numbers of the trials of a pack: what their configs say, and what a rule has made of them since."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kauldron_core import konfig, paths, rundir
from kauldron_core.errors import ConfigError, unknown_name
from kauldron_core.packs.planning.tracing import tables_among, values_of
from kauldron_core.packs.rules.rule import Point, Rule
from kauldron_core.packs.running.members import Inherited
from kauldron_core.train.step.source import STEP_FIELDS, step_source


class Points:
    """The numbers of trials, by their index in the pack.

    Args:
      configs: Their configs.
      arguments: Paths of the numbers, and of the tabulated schedules, in which they may differ.
      num_steps: How many steps a table has to cover.
      rule: What may change numbers; None: nothing does.
    """

    def __init__(self, configs: Sequence[Any], arguments: Sequence[str], *, num_steps: int, rule: Rule | None = None):
        self._configs = list(configs)
        self._num_steps = num_steps
        candidates = _floats_that_differ(configs, arguments) if rule is not None else []
        self._paths = () if rule is None else rule.paths_in(candidates)
        self._affected = {path: _affected(configs[0], path) for path in self._paths}
        self.arguments = tuple(dict.fromkeys([*arguments, *self._missing(arguments)]))
        self._values: dict[int, list[Any]] = {}
        self.now: dict[int, Point] = {}
        if self._paths:
            self.now = {index: _point(cfg, self._paths) for index, cfg in enumerate(configs)}
        self.first: Mapping[int, Point] = dict(self.now)
        self._inherited: dict[int, Inherited] = {}

    @property
    def first_config(self) -> Any:
        """The config of the first trial."""
        return self._configs[0]

    @property
    def varying(self) -> tuple[str, ...]:
        """Paths of all that a rule may change, directly or through a reference."""
        return tuple(dict.fromkeys(path for found in self._affected.values() for path in found))

    def config(self, index: int) -> Any:
        """Returns the config of a trial as it is by now."""
        return self._configs[index]

    def values(self, index: int) -> list[Any]:
        """Returns the arguments of a trial."""
        if index not in self._values:
            self._values[index] = values_of(self._configs[index], self.arguments, num_steps=self._num_steps)
        return self._values[index]

    def change(self, index: int, point: Point, *, donor: str, step: int) -> None:
        """Takes other numbers for a trial, which goes on from `donor`."""
        before = self.now[index]
        self._set(index, point)
        changes = {path: [before[path], point[path]] for path in self._paths}
        self._inherited[index] = Inherited(step, donor, changes)

    def inherited(self, step: int) -> Iterator[tuple[int, Inherited]]:
        """Yields who has inherited at a step, and what there is to tell of it."""
        yield from ((index, event) for index, event in self._inherited.items() if event.step == step)

    def write(self, workdirs: Mapping[int, Any]) -> None:
        """Makes `config.json` of trials say what their numbers are by now; one without such a file is passed over.

        Args:
          workdirs: Their folders, None for one that has none.
        """
        for index, workdir in workdirs.items():
            if workdir is None or not self._paths:
                continue
            path = pathlib.Path(workdir) / "config.json"
            if path.is_file() and _point(config := konfig.load(path), self._paths) != self.now[index]:
                rundir.write_atomic(path, konfig.to_json(_with(config, self.now[index]), indent=1) + "\n")

    def to_json(self) -> dict[str, Any]:
        """Returns what `restore` needs."""
        if not self._paths:
            return {}
        events = {index: [event.step, event.donor, event.changes] for index, event in self._inherited.items()}
        parts = {"first": self.first, "now": self.now, "inherited": events}
        return {name: {str(index): part[index] for index in part} for name, part in parts.items()}

    def restore(self, record: Mapping[str, Any]) -> None:
        """Goes on from what `to_json` returned."""
        if not record:
            return
        parts = {name: {int(index): value for index, value in part.items()} for name, part in record.items()}
        self.first = parts["first"]
        self._inherited = {index: Inherited(*event) for index, event in parts["inherited"].items()}
        for index, point in parts["now"].items():
            self._set(index, point)

    def _set(self, index: int, point: Point) -> None:
        if self.now[index] != point:
            self.now[index] = point
            self._configs[index] = _with(self._configs[index], point)
            self._values.pop(index, None)

    def _missing(self, arguments: Sequence[str]) -> Iterator[str]:
        """Yields what has to be an argument as well, so that a rule can change it."""
        if not self._paths:
            return
        tables = tables_among(step_source(self._configs[0], others=arguments), arguments)
        for path in self.varying:
            is_read = paths.parse(path)[0] in STEP_FIELDS
            if is_read and path not in arguments and not any(_is_below(path, table) for table in tables):
                yield path


def part_of(record: Mapping[str, Any], indices: Sequence[int]) -> dict[str, Any]:
    """Returns what is said of some trials by their index, in a pack of these alone."""
    return {str(new): record[str(old)] for new, old in enumerate(indices) if str(old) in record}


def _point(cfg: Any, wanted: Iterable[str]) -> dict[str, float]:
    leaves = konfig.flatten(cfg)
    found = {}
    for path in wanted:
        value = leaves.get(path)
        if type(value) is not float:
            floats = [name for name, leaf in leaves.items() if type(leaf) is float]
            raise ConfigError(unknown_name("number", path, floats, at="rule.paths"))
        found[path] = value
    return found


def _with(cfg: Any, point: Point) -> Any:
    return konfig.with_values(cfg, point)


def _floats_that_differ(configs: Sequence[Any], arguments: Sequence[str]) -> list[str]:
    """Returns the floats in which configs differ, but for those that follow from others of them."""
    flat = [konfig.flatten(cfg) for cfg in configs]
    differing = [
        path
        for path, value in flat[0].items()
        if all(type(own.get(path)) is float for own in flat) and any(own[path] != value for own in flat)
    ]
    affected = {path: _affected(configs[0], path) for path in differing}
    taken: list[str] = []
    for path in differing:
        # Two names of one number, a node that is referred to, follow each other: the first one stands for both.
        leads = [one for one in differing if one != path and path in affected[one]]
        is_follower = any(one in taken or one not in affected[path] for one in leads)
        if not is_follower and any(_is_below(other, argument) for other in affected[path] for argument in arguments):
            taken.append(path)
    return taken


def _affected(cfg: Any, path: str) -> tuple[str, ...]:
    """Returns the leaves that change with one of them: it, and those that refer to it."""
    before = konfig.flatten(cfg)
    if path not in before:
        return (path,)
    other = 0.5 if before[path] != 0.5 else 0.25
    after = konfig.flatten(_with(cfg, {path: other}))
    return tuple(name for name in before if after.get(name) != before[name])


def _is_below(path: str, place: str) -> bool:
    return path == place or path.startswith((f"{place}.", f"{place}["))
