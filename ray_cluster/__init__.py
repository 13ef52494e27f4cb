"""Sweeps on Ray: the only package that imports it. See `README.md`."""

from __future__ import annotations

from collections.abc import Sequence

from ray_cluster.cluster import environment, placement, shipping
from ray_cluster.evaluations.eval_jobs import evaluate
from ray_cluster.evaluations.job import EvalJob
from ray_cluster.results import Group, Results, Statistics, TrialResult
from ray_cluster.spec import EvalPool, Plan, PlannedPack, PlannedTrial, Sidecar, Sweep, eval_pools

__all__ = [
    "EvalJob",
    "EvalPool",
    "Group",
    "Plan",
    "PlannedPack",
    "PlannedTrial",
    "Results",
    "Sidecar",
    "Statistics",
    "Sweep",
    "TrialResult",
    "check",
    "estimate_concurrency",
    "eval_pools",
    "evaluate",
    "run",
]


def run(plan: Plan, *, address: str | None = None, sidecars: Sequence[Sidecar] = ()) -> Results:
    """Runs what is missing of a plan and returns the state of all its trials; see `ray_cluster.driver.sweep.run`.

    Args:
      plan: What to run.
      address: `local` (a Ray of our own) or `host:port` of a cluster's head; None takes RAY_ADDRESS, else `local`.
      sidecars: What watches the run.
    """
    check(plan, address=address)
    where = environment.read_address(address)
    # Ray reads its settings when it is imported, and it and Tune take five seconds: only a sweep pays for them.
    environment.prepare_driver(where)
    from ray_cluster.driver import sweep

    return sweep.run(plan, address=where, sidecars=sidecars)


def check(plan: Plan, *, address: str | None = None) -> None:
    """Refuses what a Ray on this machine could never run, before one is started and anything is written.

    A cluster's nodes are known only when it is joined; `run` looks at them then.

    Raises:
      ConfigError: With what was asked for and what there is.
    """
    shipping.check(plan.sweep)
    trained = [placement.trial_resources(plan.sweep, trial) for trial in plan.trials] or [plan.sweep.resources]
    evaluated = [pool.resources for pool in plan.pools]
    environment.refuse_other_platform({**plan.sweep.env, **plan.env}, [*trained, *evaluated])
    machine = _own_machine(address)
    if machine is not None:
        placement.refuse_impossible(plan, [machine])


def estimate_concurrency(plan: Plan, *, address: str | None = None) -> int | None:
    """Returns how many trials will run at a time on this machine, None if they run on a cluster."""
    machine = _own_machine(address)
    return None if machine is None else placement.count_concurrent(plan, [machine])


def _own_machine(address: str | None) -> dict[str, float] | None:
    """Returns the resources of this machine if a Ray of our own will run on it."""
    if environment.read_address(address) != "local" or environment.is_ray_connected():
        return None
    return environment.machine_resources()
