"""What is better of each number that metrics give: more, less, or neither."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kauldron_core.errors import ConfigError, unknown_name
from kauldron_core.rundir import BETTER, Better


def check_better(better: Any, *, at: str) -> None:
    """Refuses what says neither `"higher"` nor `"lower"` nor None, nor that by name.

    Raises:
      ConfigError: With what could be said.
    """
    for said in better.values() if isinstance(better, Mapping) else () if better is None else (better,):
        if said not in BETTER:
            raise ConfigError(unknown_name("direction", str(said), [*BETTER, "None"], at=at))


def directions_of(metrics: Mapping[str, Any] | None, *, prefix: str) -> dict[str, Better]:
    """Direction (`higher` or `lower`) of the numbers of `metrics`, by name, for those that have one.

    Args:
      metrics: Metrics by name.
      prefix: What the names begin with, `test/metrics`.
    """
    return dict(_directions(metrics or {}, prefix))


def _directions(metrics: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Better]]:
    for name, metric in metrics.items():
        better = getattr(metric, "better", None)
        check_better(better, at=f"{prefix}/{name}: {type(metric).__name__}.better")
        if isinstance(better, Mapping):
            yield from ((f"{prefix}/{name}/{part}", one) for part, one in better.items())
        elif better is not None:
            yield f"{prefix}/{name}", better
