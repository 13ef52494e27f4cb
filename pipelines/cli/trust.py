"""The options by which a person lets configs call code: `--trust=PACKAGE` and `--trust-run`, the same everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from kauldron_core import konfig, rundir
from pipelines.operations import find_folder

Command = TypeVar("Command", bound=Callable[..., Any])


def trust_options(command: Command) -> Command:
    """Adds both options; the command gets `trust` and `trust_run`, see `trust_code`."""
    run_option = click.option(
        "--trust-run", is_flag=True, help="Let configs call the copies of config files that the run keeps in RUN/code."
    )
    package_option = click.option(
        "--trust", multiple=True, metavar="PACKAGE", help="Let configs call this package; may be repeated."
    )
    return package_option(run_option(command))


def trust_code(place: str | Path | None, *, trust: Iterable[str] = (), trust_run: bool = False) -> None:
    """Trusts what the options name.

    Args:
      place: The run, the trial or the config file that the command is about.
      trust: Packages.
      trust_run: Whether also the code that the run of `place` keeps.
    """
    konfig.trust(*trust)
    if trust_run and place is not None:
        konfig.trust_run(_home_of_code(find_folder(place)))


def _home_of_code(path: Path) -> Path:
    """Returns the folder whose `code` goes with a run, a trial or its config: a trial on its own has one, too."""
    folder = path.parent if path.is_file() else path
    run = None if rundir.RunDir(folder).exists() else rundir.TrialDir(folder).run()
    return folder if run is None else run.path
