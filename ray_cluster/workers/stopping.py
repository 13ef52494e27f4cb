"""Stop rules: where a trial ends before its last step because a metric has got far enough.

`train/losses/total<=0.01` is a metric, `<=` or `>=`, and a number. A rule looks at each record of its metric, in the
process that trains, so a trial ends at the step that decided it, whatever else runs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kauldron_core.errors import ConfigError

_FORM = re.compile(r"(?P<metric>[^\s<>=]+)\s*(?P<sign><=|>=)\s*(?P<bound>[^\s<>=]+)")
_PERF = "train/perf/"


@dataclass(frozen=True)
class StopRule:
    """One rule.

    Attributes:
      metric: Name of the metric.
      sign: `<=` or `>=`.
      bound: The value that ends the trial.
    """

    metric: str
    sign: str
    bound: float

    def __str__(self) -> str:
        return f"{self.metric}{self.sign}{self.bound:g}"

    def is_met(self, value: float) -> bool:
        """Returns whether a value of the metric ends the trial; NaN never does."""
        return value <= self.bound if self.sign == "<=" else value >= self.bound

    def reason(self, value: float, step: int) -> str:
        """Returns why a trial has ended."""
        return f"{self._begin}{value:.6g} at step {step}"

    def has_ended(self, reason: str | None) -> bool:
        """Returns whether a trial that gives this reason was ended by this rule."""
        return (reason or "").startswith(self._begin)

    @property
    def _begin(self) -> str:
        return f"stop rule {self}: "


def read_rules(texts: str | Iterable[str], *, at: str = "run.stop") -> tuple[StopRule, ...]:
    """Returns the rules of a run spec: one text, or several; a text may hold several with commas between them.

    Raises:
      ConfigError: If one is no rule.
    """
    parts = [texts] if isinstance(texts, str) else texts
    return tuple(_rule(one.strip(), at) for part in parts for one in str(part).split(",") if one.strip())


def _rule(text: str, at: str) -> StopRule:
    found = _FORM.fullmatch(text)
    if found is None:
        raise ConfigError(
            f"{at}: {text!r} is no rule. Write METRIC<=NUMBER or METRIC>=NUMBER: train/losses/total<=0.01"
        )
    try:
        bound = float(found["bound"])
    except ValueError:
        bound = math.nan
    if not math.isfinite(bound):
        raise ConfigError(f"{at}: {found['bound']!r} in {text!r} is not a finite number.")
    if found["metric"].startswith(_PERF):
        raise ConfigError(f"{at}: {found['metric']!r} depends on the machine, so no trial would end alike twice.")
    return StopRule(found["metric"], found["sign"], bound)


def until(rules: Sequence[StopRule]) -> Callable[[Any], str | None] | None:
    """Returns what `Trainer.iter_train` asks after each record; None without rules."""
    if not rules:
        return None
    from kauldron_core.train import Evaluated  # JAX, which whoever trains has imported

    def decide(event: Any) -> str | None:
        source = event.name if isinstance(event, Evaluated) else event.split
        values = {f"{source}/{name}": float(value) for name, value in event.values.items()}
        met = (rule for rule in rules if rule.metric in values and rule.is_met(values[rule.metric]))
        return next((rule.reason(values[rule.metric], event.step) for rule in met), None)

    return decide
