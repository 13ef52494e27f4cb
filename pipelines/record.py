"""`kdr record`: bring the MLflow records of a run up to date. Also `python -m pipelines.record`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from kauldron_core import rundir
from pipelines.cli.run import DONE, FAILED, run
from pipelines.operations import find_run
from pipelines.terminal import echo
from pipelines.tracking import Recorder, Store

HELP = """Bring the MLflow records of a run up to date.

RUN is a run directory, or its name under runs/. What MLflow holds already is not written twice; runs whose driver is
gone are closed.
"""

EPILOG = """\b
Examples:
  kdr record runs/demo
  MLFLOW_TRACKING_URI=http://127.0.0.1:5000 kdr record runs/demo
"""


@click.command("record", help=HELP, epilog=EPILOG)
@click.argument("path", metavar="RUN")
def command(path: str) -> int:
    """Records everything that is on disk."""
    run_dir = find_run(path)
    rundir.refuse_links(run_dir)
    _ = run_dir.sweep  # A damaged one is not MLflow's fault.
    store = Store.at(run_dir.path.parent)
    has_driver = rundir.Lease.is_live(run_dir.path / ".lock")
    recorder = Recorder(store, warn=lambda line: echo(line, err=True), is_driver=not has_driver, patience_s=0.0)
    recorder.start(run_dir)
    recorder.close()
    echo(store.view_command)
    return DONE if recorder.is_complete else FAILED


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `kdr record` and returns its exit status."""
    return run(command, argv, program="python -m pipelines.record")


if __name__ == "__main__":
    sys.exit(main())
