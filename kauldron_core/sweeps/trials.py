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
from kauldron_core.errors import ConfigError, one_line
from kauldron_core.konfig.calls import hints
from kauldron_core.konfig.overrides.refusal import refusal
from kauldron_core.konfig.overrides.setting import Applied, with_values
from kauldron_core.konfig.tree.nodes import PLAIN
from kauldron_core.konfig.writing.config_dict import ConfigDict
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
      is_fitted: Whether the values stand as a config took them before, in a run, so that they are not fitted again.
    """

    index: int
    name: str
    overrides: Point
    fingerprint: str
    is_fitted: bool = False

    def config(self, base: Any) -> Any:
        """Returns a copy of `base` with the overrides applied."""
        return with_values(base, self.overrides, flag=FLAG, is_fitted=self.is_fitted)


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
        with (applied := Applied(cfg, point, flag=FLAG)):
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
        with Applied(cfg, trial.overrides, flag=FLAG, is_fitted=trial.is_fitted):
            yield trial, cfg
