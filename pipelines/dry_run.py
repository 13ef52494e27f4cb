"""What `--dry-run` prints: the trials, what they need, how many run at a time, what they fill. No Ray is started."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import ray_cluster
from kauldron_core import rundir
from kauldron_core.errors import first_line
from pipelines.planning import Prepared
from pipelines.report import count, make_table
from pipelines.report.tables import repeat_lines, size
from ray_cluster.results import find_repeats

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
        "trials": f"{_num_trials(prepared)}, each with {resources}",
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
    for name, text in [*lines.items(), *_damages(plan.run_dir)]:
        console.print(f"{name:<11} {text}", markup=False, soft_wrap=True)


def _damages(run_dir: str) -> list[tuple[str, str]]:
    run = rundir.RunDir(run_dir)
    return [("damaged", line) for line in rundir.damages(run)] if run.exists() else []


def _num_trials(prepared: Prepared) -> int:
    plan = prepared.plan
    return len(plan.trials) if plan.sweep.search is None else max(plan.sweep.num_samples, len(plan.trials))


def _concurrency(prepared: Prepared, address: str | None) -> str:
    number = ray_cluster.estimate_concurrency(prepared.plan, address=address)
    if number is None:
        limit = prepared.plan.sweep.max_concurrent
        return f"as many as the cluster carries{f', at most {limit}' if limit else ''}"
    return f"{number} on this machine"


def _disk(prepared: Prepared) -> str:
    """Returns what the checkpoints of all trials come to, judged by the largest experiment that was built."""
    trainers = prepared.trainers.values()
    try:
        bytes_each = [_checkpoint_bytes(trainer) for trainer in trainers]
    except Exception as error:  # Whatever the config calls; the trial will say it too.
        return f"unknown: {first_line(error)}"
    number = max(_num_checkpoints(trainer) for trainer in trainers)
    total = max(bytes_each) * number * _num_trials(prepared)
    checkpoints = f"{count(number, 'checkpoint')} of {size(max(bytes_each))} a trial"
    return f"about {size(total)} ({checkpoints})" if number else "no checkpoints"


def _checkpoint_bytes(trainer: Any) -> int:
    import jax  # the trainers have imported it

    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(trainer.state_specs))


def _num_checkpoints(trainer: Any) -> int:
    interval = getattr(trainer.checkpointer, "save_interval_steps", None)
    steps = trainer.num_train_steps
    if interval is None or not steps:
        return 0
    number, kept = math.ceil(steps / interval), getattr(trainer.checkpointer, "max_to_keep", None)
    return number if kept is None else min(number, kept)
