"""Which metric tells the best, and which end of it is the good one.

Both are said once, when a run begins, and kept in its `sweep.json` (`ranking`, `directions`); records of evaluations
say it of evaluators that were added since (`better`). Whatever ranks reads it here.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from kauldron_core.errors import ConfigError, unknown_name

Better = Literal["higher", "lower"]
Mode = Literal["max", "min"]
Reason = Literal["run.metric", "checkpointer.best_metric", "evaluator", "training", "asked"]

BETTER: tuple[Better, ...] = get_args(Better)
MODES: tuple[Mode, ...] = get_args(Mode)
TRAINING_LOSS = "train/losses/total"

_MODE_OF: Mapping[Better, Mode] = {"higher": "max", "lower": "min"}
_IN_WORDS: Mapping[Reason, str] = {
    "run.metric": "run.metric",
    "checkpointer.best_metric": "checkpointer.best_metric",
    "evaluator": "the evaluator that runs in training; another: --run.metric",
    "training": "no evaluator runs in training; another: --run.metric",
    "asked": "",
}
_MAX_DIRECTIONS, _MAX_NAME = 10_000, 1_000
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Directions:
    """What is better of each metric, as far as anything says so. Losses are better when lower.

    Attributes:
      known: Better by the name of a metric, `test/metrics/accuracy`, which is also that of its parts
        (`test/metrics/accuracy/0`). A `*` in a name stands for any part of it.
    """

    known: Mapping[str, Better] = field(default_factory=dict)

    @classmethod
    def read(cls, content: Any) -> Directions:
        """Directions by metric that a file holds; entries that are no direction are left out."""
        pairs = list(content.items())[:_MAX_DIRECTIONS] if isinstance(content, Mapping) else []
        is_name = lambda name: isinstance(name, str) and len(name) <= _MAX_NAME  # noqa: E731
        return cls({name: better for name, better in pairs if is_name(name) and better in BETTER})

    def joined(self, others: Mapping[str, Better]) -> Directions:
        """Returns these and, where they say nothing, others."""
        return Directions({**others, **self.known}) if others else self

    def with_record(self, evaluator: str, record: Mapping[str, Any]) -> Directions:
        """Returns these and what the record of an evaluation says of the numbers of its evaluator."""
        added = Directions.read(record.get("better")).known
        return self.joined({f"{evaluator}/{name}": better for name, better in added.items()})

    def of(self, metric: str) -> Better | None:
        """Direction of a metric (`higher` or `lower`), None if it is unknown."""
        parts = metric.split("/")
        if "losses" in parts[:2]:
            return "lower"
        for length in range(len(parts), 0, -1):
            if (found := self.known.get("/".join(parts[:length]))) is not None:
                return found
        return next((better for name, better in self.known.items() if "*" in name and _fits(name, metric)), None)

    def mode(self, metric: str, given: str | None = None, *, at: str) -> Mode:
        """Returns which end of a metric is the good one. What was given is obeyed; against better knowledge it is said.

        Args:
          metric: The metric.
          given: `max` or `min`, if somebody has said so.
          at: Where that is said, for messages: `--run.mode`.

        Raises:
          ConfigError: If nothing was given and nothing is known, or it is neither.
        """
        better = self.of(metric)
        if given is None:
            if better is None:
                raise ConfigError(
                    f"{at}: unset, and nothing says whether more or less of {metric!r} is better. Give {at}=max or"
                    f" {at}=min, or let its class say it: better = 'higher', or 'lower'."
                )
            return _MODE_OF[better]
        for mode in MODES:
            if mode == given:
                if better is not None and _MODE_OF[better] != mode:
                    _say_once(f"{at}={mode}: is taken, though of {metric} {better} is better.")
                return mode
        raise ConfigError(unknown_name("mode", given, MODES, at=at))


@dataclass(frozen=True)
class Ranking:
    """What ranks: a metric, and which end of it is the good one.

    Attributes:
      metric: The metric.
      mode: Whether the best has the most or the least of it.
      reason: Which part of the rule has chosen it.
    """

    metric: str
    mode: Mode
    reason: Reason = "asked"

    def __str__(self) -> str:
        return f"{self.metric}, {self.direction}"

    @property
    def direction(self) -> str:
        """`lower is better`, or `higher is better`."""
        return f"{'higher' if self.mode == 'max' else 'lower'} is better"

    @property
    def explained(self) -> str:
        """The metric, its direction, and why it is this one."""
        why = _IN_WORDS[self.reason]
        return f"{self} ({why})" if why else str(self)

    def badness(self, value: float | None) -> tuple[bool, float]:
        """Sort key of trials, the best first: missing, NaN and infinite values come last."""
        if value is None or not math.isfinite(value):
            return True, 0.0
        return False, -value if self.mode == "max" else value

    def to_json(self) -> dict[str, str]:
        """Data for JSON, which `read` reads back."""
        return {"metric": self.metric, "mode": self.mode, "reason": self.reason}

    @classmethod
    def read(cls, content: Any) -> Ranking | None:
        """Ranking that a file holds, None if it holds none."""
        found = content if isinstance(content, Mapping) else {}
        metric, mode, reason = (found.get(name) for name in ("metric", "mode", "reason"))
        if not isinstance(metric, str) or not 0 < len(metric) <= _MAX_NAME:
            return None
        is_known = mode in MODES and reason in get_args(Reason)
        return cls(metric, mode, reason) if is_known else None  # pyright: ignore[reportArgumentType]


def read_ranking(
    sweep: Mapping[str, Any],
    *,
    metric: str | None = None,
    mode: str | None = None,
    directions: Directions | None = None,
    at: str = "--mode",
) -> Ranking | None:
    """Ranking that is asked for, else that of `sweep.json`; None if neither names a metric.

    Args:
      sweep: What `sweep.json` holds.
      metric: The metric that is asked for now.
      mode: Which end of it is the good one.
      directions: What is better of each metric; what `sweep.json` says of them where unset.
      at: Where a mode is given, for messages.

    Raises:
      ConfigError: If nothing says which end of the metric is the good one.
    """
    directions = directions or Directions.read(sweep.get("directions"))
    saved = Ranking.read(sweep.get("ranking"))
    if saved is not None and mode is None and metric in (None, saved.metric):
        return saved if metric is None else replace(saved, reason="asked")
    if metric is None and saved is not None:
        metric = saved.metric
    if metric is None and isinstance(sweep.get("metric"), str):
        # Earlier versions kept `max` there also when nobody had said so.
        metric, mode = str(sweep["metric"]), mode or ("min" if sweep.get("mode") == "min" else None)
    return None if metric is None else Ranking(metric, directions.mode(metric, mode, at=at))


def choose_ranking(
    directions: Directions,
    *,
    metric: str | None = None,
    mode: str | None = None,
    best_metric: str | None = None,
    best_mode: str | None = None,
    evaluators: Iterable[str] = (),
) -> Ranking:
    """Ranking of the trials of a run.

    It is the metric that was asked for; else the one by which checkpoints are kept; else the loss of the evaluator that
    runs in training; else the training loss.

    Args:
      directions: What is better of each metric.
      metric: `run.metric`.
      mode: `run.mode`.
      best_metric: `checkpointer.best_metric`.
      best_mode: `checkpointer.mode`.
      evaluators: Those that run in training and have losses, in the order of the config.

    Raises:
      ConfigError: If nothing says which end of the metric is the good one.
    """
    if metric is not None:
        return Ranking(metric, directions.mode(metric, mode, at="--run.mode"), "run.metric")
    if best_metric is not None:
        kept_by = directions.mode(best_metric, best_mode, at="checkpointer.mode")
        return Ranking(best_metric, kept_by, "checkpointer.best_metric")
    for evaluator in evaluators:
        return Ranking(f"{evaluator}/losses/total", "min", "evaluator")
    return Ranking(TRAINING_LOSS, "min", "training")


def _fits(pattern: str, metric: str) -> bool:
    begin, _, end = pattern.partition("*")
    return len(metric) >= len(begin) + len(end) and metric.startswith(begin) and metric.endswith(end)


@functools.lru_cache(maxsize=256)
def _say_once(line: str) -> None:
    _logger.warning("%s", line)
