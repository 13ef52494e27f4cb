"""`kdr logs RUN TRIAL`: what a trial printed, also while it runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from kauldron_core import rundir
from kauldron_core.errors import ConfigError
from kauldron_core.escaping import OutputFilter
from pipelines.cli.run import DONE, run
from pipelines.operations.finding import find_one, find_run, is_driven
from pipelines.terminal import echo

EPILOG = """\b
Examples:
  kdr logs demo 3
  kdr logs demo 0003-learning_rate=0.01 --follow
  kdr logs demo evaluator-eval-0-0
"""

_CHUNK = 1 << 16
_TICK_S = 0.3


@click.command("logs", epilog=EPILOG, context_settings={"max_content_width": 120})
@click.argument("path", metavar="RUN")
@click.argument("trial", required=False)
@click.option("--follow", "-f", is_flag=True, help="Go on until the trial ends, or Ctrl-C.")
def command(path: str, trial: str | None, follow: bool) -> int:
    """Print what a trial wrote to standard output and error.

    TRIAL is a trial's name, its number, or a part of its name; or the name of an evaluator's folder in RUN/logs. A run
    with one trial needs none. What a trial of a pack prints is that of the whole pack.
    """
    evaluator = None if trial is None or "/" in trial else find_run(path).path / "logs" / trial
    if evaluator is not None and evaluator.is_dir():
        tail, is_over = Tail(evaluator), lambda: not is_driven(find_run(path))
    else:
        found = find_one(path, trial, form="TRIAL")
        run_dir = found.run() or rundir.RunDir(found.path)
        folder = _logs_of(run_dir, found)
        tail, is_over = Tail(folder), lambda: _has_ended(run_dir, found)
        if not follow and not folder.is_dir():
            raise ConfigError(f"{found.path}: has printed nothing yet; it is {found.status()}.")
    tail.print_new(is_last=not follow)
    if not follow and tail.is_empty:
        echo(f"note: nothing was printed{'' if is_over() else ' yet'}, {tail.folder} is empty.", err=True)
    while follow:
        # Asked before the last look, so that nothing is missed.
        follow = not is_over()
        time.sleep(_TICK_S)
        tail.print_new(is_last=not follow)
    return DONE


class Tail:
    """Prints what is new in the log files of a folder: standard output to standard output, error to error."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = {folder / "stdout.log": sys.stdout, folder / "stderr.log": sys.stderr}
        self._offsets = dict.fromkeys(self._files, 0)
        self._filters = {path: OutputFilter() for path in self._files}

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been printed so far."""
        return not any(self._offsets.values())

    def print_new(self, *, is_last: bool = False) -> None:
        """Prints what was written since the last call: lines and plain colours; everything else in it is escaped.

        Args:
          is_last: Nothing follows; what waits for its rest is printed too.
        """
        for path, stream in self._files.items():
            if path.is_symlink() or not path.is_file():  # What a link leads to is not what the trial printed.
                continue
            with open(path, "rb") as file:
                file.seek(self._offsets[path])
                while data := file.read(_CHUNK):
                    self._offsets[path] += len(data)
                    stream.write(self._filters[path].take(data))
                stream.write(self._filters[path].take(b"", is_last=is_last))
            stream.flush()


def _logs_of(run_dir: rundir.RunDir, trial: rundir.TrialDir) -> Path:
    """Returns where a trial's output lies; one that is trained with others has none of its own."""
    pack = rundir.read_status(trial).get("pack")
    return trial.logs if pack is None or trial.logs.is_dir() else run_dir.pack(pack).logs


def _has_ended(run_dir: rundir.RunDir, trial: rundir.TrialDir) -> bool:
    return trial.status() in rundir.TERMINAL or not is_driven(run_dir)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `kdr logs` and returns its exit status."""
    return run(command, argv, program="kdr logs")


if __name__ == "__main__":
    sys.exit(main())
