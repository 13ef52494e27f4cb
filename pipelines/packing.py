"""Which trials of a sweep train together in one program, and which go on as they began."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import evaluators
import ray_cluster
from kauldron_core import konfig, rundir
from kauldron_core.errors import ConfigError, DamagedFile, first_line, unknown_name
from pipelines.planning import Prepared
from ray_cluster.cluster.environment import platform_of
from ray_cluster.driver.layout import is_tried_again
from ray_cluster.searches.named_calls import read_call
from ray_cluster.spec import PACK_RULES, Plan, PlannedPack, PlannedTrial

_logger = logging.getLogger(__name__)


def with_packs(prepared: Prepared, *, address: str | None) -> Prepared:
    """Returns the sweep with its packs planned, and what there is to say about them.

    A pack that stands in the run directory goes on as it is. Of the other trials those that have not begun are packed
    anew: into as many programs as run at a time, where that is faster.

    Args:
      prepared: The sweep.
      address: Where Ray is.
    """
    plan = prepared.plan
    if plan.sweep.pack_rule is None and (plan.sweep.pack == "off" or len(plan.trials) < 2):
        return prepared
    reason = _why_not(plan)
    if reason is not None and plan.sweep.pack_rule is not None:
        raise ConfigError(f"--run.scheduler={plan.sweep.scheduler}: trials can't be packed: {reason}.")
    if reason is not None:
        return replace(prepared, pack_notes=(f"none: {reason}",))
    run = rundir.RunDir(plan.run_dir)
    unfinished = {
        trial.name: trial
        for trial in plan.trials
        if (folder := run.trial(trial.name)).status() not in rundir.TERMINAL or is_tried_again(folder, plan)
    }
    standing = [found for pack in run.packs() if (found := _standing(pack, run, unfinished)) is not None]
    packed = {name for pack in standing for name in pack.trials}
    fresh = [
        trial
        for name, trial in unfinished.items()
        if name not in packed and not evaluators.committed_steps(run.trial(name).checkpoints)
    ]
    slots = ray_cluster.estimate_concurrency(plan, address=address) or 1
    try:
        new, notes = _new_packs(prepared, fresh, run, slots=slots)
    except ConfigError:
        raise
    except (
        Exception
    ) as error:  # The driver may lack the data that nodes have; what is wrong with a trial it says itself.
        new, notes = [], (f"none: {first_line(error)}",)
    if plan.sweep.pack_rule is not None:
        _refuse_others(plan, [*standing, *new], unfinished, notes)
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


def _standing(pack: rundir.PackDir, run: rundir.RunDir, unfinished: dict[str, Any]) -> PlannedPack | None:
    """Returns a pack of the run directory if it can go on, None if those of its trials that are left go on alone."""
    try:
        content = pack.read()
    except DamagedFile as error:
        _logger.warning("%s Its trials go on without it.", error)
        return None
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
    from kauldron_core.packs.planning import sizes

    sweep = prepared.plan.sweep
    # A rule needs all trials in one program, whatever that costs.
    is_auto = sweep.pack == "auto" and sweep.pack_rule is None
    if len(trials) < 2 or (is_auto and len(trials) <= slots):
        return [], ("none: there are no more trials than run at a time",) if len(trials) > 1 else ()
    names = {trial.name for trial in trials}
    base = prepared.experiment.config
    configs = [trial.config(base) for trial in prepared.trials if trial.name in names]
    # The driver has a CPU only: memory and speed of another device are found out by the worker that owns it.
    is_on_cpu = platform_of(sweep.resources) == "cpu"
    limit = sweep.pack if isinstance(sweep.pack, int) else None if is_on_cpu else len(trials)
    memory_bytes = sizes.memory()[0] // slots if is_on_cpu else None  # Those that run at a time share it.
    plan = packs.plan(configs, limit=limit, memory_bytes=memory_bytes)
    if is_auto:
        plan = replace(plan, packs=tuple(shared_out(plan.packs, slots)))
    if is_on_cpu:
        plan = packs.refine(configs, plan, time=is_auto)
    rule = _rule(prepared)
    if rule is not None:
        for pack in plan.packs:
            _check_points([configs[index] for index in pack.members], pack, rule)
    more = {"rule": rule, "is_tried": is_on_cpu, "is_timed": is_auto}
    found = [_planned(pack, trials, run, more) for pack in plan.packs if len(pack.members) > 1]
    lines = [f"{pack.name}: {len(pack.trials)} trials, {pack.trials[0]} to {pack.trials[-1]}" for pack in found]
    later = () if is_on_cpu or not found else ("a worker tries each out on its own device before it begins",)
    return found, (*(lines or ["none"]), *plan.reasons(), *later)


def shared_out(packs: Sequence[Any], slots: int) -> Iterator[Any]:
    """Yields packs in equal parts, so that there are as many as run at a time; a few trials run at a time alone."""
    number = sum(len(pack.members) > slots for pack in packs)
    for pack in packs:
        members = pack.members
        parts = max(1, slots // number) if len(members) > slots else len(members)
        size = math.ceil(len(members) / parts)
        for start in range(0, len(members), size):
            yield replace(pack, members=members[start : start + size])


def _planned(pack: Any, trials: Sequence[PlannedTrial], run: rundir.RunDir, more: Mapping[str, Any]) -> PlannedPack:
    own = [trials[index] for index in pack.members]
    name = hashlib.sha256("\n".join(trial.fingerprint for trial in own).encode()).hexdigest()[:8]
    number = 1
    while run.pack(name).exists():  # One whose trials have been deleted, or have gone on alone.
        number += 1
        name = f"{name.partition('-')[0]}-{number}"
    content = {"pack": replace(pack, members=tuple(range(len(own)))).to_json(), **more}
    return PlannedPack(name=name, trials=tuple(trial.name for trial in own), content=content)


def _rule(prepared: Prepared) -> dict[str, Any] | None:
    """Returns the rule by which trials of a pack are compared, as a config node; None: there is none."""
    from kauldron_core import packs

    sweep = prepared.plan.sweep
    if sweep.pack_rule is None:
        return None
    at = "--run.scheduler"
    name, arguments = read_call(str(sweep.scheduler), at=at, known=PACK_RULES)
    kind = {"halving": packs.Halving, "population": packs.Population}[name]
    (trainer, *_) = prepared.trainers.values()
    num_steps = trainer.num_train_steps or 1
    if name == "halving":
        defaults: dict[str, Any] = {"min_steps": max(1, num_steps // 16)}
    else:
        interval = getattr(trainer.checkpointer, "save_interval_steps", None)
        defaults = {"every": interval or max(1, num_steps // 10), "seed": sweep.seed}
    names = [field.name for field in fields(kind)]
    for one in arguments:
        if one not in names:
            raise ConfigError(unknown_name("argument", one, names, at=at))
    named = {"metric": sweep.metric, "mode": prepared.ranking.mode} if "metric" not in arguments else {}
    node = {**named, **defaults, **arguments}
    with _as_typed():
        rule = kind(**node)
        rule.check(trainer, last_step=num_steps)
        node["mode"] = rule.directed(trainer).mode
    return {"__qualname__": f"kauldron_core.packs:{kind.__name__}", **node}


def _check_points(configs: Sequence[Any], pack: Any, rule: Mapping[str, Any]) -> None:
    """Looks whether a rule finds the numbers that it is to change.

    Raises:
      ConfigError: If not.
    """
    from kauldron_core.packs.running.points import Points

    with _as_typed():
        Points(configs, pack.arguments, num_steps=1, rule=konfig.resolve(rule, trusted=False))


@contextlib.contextmanager
def _as_typed() -> Iterator[None]:
    """Makes messages about a rule name the flag that it was written in."""
    try:
        yield
    except (ConfigError, TypeError, ValueError) as error:
        text = str(error)
        place = text.replace("rule", "--run.scheduler", 1) if text.startswith("rule") else f"--run.scheduler: {text}"
        raise ConfigError(place) from error


def _refuse_others(
    plan: Plan, packs: Sequence[PlannedPack], unfinished: Mapping[str, PlannedTrial], notes: Sequence[str]
) -> None:
    """Raises a `ConfigError` where a rule has to compare trials that are not in one pack."""
    packed = {name for pack in packs for name in pack.trials}
    if len(packs) > 1 or not packed.issuperset(unfinished):
        size = plan.sweep.pack
        other = f"run.pack={size} is too small" if isinstance(size, int) else "some have begun alone"
        why = "; ".join(note for note in notes if ": not packed, " in note)
        raise ConfigError(
            f"--run.scheduler={plan.sweep.scheduler}: compares trials of one pack, and these make {len(packs)} and"
            f" {len(set(unfinished) - packed)} alone: {why or other}."
        )
