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
from kauldron_core.konfig import annotations
from kauldron_core.konfig.annotations import Misfit
from kauldron_core.konfig.axes import Point, Points, Product
from kauldron_core.konfig.places import Place, find_place
from kauldron_core.konfig.refusal import refusal
from kauldron_core.konfig.trial_names import Namer, canonical

_FLAG = "--sweep."


@dataclass(frozen=True)
class Trial:
    """One point of a sweep.

    Attributes:
      index: Position in the sweep, from 0.
      name: Short and unique, safe as the name of a folder (`0007-learning_rate=0.01`).
      overrides: Values by path, in the order in which they are applied.
      fingerprint: Identity of the overrides; equal in every process, whatever the position.
    """

    index: int
    name: str
    overrides: Point
    fingerprint: str

    def config(self, base: Any) -> Any:
        """Returns a copy of `base` with the overrides applied."""
        cfg = copy.deepcopy(base)
        with applied(cfg, self.overrides, keep=True):
            return cfg


class applied:
    """Applies values to a config for the length of a with block, then brings back what was there.

    Args:
      cfg: The config.
      overrides: Values by path.
      keep: Whether to leave the values in place.

    Raises:
      ConfigError: When a value does not fit; nothing is changed then.
    """

    def __init__(self, cfg: Any, overrides: Point, *, keep: bool = False) -> None:
        self._cfg, self._overrides, self._keep = cfg, overrides, keep
        self._done: list[tuple[Place, Any]] = []

    def __enter__(self) -> Any:
        try:
            for path, value in self._overrides:
                place = find_place(self._cfg, path, flag=_FLAG)
                fitted = _fitted(place, value)
                self._done.append((place, place.saved()))
                place.set(fitted)
        except BaseException:
            self._undo()
            raise
        return self._cfg

    def __exit__(self, *exc: object) -> None:
        if not self._keep:
            self._undo()

    def _undo(self) -> None:
        while self._done:
            place, saved = self._done.pop()
            place.restore(saved)


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
    points = [_ordered(point) for point in sweep.points(num_samples, seed)]
    cfg = copy.deepcopy(cfg)
    namer = Namer(dict.fromkeys(path for point in points for path, _ in point), len(points))
    trials: list[Trial] = []
    seen: Counter[str] = Counter()
    for index, point in enumerate(points):
        point = checked(cfg, point)
        identity = namer.identity(point)
        seen[identity] += 1
        if seen[identity] > 1 and not sweep.is_random:
            raise ConfigError(_same(trials, identity, index, point))
        text = identity if seen[identity] == 1 else f"{identity}\n#{seen[identity]}"
        fingerprint = hashlib.sha256(text.encode()).hexdigest()[:16]
        trials.append(Trial(index, namer.name(index, point), point, fingerprint))
    return trials


def checked(cfg: Any, point: Point) -> Point:
    """Returns the point with its values as the config takes them; the config is the same afterwards."""
    done: list[tuple[Place, Any]] = []
    fitted: list[tuple[str, Any]] = []
    try:
        for path, value in point:
            place = find_place(cfg, path, flag=_FLAG)
            value = _fitted(place, value)
            fitted.append((path, value))
            done.append((place, place.saved()))
            place.set(value)
    finally:
        for place, saved in reversed(done):
            place.restore(saved)
    return tuple(fitted)


def _fitted(place: Place, value: Any) -> Any:
    try:
        return place.slot.fit(value)
    except Misfit as misfit:
        what = f"expected {misfit}, got {annotations.kind_of(value)}"
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
    shown = ", ".join(f"{path}={annotations.kind_of(value)}" for path, value in point)
    return f"trials {first.index} and {index} of the sweep are the same ({shown}). Drop one of the values."


def configs(cfg: Any, trials: Iterable[Trial]) -> Iterator[tuple[Trial, Any]]:
    """Yields each trial with its config, on one copy of `cfg` that changes in place: use it before going on."""
    cfg = copy.deepcopy(cfg)
    for trial in trials:
        with applied(cfg, trial.overrides):
            yield trial, cfg
