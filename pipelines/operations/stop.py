"""`kdr stop RUN [TRIAL]`: asks a run, or one trial, to save and end."""

from __future__ import annotations

import getpass
import os
import sys
import time
from collections.abc import Sequence

import click

from kauldron_core import rundir
from kauldron_core.errors import ConfigError, RunFailed
from pipelines.cli.run import DONE, run
from pipelines.operations.finding import find_run, has_driver, is_driven
from pipelines.report import count
from pipelines.terminal import echo
from ray_cluster.driver import control

EPILOG = """\b
Examples:
  kdr stop demo          all trials save and end; the same `kdr sweep` command goes on with them
  kdr stop demo 3        this trial saves and ends for good, with the status `stopped`
  kdr stop demo --wait
"""

_TIMEOUT_S = 600.0


@click.command("stop", epilog=EPILOG, context_settings={"max_content_width": 120})
@click.argument("path", metavar="RUN")
@click.argument("trial", required=False)
@click.option("--wait", is_flag=True, help="Return when it has ended, at most ten minutes later.")
def command(path: str, trial: str | None, wait: bool) -> int:
    """Ask a run to save and end, or one trial of it.

    Running trials write a checkpoint first. A run that was stopped goes on where it was when it is started again; a
    trial that was stopped by itself has ended, and `kdr sweep --resume=RUN --retry-failed` goes on with it.
    """
    run_dir = find_run(path)
    found = rundir.find_trial(run_dir, trial) if trial is not None else None
    if not has_driver(run_dir):
        raise ConfigError(f"{run_dir.path}: no driver is at work on it, so there is nothing to stop.")
    reason = f"kdr stop by {_user()}"
    if found is None:
        control.request_stop(run_dir, reason=reason)
        running = sum(one.status() == "running" for one in run_dir.trials())
        echo(f"asked {count(running, 'running trial')} of {run_dir.path} to save and end")
    elif found.status() in rundir.TERMINAL:
        raise ConfigError(f"{found.path}: has ended already, with status {found.status()}.")
    else:
        control.request_trial_stop(run_dir, found.name, reason=reason)
        echo(f"asked trial {found.name} to save and end")
    if wait:
        _wait(run_dir, found)
    return DONE


def _wait(run_dir: rundir.RunDir, trial: rundir.TrialDir | None) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while is_driven(run_dir) if trial is None else trial.status() not in rundir.TERMINAL:
        if time.monotonic() > deadline:
            raise RunFailed(f"{(trial or run_dir).path}: has not ended after {_TIMEOUT_S:g} s.")
        time.sleep(0.2)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return f"user {os.getuid()}"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `kdr stop` and returns its exit status."""
    return run(command, argv, program="kdr stop")


if __name__ == "__main__":
    sys.exit(main())
