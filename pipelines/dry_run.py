"""What `--dry-run` prints: the trials, what they need, how many run at a time, what they fill. No Ray is started."""

from __future__ import annotations

import collections
import math
from typing import TYPE_CHECKING, Any

import evaluators
import ray_cluster
from kauldron_core import rundir
from kauldron_core.errors import DamagedFile, first_line
from pipelines.planning import Prepared
from pipelines.report import count, make_table
from pipelines.report.tables import repeat_lines, size
from ray_cluster.driver.layout import is_tried_again
from ray_cluster.results import find_repeats
from ray_cluster.spec import Plan

if TYPE_CHECKING:
    from rich.console import Console


def print_plan(console: Console, prepared: Prepared, *, address: str | None) -> None:
    """Prints what would run."""
    plan = prepared.plan
    if plan.search is not None and plan.sweep.search is not None:
        # The points are chosen while trials run.
        lines = [f"{plan.sweep.search} chooses from", *(f"  {one}" for one in plan.search.space.describe())]
        console.print("\n".join(lines), markup=False, soft_wrap=True)
    rows = [
        [trial.name, ", ".join(f"{path}={value!r}" for path, value in trial.overrides), trial.fingerprint]
        for trial in plan.trials
    ]
    if rows:
        console.print(
            make_table([("trial", "left"), ("overrides", "left"), ("identity", "left")], rows, width=console.width)
        )
    resources = ", ".join(f"{amount:g} {name}" for name, amount in plan.sweep.resources.items())
    lines = {
        "trials": f"{_num_planned(plan)}, each with {resources}",
        "at a time": _concurrency(prepared, address),
        "evaluators": ", ".join(prepared.evaluators) or "none",
        "disk": _disk(prepared),
        "packs": "\n            ".join(prepared.pack_notes) or "none",
        "run": plan.run_dir,
    }
    if plan.sweep.stop_rules:
        lines["stops at"] = ", ".join(map(str, plan.sweep.stop_rules))
    for text in repeat_lines(find_repeats(plan.trials)):
        lines["repeats"] = text
    for name, text in [*lines.items(), *_standing(plan), *_damages(plan.run_dir)]:
        console.print(f"{name:<11} {text}", markup=False, soft_wrap=True)


def _standing(plan: Plan) -> list[tuple[str, str]]:
    """Returns how far the run is, where there is one, and what of it would run."""
    run = rundir.RunDir(plan.run_dir)
    if not run.exists():
        return []
    folders = [run.trial(trial.name) for trial in plan.trials]
    left = [one for one in folders if one.status() not in rundir.TERMINAL or is_tried_again(one, plan)]
    statuses = collections.Counter(one.status() for one in folders if one not in left)
    ended = ", ".join(f"{number} {status}" for status, number in statuses.items()) or "none has ended"
    missing = _num_planned(plan) - sum(statuses.values())
    would = [count(missing, "trial")] if missing else []
    due = sum(_num_due(one) for one in folders if one not in left)
    would += [count(due, "evaluation")] if due else []
    return [("stands at", f"{ended}; {' and '.join(would) or 'nothing'} would run")]


def _num_due(trial: rundir.TrialDir) -> int:
    try:
        return len(evaluators.due(trial, finished=True))
    except DamagedFile:  # A line of its own says so.
        return 0


def _damages(run_dir: str) -> list[tuple[str, str]]:
    run = rundir.RunDir(run_dir)
    return [("damaged", line) for line in rundir.damages(run)] if run.exists() else []


def _num_planned(plan: Plan) -> int:
    return len(plan.trials) if plan.sweep.search is None else max(plan.sweep.num_samples, len(plan.trials))


def _concurrency(prepared: Prepared, address: str | None) -> str:
    number = ray_cluster.estimate_concurrency(prepared.plan, address=address)
    if number is None:
        limit = prepared.plan.sweep.max_concurrent
        return f"as many as the cluster carries{f', at most {limit}' if limit else ''}"
    return f"{number} on this machine"


def _disk(prepared: Prepared) -> str:
    """Returns what the checkpoints of all trials come to, judged by the largest experiment that was built."""
    from kauldron_core import ckpts  # JAX, which the trainers have imported

    trainers = prepared.trainers.values()
    try:
        bytes_each = [ckpts.expected_bytes(trainer.state_specs) for trainer in trainers]
    except Exception as error:  # Whatever the config calls; the trial will say it too.
        return f"unknown: {first_line(error)}"
    number = max(_num_checkpoints(trainer) for trainer in trainers)
    total = max(bytes_each) * number * _num_planned(prepared.plan)
    checkpoints = f"{count(number, 'checkpoint')} of {size(max(bytes_each))} a trial"
    return f"about {size(total)} ({checkpoints})" if number else "no checkpoints"


def _num_checkpoints(trainer: Any) -> int:
    keeper, steps = trainer.checkpointer, trainer.num_train_steps
    if keeper is None or keeper.save_interval_steps is None or not steps:
        return 0
    number = math.ceil(steps / keeper.save_interval_steps)
    if keeper.max_to_keep is None:
        return number
    best = (keeper.keep_best or 1) if keeper.best_metric is not None else 0
    besides = steps // keeper.keep_every_n_steps if keeper.keep_every_n_steps else 0
    return min(number, keeper.max_to_keep + best + besides)
