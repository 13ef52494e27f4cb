"""Which run and which trial a person means."""

from __future__ import annotations

import shlex
from pathlib import Path

from kauldron_core import rundir
from kauldron_core.errors import ConfigError, listing, unknown_name

ROOT = "runs"
"""Where runs lie unless `--run.root` says something else."""


def find_run(text: str) -> rundir.RunDir:
    """Returns the run directory that `text` names: a path, or the name of a folder under `runs/`.

    Raises:
      ConfigError: If there is none; with the closest of those that lie beside, or with those that lie in it.
    """
    given = rundir.local_path(text, at="RUN")
    places = (given, Path(ROOT, text))
    for path in places:
        run = rundir.RunDir(path.absolute())
        if run.exists():
            return run
    for path in places:
        inside = [f"{text.rstrip('/')}/{run.name}" for run in list_runs(path)]
        if inside:
            raise ConfigError(f"{text}: a folder of runs, and no run itself. Say which one: {listing(inside)}.")
    folder = given.parent if "/" in text else Path(ROOT)
    prefix = "" if folder == Path() else f"{folder}/"
    raise ConfigError(unknown_name("run", text, [f"{prefix}{run.name}" for run in list_runs(folder)]))


def list_runs(root: Path) -> list[rundir.RunDir]:
    """Returns the run directories in a folder, the one that was made last at the end."""
    try:
        runs = [rundir.RunDir(folder.absolute()) for folder in root.iterdir() if folder.is_dir()]
    except OSError:
        return []
    return sorted((run for run in runs if run.exists()), key=lambda run: (run.sweep_path.stat().st_mtime, run.name))


def find_trial(run: rundir.RunDir, text: str) -> rundir.TrialDir:
    """Returns the trial that `text` names: its name, its number, or a part of its name that no other has.

    Raises:
      ConfigError: If there is none, or more than one.
    """
    trials = {trial.name: trial for trial in run.trials()}
    if text in trials:
        return trials[text]
    if text.isdecimal():
        numbered = [name for name in trials if name.partition("-")[0].lstrip("0") == text.lstrip("0")]
    else:
        numbered = [name for name in trials if text in name]
    if len(numbered) > 1:
        raise ConfigError(f"{run.path}: {text!r} is a part of {len(numbered)} trials: {', '.join(numbered[:5])}.")
    return trials[numbered[0]] if numbered else run.find_trial(text)


def is_driven(run: rundir.RunDir) -> bool:
    """Returns whether a driver is at work on the run."""
    return rundir.Lease.is_live(run.path / ".lock")


INTERRUPTED = "interrupted"
"""What is said of a trial that was running when its driver ended; its file can't know that."""


def status_of(status: str, *, is_driven: bool) -> str:
    """Returns the status of a trial in words, from that in its file."""
    return INTERRUPTED if status == "running" and not is_driven else status


def resume_command(run: rundir.RunDir) -> str:
    """Returns the command that goes on with a run."""
    typed = str(run.sweep.get("command") or "")
    words = shlex.split(typed)
    if words[:2] == ["kdr", "train"] or "pipelines.train" in words[:3]:
        has_name = any(word.startswith("--run.name=") for word in words)
        return typed if has_name else f"{typed} --run.name={shlex.quote(run.name)}"
    return shlex.join(["kdr", "sweep", f"--resume={run.path}"])


def driver_of(run: rundir.RunDir) -> str:
    """Returns who drives the run, in words."""
    holder = rundir.read_holder(run.path / ".lock")
    if holder is None:
        return "none yet"
    return f"{holder} at work" if holder.is_live() else "none (it has ended)"
