"""Which trials of a sweep train together in one program, and which go on as they began."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import evaluators
import ray_cluster
from kauldron_core import rundir
from pipelines.planning import Prepared
from ray_cluster.environment import platform_of
from ray_cluster.spec import Plan, PlannedPack, PlannedTrial

_ENDED = rundir.TERMINAL
_AGAIN = ("failed", "stopped")


def with_packs(prepared: Prepared, *, address: str | None) -> Prepared:
    """Returns the sweep with its packs planned, and what there is to say about them.

    A pack that stands in the run directory goes on as it is. Of the other trials those that have not begun are packed
    anew: into as many programs as run at a time, where that is faster.

    Args:
      prepared: The sweep.
      address: Where Ray is.
    """
    plan = prepared.plan
    if plan.sweep.pack == "off" or len(plan.trials) < 2:
        return prepared
    reason = _why_not(plan)
    if reason is not None:
        return replace(prepared, pack_notes=(f"none: {reason}",))
    run = rundir.RunDir(plan.run_dir)
    unfinished = {trial.name: trial for trial in plan.trials if _is_unfinished(run, trial, plan)}
    standing = [found for pack in run.packs() if (found := _standing(pack, run, unfinished)) is not None]
    packed = {name for pack in standing for name in pack.trials}
    fresh = [
        trial
        for name, trial in unfinished.items()
        if name not in packed and not evaluators.committed_steps(run.trial(name).checkpoints)
    ]
    new, notes = _new_packs(prepared, fresh, run, slots=ray_cluster.estimate_concurrency(plan, address=address) or 1)
    went_on = [f"{pack.name}: {len(pack.trials)} trials, goes on" for pack in standing]
    return replace(prepared, plan=replace(plan, packs=(*standing, *new)), pack_notes=(*went_on, *notes))


def _why_not(plan: Plan) -> str | None:
    """Returns why no trials of this sweep can be packed."""
    if plan.sweep.is_adaptive:
        return "a search or scheduler decides about each trial on its own"
    if plan.sweep.hosts > 1:
        return "each trial has several hosts"
    if plan.sweep.stop_rules:
        return "run.stop ends each trial on its own"
    return None


def _is_unfinished(run: rundir.RunDir, trial: PlannedTrial, plan: Plan) -> bool:
    status = run.trial(trial.name).status()
    return status not in _ENDED or (plan.retry_failed and status in _AGAIN)


def _standing(pack: rundir.PackDir, run: rundir.RunDir, unfinished: dict[str, Any]) -> PlannedPack | None:
    """Returns a pack of the run directory if it can go on, None if those of its trials that are left go on alone."""
    content = pack.read()
    trials = [run.trial(name) for name in content["trials"]]
    open_trials = [trial for trial in trials if trial.name in unfinished]
    if not open_trials or any(trial.status() == "done" or not trial.exists() for trial in trials):
        return None
    saved = max(evaluators.committed_steps(pack.checkpoints), default=None)
    for trial in open_trials:
        is_ahead = max(evaluators.committed_steps(trial.checkpoints), default=0) > (saved or 0)
        is_deleted = saved is not None and not rundir.list_segments(trial.events)
        if is_ahead or is_deleted:
            return None
    return PlannedPack(name=pack.name, trials=tuple(content["trials"]), content=content)


def _new_packs(
    prepared: Prepared, trials: Sequence[PlannedTrial], run: rundir.RunDir, *, slots: int
) -> tuple[list[PlannedPack], tuple[str, ...]]:
    """Returns the packs of trials that have not begun, and the lines that explain them."""
    from kauldron_core import packs  # brings JAX with it

    sweep = prepared.plan.sweep
    is_auto = sweep.pack == "auto"
    if len(trials) < 2 or (is_auto and len(trials) <= slots):
        return [], ("none: there are no more trials than run at a time",) if len(trials) > 1 else ()
    names = {trial.name for trial in trials}
    base = prepared.experiment.config
    configs = [trial.config(base) for trial in prepared.trials if trial.name in names]
    plan = packs.plan(configs, limit=None if isinstance(sweep.pack, str) else sweep.pack)
    if is_auto:
        plan = replace(plan, packs=tuple(part for pack in plan.packs for part in _shared_out(pack, slots)))
    # The driver's own device is a CPU: what it measures says nothing about another one.
    plan = packs.refine(configs, plan, time=is_auto and platform_of(sweep.resources) == "cpu")
    found = [_planned(pack, trials, run) for pack in plan.packs if len(pack.members) > 1]
    lines = [f"{pack.name}: {len(pack.trials)} trials, {pack.trials[0]} to {pack.trials[-1]}" for pack in found]
    return found, (*(lines or ["none"]), *_explained(plan))


def _shared_out(pack: Any, slots: int) -> Iterator[Any]:
    """Yields a pack in equal parts, one for each that can run at a time; trials that all can run at a time alone."""
    members = pack.members
    size = 1 if len(members) <= slots else math.ceil(len(members) / slots)
    for start in range(0, len(members), size):
        yield replace(pack, members=members[start : start + size])


def _planned(pack: Any, trials: Sequence[PlannedTrial], run: rundir.RunDir) -> PlannedPack:
    own = [trials[index] for index in pack.members]
    name = hashlib.sha256("\n".join(trial.fingerprint for trial in own).encode()).hexdigest()[:8]
    number = 1
    while run.pack(name).exists():  # One whose trials have been deleted, or have gone on alone.
        number += 1
        name = f"{name.partition('-')[0]}-{number}"
    content = {"pack": replace(pack, members=tuple(range(len(own)))).to_json()}
    return PlannedPack(name=name, trials=tuple(trial.name for trial in own), content=content)


def _explained(plan: Any) -> Iterator[str]:
    """Yields the lines of the plan that are not about its packs, whose trials have other numbers here."""
    for leaf in plan.leaves:
        yield f"{leaf.path}: {'packed' if leaf.is_packed else 'not packed'}, {leaf.reason}"
    yield from plan.notes
