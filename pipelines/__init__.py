"""What a user runs: specs, entry points, the command line, tracking, reports and example configs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pipelines import _neighbours

if TYPE_CHECKING:
    from pipelines.pipeline import Pipeline
    from pipelines.python_api import Sweep
    from pipelines.stages import EvaluateStage, ReportStage, RetrainStage, SelectStage, SweepStage
    from ray_cluster.results import Group, Results, Statistics, TrialResult
    from ray_cluster.spec import EvalPool, Plan, PlannedTrial, Sidecar

__all__ = [
    "EvalPool",
    "EvaluateStage",
    "Group",
    "Pipeline",
    "Plan",
    "PlannedTrial",
    "ReportStage",
    "Results",
    "RetrainStage",
    "SelectStage",
    "Sidecar",
    "Statistics",
    "Sweep",
    "SweepStage",
    "TrialResult",
]

_neighbours.check()

_MODULES = {
    "pipelines.pipeline": ("Pipeline",),
    "pipelines.python_api": ("Sweep",),
    "pipelines.stages": ("EvaluateStage", "ReportStage", "RetrainStage", "SelectStage", "SweepStage"),
    "ray_cluster.results": ("Group", "Results", "Statistics", "TrialResult"),
    "ray_cluster.spec": ("EvalPool", "Plan", "PlannedTrial", "Sidecar"),
}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is used: the command line is there at once without them."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
