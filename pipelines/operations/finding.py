"""Which run and which trial a person means."""

from __future__ import annotations

import shlex
from pathlib import Path

from kauldron_core import rundir
from kauldron_core.errors import ConfigError, closest, listing
from pipelines.recorded_command import recorded_words

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
    names = [run.name for run in list_runs(folder)]
    match = closest(given.name, names)
    hint = f" Did you mean {prefix + match!r}?" if match else ""
    raise ConfigError(f"unknown run {text!r}.{hint} Available: {listing(prefix + name for name in names)}.")


def list_runs(root: Path) -> list[rundir.RunDir]:
    """Returns the run directories in a folder, the one that was made last at the end."""
    try:
        runs = [rundir.RunDir(folder.absolute()) for folder in root.iterdir() if folder.is_dir()]
    except OSError:
        return []
    return sorted((run for run in runs if run.exists()), key=lambda run: (run.sweep_path.stat().st_mtime, run.name))


def find_trials(text: str, trial: str | None = None) -> list[rundir.TrialDir]:
    """Returns the trials that a run (all of them, or one by name or number) or a folder with checkpoints means.

    Raises:
      ConfigError: If there is none.
    """
    folder = rundir.TrialDir(find_folder(text).absolute())
    if folder.exists() or (folder.checkpoints.is_dir() and not rundir.RunDir(folder).exists()):
        if trial is not None:
            raise ConfigError(f"{text}: is a trial already, and no run that holds {trial!r}. Give the run.")
        return [folder]
    run = find_run(text)
    if trial is not None:
        return [rundir.find_trial(run, trial)]
    if not run.trials():
        raise ConfigError(f"{run.path}: this run has no trials yet.")
    return run.trials()


def find_one(text: str, trial: str | None = None, *, form: str = "--trial=NAME") -> rundir.TrialDir:
    """Returns the trial that is meant, and refuses a run of several.

    Args:
      text: A run with one trial, or a trial.
      trial: Which of a run.
      form: How it is said on the command line, for errors.

    Raises:
      ConfigError: If there is none, or which one is not said.
    """
    trials = find_trials(text, trial)
    if len(trials) > 1:
        names = listing(found.name for found in trials)
        raise ConfigError(f"{text}: this run has {len(trials)} trials. Say which one: {form} of {names}.")
    return trials[0]


def find_folder(text: str | Path) -> Path:
    """Returns the folder that `text` means: a path, a run's name under `runs/`, or a trial by its number or part."""
    places = (rundir.local_path(text, at="RUN"), Path(ROOT, text))
    for path in places:
        if path.exists():
            return path
        found = rundir.find_trials(path)
        if found:
            return found[0].path
    return places[0]


def has_driver(run: rundir.RunDir) -> bool:
    """Returns whether a driver holds the run, for who acts on that: one whose clock is ahead is watched for a while."""
    return rundir.is_locked(run.path / ".lock")


def is_driven(run: rundir.RunDir) -> bool:
    """Returns whether a driver seems to be at work on the run, at once."""
    return rundir.Lease.is_live(run.path / ".lock")


INTERRUPTED = "interrupted"
"""What is said of a trial that was running when its driver ended; its file can't know that."""


def status_of(status: str, *, is_driven: bool) -> str:
    """Returns the status of a trial in words, from that in its file."""
    return INTERRUPTED if status == "running" and not is_driven else status


def resume_command(run: rundir.RunDir) -> str:
    """Returns the command that goes on with a run where it lies now."""
    program, words = recorded_words(run) or ((), [])
    if program and program[-1] in ("train", "pipelines.train"):
        words = [word for word in words if not word.startswith(("--run.name=", "--run.root="))]
        root = [] if run.path.parent == Path(ROOT).absolute() else [f"--run.root={run.path.parent}"]
        return shlex.join([*program, *words, *root, f"--run.name={run.name}"])
    return shlex.join(["kdr", "sweep", f"--resume={run.path}"])


def driver_of(run: rundir.RunDir) -> str:
    """Returns who drives the run, in words."""
    holder = rundir.read_holder(run.path / ".lock")
    if holder is None:
        return "none yet"
    ahead = f" (its clock is {holder.ahead_s / 60:.0f} min ahead)" if holder.ahead_s else ""
    return f"{holder} at work{ahead}" if holder.is_live() else "none (it has ended)"
