"""What fits where: Ray's resource numbers as options of actors, and requests that no node can ever serve."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kauldron_core.errors import ConfigError, unknown_name
from ray_cluster.spec import EvalPool, Plan, PlannedTrial, Resources, Sweep

_NAMED_OPTIONS = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}


def trial_resources(sweep: Sweep, trial: PlannedTrial) -> dict[str, float]:
    """Returns what a trial needs: its own resources, else the sweep's."""
    return dict(sweep.resources if trial.resources is None else trial.resources)


def actor_options(resources: Resources) -> dict[str, Any]:
    """Returns the options of a Ray actor that owns these resources; without a CPU among them it reserves none."""
    options: dict[str, Any] = {"num_cpus": 0}
    custom = {name: amount for name, amount in resources.items() if name not in _NAMED_OPTIONS}
    options.update({_NAMED_OPTIONS[name]: amount for name, amount in resources.items() if name in _NAMED_OPTIONS})
    return {**options, "resources": custom} if custom else options


def refuse_impossible(plan: Plan, nodes: Sequence[Resources]) -> None:
    """Raises for a trial or evaluator that no node of the cluster could ever hold.

    Args:
      plan: What is to run.
      nodes: The total resources of each node, busy or not.

    Raises:
      ConfigError: With what was asked for and what is there.
    """
    asked = {_as_key(trial_resources(plan.sweep, trial)): "run.resources" for trial in plan.trials}
    if plan.sweep.search is not None:
        asked[_as_key(plan.sweep.resources)] = "run.resources"
    asked.update({_as_key(pool.resources): f"evaluators of job group {pool.job_group!r}" for pool in plan.pools})
    for key, place in asked.items():
        _refuse_unknown(dict(key), nodes, place)
        if not any(_fits(dict(key), node) for node in nodes):
            there = "; ".join(sorted({f"a node with {_text(_shown(node, dict(key)))}" for node in nodes}))
            raise ConfigError(f"{place}: asked for {_text(dict(key))} on one node. Available: {there or 'no node'}.")
    _refuse_too_many_hosts(plan, nodes)


def _refuse_unknown(request: Resources, nodes: Sequence[Resources], place: str) -> None:
    """Refuses a resource that no node has, under a name that is not one of Ray's own."""
    there = sorted({name for node in nodes for name in node if not name.startswith("node:")} | {*_NAMED_OPTIONS, "TPU"})
    for name in request:
        if name not in there and not any(name in node for node in nodes):
            raise ConfigError(unknown_name("resource", name, there, at=place))


def _refuse_too_many_hosts(plan: Plan, nodes: Sequence[Resources]) -> None:
    hosts, trial = plan.sweep.hosts, _first_resources(plan)
    fit = count_room(trial, nodes, most=hosts)
    if fit < hosts:
        raise ConfigError(f"run.hosts: asked for {hosts} times {_text(trial)}. Room for: {fit}, on {len(nodes)} nodes.")


def count_concurrent(plan: Plan, nodes: Sequence[Resources]) -> int:
    """Returns how many trials fit beside the evaluators, judged by the first trial."""
    left = [dict(node) for node in nodes]
    for pool in share_when_tight(plan.pools, plan, nodes):
        _reserve(pool.resources, pool.num_actors, left)
    trial, number = _first_resources(plan), 0
    in_all = plan.sweep.num_samples if plan.sweep.search is not None else len(plan.trials)
    most = min(plan.sweep.max_concurrent or in_all, in_all)
    while number < most and _reserve(trial, plan.sweep.hosts, left):
        number += 1
    return number


def share_when_tight(pools: Iterable[EvalPool], plan: Plan, nodes: Sequence[Resources]) -> tuple[EvalPool, ...]:
    """Returns the pools, their CPUs given up where reserving them would leave no room for any trial.

    On one core the evaluator then shares it with the trial instead of starving the sweep.
    """
    standing = tuple(pools)
    trial = _first_resources(plan)
    if _has_room(standing, trial, nodes):
        return standing
    return tuple(replace(pool, resources={k: v for k, v in pool.resources.items() if k != "CPU"}) for pool in standing)


def count_room(request: Resources, nodes: Iterable[Resources], *, most: int) -> int:
    """Returns how many times `request` fits on the nodes side by side, `most` at most."""
    left, number = [dict(node) for node in nodes], 0
    while number < most and _reserve(request, 1, left):
        number += 1
    return number


def _first_resources(plan: Plan) -> dict[str, float]:
    return trial_resources(plan.sweep, plan.trials[0]) if plan.trials else dict(plan.sweep.resources)


def _has_room(pools: Iterable[EvalPool], trial: Resources, nodes: Sequence[Resources]) -> bool:
    left = [dict(node) for node in nodes]
    return all(_reserve(pool.resources, pool.num_actors, left) for pool in pools) and _reserve(trial, 1, left)


def _reserve(request: Resources, number: int, left: list[dict[str, float]]) -> bool:
    """Takes a request off the nodes some times, and says whether they held it."""
    for _ in range(number):
        node = next((node for node in left if _fits(request, node)), None)
        if node is None:
            return False
        for name, amount in request.items():
            node[name] -= amount
    return True


def _fits(request: Resources, node: Resources) -> bool:
    return all(node.get(name, 0.0) >= amount for name, amount in request.items())


def _as_key(resources: Resources) -> tuple[tuple[str, float], ...]:
    return tuple(sorted(resources.items()))


def _shown(node: Resources, request: Resources) -> Mapping[str, float]:
    names = dict.fromkeys([*request, "CPU", "GPU"])
    return {name: node.get(name, 0.0) for name in names}


def _text(resources: Resources) -> str:
    return ", ".join(f"{name} {amount:g}" for name, amount in resources.items()) or "nothing"
