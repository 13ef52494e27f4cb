"""Schedules as curves."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

_COLORS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf")
_WIDTH, _HEIGHT, _MARGIN = 480, 120, 6


@dataclasses.dataclass(frozen=True)
class ScheduleView:
    """Curves of schedules. In a notebook the last expression of a cell shows it.

    Attributes:
      steps: At which the values are.
      values: By the name of the schedule.
    """

    steps: np.ndarray
    values: dict[str, np.ndarray]

    def __repr__(self) -> str:
        return "\n".join(f"{name}: {v[0]:.4g} .. {v[-1]:.4g}, at most {v.max():.4g}" for name, v in self.values.items())

    def _repr_html_(self) -> str:
        curves = zip(self.values.items(), _COLORS * len(self.values), strict=False)
        return "".join(_curve(name, self.steps, values, color) for (name, values), color in curves)


def plot_schedules(
    schedules: Mapping[str, Callable[[Any], Any]], num_steps: int, *, num_points: int = 240
) -> ScheduleView:
    """Returns the curves of schedules from step 0 to `num_steps`, for a notebook to show.

    Args:
      schedules: Functions of the step by name, such as `trainer.schedules`.
      num_steps: The last step.
      num_points: Values to compute of each.
    """
    steps = np.unique(np.linspace(0, num_steps, num_points).round().astype(int))
    values = {name: np.asarray([float(schedule(step)) for step in steps]) for name, schedule in schedules.items()}
    return ScheduleView(steps, values)


def _curve(name: str, steps: np.ndarray, values: np.ndarray, color: str) -> str:
    low, high = float(values.min()), float(values.max())
    x = _MARGIN + (steps - steps[0]) / max(steps[-1] - steps[0], 1) * (_WIDTH - 2 * _MARGIN)
    y = _HEIGHT - _MARGIN - (values - low) / ((high - low) or 1) * (_HEIGHT - 2 * _MARGIN)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    label = f"{html.escape(name)}: {low:.4g} to {high:.4g}, steps {steps[0]} to {steps[-1]}"
    frame = 'style="border:1px solid #ddd;display:block"'
    return (
        f'<div>{label}</div><svg width="{_WIDTH}" height="{_HEIGHT}" {frame}>'
        f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.5"/></svg>'
    )
