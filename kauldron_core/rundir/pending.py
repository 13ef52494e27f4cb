"""Checkpoints that wait for an evaluator: told by the evaluators, read by the trainer, who alone deletes checkpoints.

    RUN/.leases/watch/NAME/ lease: somebody evaluates all trials' checkpoints for NAME and is alive
    evals/NAME/.watch/      lease: the same for this trial alone
    evals/NAME/.due.json    what that holder has seen and what of it is due; nobody else writes it
    evals/NAME/.leases/30/  lease: the checkpoint at step 30 is being evaluated

A checkpoint is awaited while it is being evaluated, and while it has no result, a watch is live, and it is due or
newer than what the holder has seen. So a checkpoint is safe from the moment it is there, and a holder that died
keeps nothing for longer than its lease. An evaluator that blocks is another matter: what waits for it is kept until it
has a result, whoever is alive and however many there are. Training never waits. Where both watches are live, the run's
holder is the one who tells.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Iterable

from kauldron_core.rundir import atomic, formats, layout, leases, names, reading, results

DEFAULT_MAX_PENDING = 8
_NOTHING_SEEN = -1
_RUN_WATCHES = pathlib.Path(".leases", "watch")


@dataclasses.dataclass(frozen=True)
class Pending:
    """What waits for one evaluator.

    Attributes:
      due: Steps that it will evaluate, ascending.
      seen: The newest step that it has looked at; whether a newer one is due is not known yet.
      max_pending: How many waiting checkpoints are kept for it at most, the newest.
      is_blocking: Whether all are kept instead, also while nobody watches: none is to be left out, ever.
    """

    due: tuple[int, ...] = ()
    seen: int = _NOTHING_SEEN
    max_pending: int = DEFAULT_MAX_PENDING
    is_blocking: bool = False


def watch_path(trial_dir: str | os.PathLike[str], name: str) -> pathlib.Path:
    """Returns the lease of whoever evaluates the trial's checkpoints for evaluator `name`."""
    return results.result_path(trial_dir, name, 0).parent / ".watch"


def run_watch_path(run_dir: str | os.PathLike[str], name: str) -> pathlib.Path:
    """Returns the lease of whoever evaluates the checkpoints of all the run's trials for evaluator `name`."""
    return pathlib.Path(run_dir) / _RUN_WATCHES / names.check_name(name, kind="evaluator")


def work_path(trial_dir: str | os.PathLike[str], name: str, step: int) -> pathlib.Path:
    """Returns the lease of whoever evaluates the checkpoint at `step` right now."""
    return results.result_path(trial_dir, name, step).parent / ".leases" / str(step)


def write_pending(trial_dir: str | os.PathLike[str], name: str, pending: Pending) -> None:
    """Tells what waits for evaluator `name`. Only for the holder of its watch."""
    path = _pending_path(trial_dir, name)
    atomic.make_folder(path.parent)
    atomic.write_json(path, dataclasses.asdict(pending))


def read_pending(trial_dir: str | os.PathLike[str], name: str) -> Pending:
    """Checkpoints that wait for evaluator `name`, as last written; none if the file is damaged."""
    try:
        found = reading.read_json(_pending_path(trial_dir, name), formats.PENDING)
    except (FileNotFoundError, reading.DamagedFile):
        return Pending()
    is_blocking = found.get("is_blocking", False)
    return Pending(
        due=tuple(found["due"]), seen=found["seen"], max_pending=found["max_pending"], is_blocking=is_blocking
    )


def awaited_steps(trial_dir: str | os.PathLike[str], steps: Iterable[int]) -> dict[int, str]:
    """Returns which of these checkpoints must not be deleted yet, each with the name of an evaluator that needs it."""
    awaited: dict[int, str] = {}
    steps = sorted(steps)
    recorded = results.list_eval_results(trial_dir) if steps else set()
    for name in _evaluators(trial_dir) if steps else ():
        missing = [step for step in steps if (name, step) not in recorded]
        running = [step for step in missing if leases.Lease.is_live(work_path(trial_dir, name, step))]
        for step in (*running, *_waiting(trial_dir, name, missing)):
            awaited.setdefault(step, name)
    return awaited


def is_watched_by_run(trial_dir: str | os.PathLike[str], name: str) -> bool:
    """Returns whether somebody sees to evaluator `name` for the whole run of this trial."""
    run = layout.TrialDir(trial_dir).run()
    return run is not None and leases.Lease.is_live(run_watch_path(run, name))


def _evaluators(trial_dir: str | os.PathLike[str]) -> list[str]:
    """Returns the evaluators that were ever at work on the trial, or are on its run."""
    trial = layout.TrialDir(trial_dir)
    run = trial.run()
    folders = [trial.evals, *([] if run is None else [run.path / _RUN_WATCHES])]
    found = {place.name for folder in folders if folder.is_dir() for place in folder.iterdir() if place.is_dir()}
    return sorted(name for name in found if names.fault(name) is None)


def _waiting(trial_dir: str | os.PathLike[str], name: str, steps: list[int]) -> list[int]:
    pending = read_pending(trial_dir, name)
    waiting = [step for step in steps if step > pending.seen or step in pending.due]
    if pending.is_blocking:
        return waiting
    is_watched = leases.Lease.is_live(watch_path(trial_dir, name)) or is_watched_by_run(trial_dir, name)
    return waiting[-max(pending.max_pending, 1) :] if is_watched else []


def _pending_path(trial_dir: str | os.PathLike[str], name: str) -> pathlib.Path:
    return results.result_path(trial_dir, name, 0).parent / ".due.json"
