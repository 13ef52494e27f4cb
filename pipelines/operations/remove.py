"""`kdr rm RUN`: removes a run, and only what this package has written there."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from kauldron_core import rundir
from kauldron_core.errors import ConfigError
from pipelines.cli.run import DONE, run
from pipelines.operations.finding import find_run, has_driver
from pipelines.report import count
from pipelines.report.tables import size
from pipelines.terminal import confirm, echo

EPILOG = """\b
Examples:
  kdr rm demo
  kdr rm /shared/runs/demo --yes
"""

_OF_RUN = (
    *("sweep.json", "base.json", "points.json", "control.json", "timings.json", "trials.parquet", "results.parquet"),
    *("code", "logs", "packs", ".lock", ".leases", ".ray_token", ".tune", ".probe"),
)
_OF_TRIAL = ("config.json", "status.json", "checkpoints", "events", "logs", "evals", ".leases")


@click.command("rm", epilog=EPILOG, context_settings={"max_content_width": 120})
@click.argument("path", metavar="RUN")
@click.option("--yes", is_flag=True, help="Do not ask.")
def command(path: str, yes: bool) -> int:
    """Remove a run: its trials, checkpoints, events and results.

    Files that kdr did not write stay where they are, and so do the records in MLflow. Asks first.
    """
    run_dir = find_run(path)
    if run_dir.path.is_symlink():
        raise ConfigError(
            f"{run_dir.path}: is a link to {run_dir.path.resolve()}. Name that, or remove the link itself."
        )
    if has_driver(run_dir):
        raise ConfigError(f"{run_dir.path}: a driver is at work on it. First: kdr stop {path} --wait")
    own = list(own_paths(run_dir))
    total = sum(_size(one) for one in own)
    trials = count(len(run_dir.trials()), "trial")
    if not yes and not confirm(f"Remove {run_dir.path} with {trials}, {size(total)}?"):
        echo("nothing was removed")
        return DONE
    try:
        left = remove(run_dir)
    except OSError as error:
        raise ConfigError(f"{run_dir.path}: can't be removed, what is left of it stays: {error.strerror}.") from error
    echo(f"removed {run_dir.path}, {size(total)}")
    for kept in left:
        echo(f"kept {kept}, which kdr did not write")
    return DONE


def own_paths(run_dir: rundir.RunDir) -> Iterator[Path]:
    """Yields what this package has written in a run directory, `sweep.json` last: until then it is a run."""
    for trial in run_dir.trials():
        yield from _known(trial.path, _OF_TRIAL)
    yield from _links(run_dir.trials_path)
    yield from (one for one in _known(run_dir.path, _OF_RUN) if one != run_dir.sweep_path)
    yield run_dir.sweep_path


def remove(run_dir: rundir.RunDir) -> list[Path]:
    """Removes it and returns what else lies there, and stays. Of a link only the link goes."""
    folders = [*(trial.path for trial in run_dir.trials()), run_dir.trials_path, run_dir.path]
    for path in own_paths(run_dir):
        rundir.remove(path, inside=run_dir)
    left: list[Path] = []
    for folder in folders:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
        elif folder.is_dir():
            left += [one for one in folder.iterdir() if one not in folders]
    return left


def _known(folder: Path, names: tuple[str, ...]) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.name in names or path.name.startswith((".tmp-", ".probe-")):
            yield path


def _links(folder: Path) -> Iterator[Path]:
    """Yields the links in a folder of trials, or the folder itself where it is one."""
    if folder.is_symlink():
        yield folder
    elif folder.is_dir():
        yield from (one for one in folder.iterdir() if one.is_symlink())


def _size(path: Path) -> int:
    if not path.is_dir() or path.is_symlink():
        return path.lstat().st_size
    return sum(one.lstat().st_size for one in path.rglob("*") if not one.is_dir())


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `kdr rm` and returns its exit status."""
    return run(command, argv, program="kdr rm")


if __name__ == "__main__":
    sys.exit(main())
