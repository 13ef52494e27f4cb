"""The config of a trial, read from its folder."""

from __future__ import annotations

import os
from typing import Any

from kauldron_core import konfig, rundir
from kauldron_core.errors import ConfigError


def resolve_trial(trial_dir: str | os.PathLike[str]) -> Any:
    """Returns what the config of the trial describes. See `load_config`."""
    return konfig.resolve(load_config(trial_dir))


def load_config(trial_dir: str | os.PathLike[str]) -> konfig.ConfigDict:
    """Returns the config of the trial (or of the one trial of a run), with its folder as its workdir.

    It is data from a disk: it may only name what `konfig` allows, see `konfig.trust`.

    Raises:
      ConfigError: If the folder is not a trial's, or that of a run with several.
    """
    trial = rundir.find_one_trial(trial_dir)
    if not trial.exists():
        raise ConfigError(f"{os.fspath(trial_dir)}: not the folder of a trial, it has no config.json.")
    cfg = konfig.load(trial.config_path)
    cfg.workdir = os.path.abspath(trial)
    return cfg
