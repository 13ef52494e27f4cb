"""Which metric tells the best trial, when the user has not said so.

`--run.metric` (with `--run.mode`) decides. Without it the first evaluator that has finished anything is asked, then
training; of each the first of these that exists:

1. a metric that is better when larger: its name holds `accuracy`, or one of the words `auc`, `f1`, `precision`,
   `recall`, `bleu`, `r2`;
2. `<evaluator>/losses/total`, better when smaller.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

_LARGER_IS_BETTER = re.compile(r"accuracy|(^|_)(auc|f1|precision|recall|bleu|r2)($|_)")

_OF_EVALUATOR = re.compile(r"(?P<source>.+?)/(metrics|losses)/")


@dataclass(frozen=True)
class Ranking:
    """A metric and which end of it is the good one."""

    metric: str
    mode: Literal["max", "min"]


def sources_of(metric_names: Iterable[str]) -> list[str]:
    """Returns the evaluators that metrics are of, by name."""
    found = (_OF_EVALUATOR.match(name) for name in metric_names)
    return sorted({match["source"] for match in found if match is not None} - {"train"})


def choose_ranking(
    metric_names: Iterable[str],
    *,
    evaluators: Sequence[str] = (),
    metric: str | None = None,
    mode: Literal["max", "min"] = "max",
) -> Ranking | None:
    """Returns how to rank trials, None if they have no metric at all.

    Args:
      metric_names: Names of all metrics that any trial has.
      evaluators: Names of the evaluators in the order of the config.
      metric: The metric that the user asked for.
      mode: The mode that the user asked for; counts only with `metric`.
    """
    if metric is not None:
        return Ranking(metric, mode)
    names = sorted(metric_names)
    for split in [*evaluators, "train"]:
        found = _of_split(split, names)
        if found is not None:
            return found
    return None


def _of_split(split: str, names: Sequence[str]) -> Ranking | None:
    for name in names:
        if name.startswith(f"{split}/metrics/") and _LARGER_IS_BETTER.search(name.rpartition("/")[2].lower()):
            return Ranking(name, "max")
    total = f"{split}/losses/total"
    return Ranking(total, "min") if total in names else None
