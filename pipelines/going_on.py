"""What is said of a run that a machine has ended: what is kept, and how to go on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from kauldron_core import rundir
from kauldron_core.errors import RunFailed
from kauldron_core.machine import machine_fault
from ray_cluster.driver.ground import GONE


@contextlib.contextmanager
def going_on(run: rundir.RunDir, *, command: str) -> Iterator[None]:
    """Adds to what the machine refuses how to go on with the run.

    Args:
      run: The run directory.
      command: What goes on with it.

    Raises:
      RunFailed: If the run directory has gone meanwhile, or the error was one.
    """
    was_there = run.exists()
    try:
        yield
    except Exception as error:
        if machine_fault(error) is None:
            raise
        if was_there and not _is_there(run):
            raise RunFailed(f"{run.path}: {GONE}") from error
        rest = f"{_kept(run)} To go on, when that is mended: {command}"
        if isinstance(error, RunFailed):  # It has been put into words.
            raise RunFailed(f"{str(error).rstrip('.')}. {rest}") from error
        error.add_note(rest)
        raise


def _is_there(run: rundir.RunDir) -> bool:
    try:
        return run.exists()
    except OSError:
        return True  # It can't be seen, which is another matter.


def _kept(run: rundir.RunDir) -> str:
    """Returns what stays, in words."""
    with contextlib.suppress(OSError):
        steps = {trial.name: rundir.committed_steps(trial.checkpoints) for trial in run.trials()}
        if len(steps) == 1 and any(steps.values()):
            return f"Kept: the checkpoint at step {max(map(max, steps.values()))}."
    return f"Kept: what {run.path} holds."
