"""Which checkpoints stay, and why. Pure: what is known of them goes in, reasons come out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

LATEST, EVERY_ONE = "latest", "all are kept"


def reasons_to_keep(
    steps: Iterable[int],
    *,
    max_to_keep: int | None,
    keep_every_n_steps: int | None = None,
    scores: Mapping[int, float] | None = None,
    keep_best: int = 0,
    mode: str = "min",
) -> dict[int, list[str]]:
    """Returns why each checkpoint stays, by step; those with an empty list may go. The latest always stays.

    Args:
      steps: The committed checkpoints.
      max_to_keep: How many of the newest stay; None keeps all.
      keep_every_n_steps: Multiples of it stay too.
      scores: What is known of the checkpoints' metric. NaN and infinity are never best, nor is what has no score.
      keep_best: How many of the best by `scores` stay too.
      mode: Whether `max` or `min` is best.
    """
    steps = sorted(steps)
    reasons: dict[int, list[str]] = {step: [] for step in steps}
    for step in steps[-1:]:
        reasons[step].append(LATEST)
    for step in best_steps({step: (scores or {}).get(step, math.nan) for step in steps}, mode=mode)[:keep_best]:
        reasons[step].append("best")
    for step in steps:
        if keep_every_n_steps is not None and step % keep_every_n_steps == 0:
            reasons[step].append(f"every {keep_every_n_steps} steps")
        if max_to_keep is None:
            reasons[step].append(EVERY_ONE)
    for step in steps[-max_to_keep:] if max_to_keep is not None else ():
        if step != steps[-1]:
            reasons[step].append(f"newest {max_to_keep}")
    return reasons


def best_steps(scores: Mapping[int, float], *, mode: str) -> list[int]:
    """Returns the steps that have a finite score, the best one first; of equal ones the earliest."""
    sign = -1 if mode == "max" else 1
    return sorted(
        (step for step in scores if math.isfinite(scores[step])), key=lambda step: (sign * scores[step], step)
    )
