"""Sweeps on Ray: the only package that imports it. See `README.md`."""

from __future__ import annotations

from collections.abc import Sequence

from ray_cluster.results import Results, TrialResult
from ray_cluster.spec import EvalPool, Plan, PlannedTrial, Sidecar, Sweep, eval_pools

__all__ = ["EvalPool", "Plan", "PlannedTrial", "Results", "Sidecar", "Sweep", "TrialResult", "eval_pools", "run"]


def run(plan: Plan, *, address: str | None = None, sidecars: Sequence[Sidecar] = ()) -> Results:
    """Runs what is missing of a plan and returns the state of all its trials; see `ray_cluster.driver.run`."""
    # Ray and Tune take five seconds to import; the value objects above must stay free.
    from ray_cluster import driver

    return driver.run(plan, address=address, sidecars=sidecars)
