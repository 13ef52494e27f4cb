"""Sweeps on Ray: the only package that imports it. See `README.md`."""

from __future__ import annotations

from collections.abc import Sequence

from ray_cluster import environment
from ray_cluster.results import Results, TrialResult
from ray_cluster.spec import EvalPool, Plan, PlannedTrial, Sidecar, Sweep, eval_pools

__all__ = ["EvalPool", "Plan", "PlannedTrial", "Results", "Sidecar", "Sweep", "TrialResult", "eval_pools", "run"]


def run(plan: Plan, *, address: str | None = None, sidecars: Sequence[Sidecar] = ()) -> Results:
    """Runs what is missing of a plan and returns the state of all its trials; see `ray_cluster.driver.run`.

    Args:
      plan: What to run.
      address: `local` (a Ray of our own) or `host:port` of a cluster's head; None takes RAY_ADDRESS, else `local`.
      sidecars: What watches the run.
    """
    where = environment.read_address(address)
    # Ray reads its settings when it is imported, and it and Tune take five seconds: only a sweep pays for them.
    environment.prepare_driver(where)
    from ray_cluster import driver

    return driver.run(plan, address=where, sidecars=sidecars)
