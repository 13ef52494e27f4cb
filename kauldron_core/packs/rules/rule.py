"""What a rule is: it compares the trials of a pack while they train, and changes what becomes of them."""

from __future__ import annotations

import abc
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Self

from kauldron_core import rundir
from kauldron_core.errors import ConfigError, unknown_name
from kauldron_core.losses import named_losses
from kauldron_core.train.directions import metric_directions
from kauldron_core.train.trainer import Trainer

_TRAIN = "train"
_MAX_LOOKED_AT = 1000
Point = Mapping[str, float]
"""Values of numbers by their paths in the config."""


@dataclasses.dataclass(frozen=True)
class Inheritance:
    """A trial goes on with what another one has learned.

    Attributes:
      donor: Index of the other one.
      point: The values of its numbers from now on.
    """

    donor: int
    point: Point


@dataclasses.dataclass(frozen=True)
class Decision:
    """What a rule wants.

    Attributes:
      pruned: Who ends, with the reason.
      inherits: Who goes on from another one.
    """

    pruned: Mapping[int, str] = dataclasses.field(default_factory=dict)
    inherits: Mapping[int, Inheritance] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rule(abc.ABC):
    """Base class of rules.

    Attributes:
      metric: What trials are compared by: `train/losses/total`, or `<evaluator>/metrics/<name>` of an evaluator that
        runs inside training, at each step of a decision at least.
      mode: Whether `max` or `min` of it is best; where unset the metric says it, see `directed`.
    """

    metric: str
    mode: Literal["max", "min"] | None = None

    def __post_init__(self):
        if self.mode is not None and self.mode not in rundir.MODES:
            raise ConfigError(unknown_name("mode", self.mode, rundir.MODES, at="rule.mode"))

    def directed(self, trainer: Trainer) -> Self:
        """Returns the rule with the mode that its metric says, unless it was given one.

        Raises:
          ConfigError: If nothing says which end of the metric is the good one.
        """
        mode = metric_directions(trainer).mode(self.metric, self.mode, at="rule.mode")
        return dataclasses.replace(self, mode=mode)

    @property
    def source(self) -> str:
        """The evaluator that measures, or `train`."""
        return self.metric.partition("/")[0]

    @abc.abstractmethod
    def is_due(self, step: int) -> bool:
        """Returns whether it decides after `step`."""

    @abc.abstractmethod
    def decide(
        self, step: int, scores: Mapping[int, float], points: Mapping[int, Point], first: Mapping[int, Point]
    ) -> Decision:
        """Returns what becomes of the trials.

        Args:
          step: The step.
          scores: The metric of each trial that still trains, in order; NaN where it has none.
          points: The numbers of each that this rule may change.
          first: Those with which all trials began.
        """

    def paths_in(self, candidates: Sequence[str]) -> tuple[str, ...]:
        """Returns the paths of the numbers that it may change.

        Args:
          candidates: Those in which the trials differ.
        """
        return ()

    def check(self, trainer: Trainer, *, last_step: int) -> None:
        """Looks whether there will be something to compare.

        Raises:
          ConfigError: If the metric is not measured, or not in time.
        """
        if next(self._decisions(last_step), None) is None:
            raise ConfigError(f"rule: decides at no step before the last one, {last_step}.")
        if self.source == _TRAIN:
            measured: Any = (trainer.train_losses, trainer.train_metrics)
        else:
            measured = self._of_evaluator(trainer, last_step)
        known = list(_names(*measured))
        name = self.metric.partition("/")[2]
        if known and not any(name == one or name.startswith(f"{one}/") or one.startswith(f"{name}/") for one in known):
            metrics = [f"{self.source}/{one}" for one in known]
            raise ConfigError(unknown_name("metric", self.metric, metrics, at="rule.metric"))

    def score(self, values: Mapping[str, float]) -> float:
        """Returns what trials are compared by, among what its source has measured.

        Raises:
          ConfigError: If it is not there.
        """
        name = self.metric.partition("/")[2]
        if name not in values:
            measured = [f"{self.source}/{one}" for one in values]
            raise ConfigError(unknown_name("metric", self.metric, measured, at="rule.metric"))
        return values[name]

    def ranked(self, scores: Mapping[int, float]) -> list[int]:
        """Returns the trials, the best first: equals in their order, those without a finite number last."""
        ranking = rundir.Ranking(self.metric, rundir.Directions().mode(self.metric, self.mode, at="rule.mode"))
        return sorted(scores, key=lambda index: (*ranking.badness(scores[index]), index))

    def _decisions(self, last_step: int) -> Iterator[int]:
        """Yields the steps after which it decides."""
        return (step for step in range(1, last_step) if self.is_due(step))

    def _of_evaluator(self, trainer: Trainer, last_step: int) -> tuple[Any, Any]:
        evaluator: Any = trainer.evals.get(self.source)
        if evaluator is None:
            raise ConfigError(unknown_name("evaluator", self.source, [_TRAIN, *trainer.evals], at="rule.metric"))
        if evaluator.run.is_standalone:
            raise ConfigError(
                f"rule.metric: evaluator {self.source!r} runs outside of training, too late to decide by. Use one that "
                "runs inside (EveryNSteps), or a training metric."
            )
        for step in itertools.islice(self._decisions(last_step), _MAX_LOOKED_AT):
            if not evaluator.run.should_run(step, False):
                raise ConfigError(
                    f"rule.metric: evaluator {self.source!r} does not run at step {step}, after which the rule decides."
                    f" Let it run whenever the rule decides: kd.evals.EveryNSteps({step})."
                )
        return getattr(evaluator, "losses", None) or {}, getattr(evaluator, "metrics", None) or {}


def check_positive(**values: float) -> None:
    """Raises a `ConfigError` for the first value that is below 1."""
    for name, value in values.items():
        if value < 1:
            raise ConfigError(f"rule.{name}: must be at least 1, not {value}.")


def _names(losses: Mapping[str, Any], metrics: Mapping[str, Any]) -> Iterator[str]:
    if losses:
        yield "losses/total"
    yield from (f"losses/{name}" for name, _ in named_losses(losses))
    yield from (f"metrics/{name}" for name in metrics)
