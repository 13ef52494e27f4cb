"""Expands axes to trials: one concrete set of overrides each, with a name for its folder and a stable identity."""

from __future__ import annotations

import copy
import functools
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kauldron_core import paths
from kauldron_core.errors import ConfigError
from kauldron_core.konfig.calls import hints
from kauldron_core.konfig.calls.hints import Misfit
from kauldron_core.konfig.overrides.places import Place, Saved, find_place
from kauldron_core.konfig.overrides.refusal import one_line, refusal
from kauldron_core.konfig.tree.casting import PLAIN
from kauldron_core.konfig.tree.config_dict import ConfigDict
from kauldron_core.sweeps.axes import Point, Points, Product, plain
from kauldron_core.sweeps.axis_text import FLAG
from kauldron_core.sweeps.consumption import is_unread
from kauldron_core.sweeps.trial_names import Namer, canonical


@dataclass(frozen=True)
class Trial:
    """One point of a sweep.

    Attributes:
      index: Position in the sweep, from 0.
      name: Short and unique, safe as the name of a folder (`0007-learning_rate=0.01`).
      overrides: Values by path, in the order in which they are applied.
      fingerprint: Identity of the overrides; equal in every process, whatever the position.
      is_fitted: Whether the values stand as a config took them before, in a run. They are not fitted again: what an
        argument may be is known only where its module is imported, and a config read from disk imports none.
    """

    index: int
    name: str
    overrides: Point
    fingerprint: str
    is_fitted: bool = False

    def config(self, base: Any) -> Any:
        """Returns a copy of `base` with the overrides applied."""
        cfg = copy.deepcopy(base)
        for path, value in self.overrides:
            place = find_place(cfg, path, flag=FLAG)
            # A copy, since a later override may reach into it.
            own = copy.deepcopy(value)
            place.set(own if self.is_fitted else _fitted(place, own))
        return cfg


class Applied:
    """Applies values to a config for the length of a with block, then brings back what was there.

    Args:
      cfg: The config.
      overrides: Values by path, what holds another before it.
      is_fitted: Whether the config took the values before, see `Trial`.
    """

    def __init__(self, cfg: Any, overrides: Point, *, is_fitted: bool = False) -> None:
        self._cfg, self._overrides, self._is_fitted = cfg, overrides, is_fitted
        self._saved: list[Saved] = []
        self.fitted: Point = ()
        """The overrides as the config takes them."""

    def __enter__(self) -> Any:
        try:
            self.fitted = tuple((path, self._apply(path, value)) for path, value in self._overrides)
        except BaseException:
            self.__exit__()
            raise
        return self._cfg

    def __exit__(self, *error: object) -> None:
        while self._saved:
            self._saved.pop().restore()

    def _apply(self, path: str, value: Any) -> Any:
        place = find_place(self._cfg, path, flag=FLAG)
        fitted = value if self._is_fitted else _fitted(place, value)
        self._saved.append(place.saved())
        place.set(fitted)
        return fitted


def expand(cfg: Any, axes: Iterable[Points] | Points, *, num_samples: int = 1, seed: int = 0) -> list[Trial]:
    """Returns the trials of a sweep: every combination of the axes' points, each checked against the config.

    Args:
      cfg: The base config; it is the same afterwards.
      axes: Axes, or a combination of them.
      num_samples: Points drawn from the random axes, jointly.
      seed: Seed of the random axes.

    Raises:
      ConfigError: When a value does not fit, a path does not exist, or two trials are the same.
    """
    sweep = axes if isinstance(axes, Points) else Product(tuple(axes))
    if num_samples != 1 and not sweep.is_random:
        what = f"{num_samples} samples of a sweep that draws nothing"
        raise ConfigError(refusal("--run.num_samples", f"{what}; add a random axis such as loguniform(1e-5, 1e-1)"))
    points = _stored([_ordered(point) for point in sweep.points(num_samples, seed)])
    cfg = copy.deepcopy(cfg)
    swept = dict.fromkeys(path for point in points for path, _ in point)
    _refuse_unread(cfg, swept)
    namer = Namer(swept, len(points))
    trials: list[Trial] = []
    seen: Counter[str] = Counter()
    for index, point in enumerate(points):
        with (applied := Applied(cfg, point)):
            point = applied.fitted
        identity = namer.identity(point)
        seen[identity] += 1
        if seen[identity] > 1 and not sweep.is_random:
            raise ConfigError(_same(trials, identity, index, point))
        text = identity if seen[identity] == 1 else f"{identity}\n#{seen[identity]}"
        fingerprint = hashlib.sha256(text.encode()).hexdigest()[:16]
        trials.append(Trial(index, namer.name(index, point), point, fingerprint))
    return trials


def _stored(points: Sequence[Point]) -> list[Point]:
    """Returns the points with their values as a config stores them: imports as constants, dicts as nodes."""
    known: dict[int, tuple[Any, Any]] = {}

    def stored(path: str, value: Any) -> Any:
        if type(value) in PLAIN:
            return value
        if id(value) not in known:
            try:
                known[id(value)] = (value, ConfigDict({"it": value})["it"])
            except (ConfigError, TypeError, ValueError) as error:
                raise ConfigError(f"{FLAG}{path}: {one_line(str(error))}") from error
        return known[id(value)][1]

    return [tuple((path, stored(path, plain(value))) for path, value in point) for point in points]


def _refuse_unread(cfg: Any, swept: Iterable[str]) -> None:
    """Refuses paths whose values would make no difference between trials."""
    for path in swept:
        if is_unread(cfg, path):
            what = "nothing reads it: the field is left out when the config is resolved, and no reference leads to it"
            raise ConfigError(refusal(f"{FLAG}{path}", what))


def _fitted(place: Place, value: Any) -> Any:
    try:
        return place.slot.fit(value)
    except Misfit as misfit:
        what = f"expected {misfit}, got {hints.kind_of(value)}"
        raise ConfigError(refusal(place.slot.at, what)) from None


def _ordered(point: Point) -> Point:
    """Returns the overrides such that what holds another comes before it; otherwise as they were."""
    parts = [_parts(path) for path, _ in point]
    for index, own in enumerate(parts):
        if any(own == other[: len(own)] for other in parts[:index]):
            return tuple(sorted(point, key=lambda pair: len(_parts(pair[0]))))
    return point


@functools.lru_cache(maxsize=4096)
def _parts(path: str) -> tuple[Any, ...]:
    return paths.parse(path)


def _same(trials: Sequence[Trial], identity: str, index: int, point: Point) -> str:
    first = next(trial for trial in trials if canonical(trial.overrides) == identity)
    shown = ", ".join(f"{path}={hints.kind_of(value)}" for path, value in point)
    return f"trials {first.index} and {index} of the sweep are the same ({shown}). Drop one of the values."


def configs(cfg: Any, trials: Iterable[Trial]) -> Iterator[tuple[Trial, Any]]:
    """Yields each trial with its config, on one copy of `cfg` that changes in place: use it before going on."""
    cfg = copy.deepcopy(cfg)
    for trial in trials:
        with Applied(cfg, trial.overrides, is_fitted=trial.is_fitted):
            yield trial, cfg
