"""Which trials a path means: that of a run, of a trial, or of a trial by its number."""

from __future__ import annotations

import os
import pathlib

from kauldron_core.errors import ConfigError, listing
from kauldron_core.rundir.layout import RunDir, TrialDir


def find_trial(run: RunDir, text: str) -> TrialDir:
    """Returns the trial that `text` names: its name, its number, or a part of its name that no other has.

    Raises:
      ConfigError: If there is none, or more than one.
    """
    trials = {trial.name: trial for trial in run.trials()}
    if text in trials:
        return trials[text]
    if text.isdecimal():
        found = [name for name in trials if name.partition("-")[0].lstrip("0") == text.lstrip("0")]
    else:
        found = [name for name in trials if text in name]
    if len(found) > 1:
        raise ConfigError(f"{run.path}: {text!r} is a part of {len(found)} trials: {', '.join(found[:5])}.")
    return trials[found[0]] if found else run.find_trial(text)


def find_trials(path: str | os.PathLike[str]) -> list[TrialDir]:
    """Returns the trials that a path means: one by its folder or as `RUN/trials/3`, all of a run; else none.

    Raises:
      ConfigError: If it names a trial by something that its run does not have.
    """
    place = pathlib.Path(path)
    if TrialDir(place).exists():
        return [TrialDir(place)]
    if RunDir(place).exists():
        return RunDir(place).trials()
    run = TrialDir(place).run()
    if run is not None and run.exists() and not place.exists():
        return [find_trial(RunDir(place.parent.parent), place.name)]
    return []


def find_one_trial(path: str | os.PathLike[str]) -> TrialDir:
    """Returns the one trial that a path means, also that of a run which has no other.

    Raises:
      ConfigError: If there is none, or the run has several.
    """
    trials = find_trials(path)
    if len(trials) > 1:
        names = listing(os.fspath(trial) for trial in trials)
        raise ConfigError(f"{os.fspath(path)}: this run has {len(trials)} trials. Say which one: {names}.")
    return trials[0] if trials else TrialDir(path)
