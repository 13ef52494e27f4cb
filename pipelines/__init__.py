"""What a user runs: specs, entry points, the command line, tracking, reports and example configs."""

from pipelines.python_api import Sweep
from ray_cluster.results import Group, Results, Statistics, TrialResult
from ray_cluster.spec import EvalPool, Plan, PlannedTrial, Sidecar

__all__ = [
    "EvalPool",
    "Group",
    "Plan",
    "PlannedTrial",
    "Results",
    "Sidecar",
    "Statistics",
    "Sweep",
    "TrialResult",
]
