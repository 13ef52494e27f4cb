"""What a user runs: specs, entry points, the command line, tracking, reports and example configs."""

from ray_cluster.spec import EvalPool, Plan, PlannedTrial, Sidecar, Sweep

__all__ = ["EvalPool", "Plan", "PlannedTrial", "Sidecar", "Sweep"]
