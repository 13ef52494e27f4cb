"""Where a run lies, and whether it may be continued."""

from __future__ import annotations

import datetime
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kauldron_core import konfig, rundir, sweeps
from kauldron_core.errors import ConfigError
from pipelines.experiment import Experiment
from pipelines.recorded_command import recorded_command
from pipelines.tracking import Store
from ray_cluster.cluster.environment import is_ray_job
from ray_cluster.spec import Sweep

_SHOWN = 3
_STEPS = "num_train_steps"


def place_run(spec: Sweep, experiment: Experiment) -> rundir.RunDir:
    """Returns the run directory: `ROOT/NAME`, or a new `ROOT/<config>-<date-time>` without `--run.name`.

    Raises:
      ConfigError: If the name can't be a folder, or the root is relative inside a Ray job.
    """
    root = rundir.local_path(spec.root, at="--run.root")
    if is_ray_job() and not root.is_absolute():
        raise ConfigError(
            f"--run.root={spec.root}: inside a Ray job a relative folder is lost with the job's working directory."
            f" Give an absolute one that all nodes share: --run.root={Path.home() / root.name}"
        )
    if spec.name is not None:
        return rundir.RunDir(root.absolute() / rundir.check_name(spec.name, kind="run", at="--run.name"))
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return rundir.RunDir(_first_free(root.absolute() / f"{experiment.name}-{now}"))


def make_root(spec: Sweep) -> None:
    """Makes the folder of all runs where it is missing.

    Raises:
      ConfigError: If that is impossible; the message says what the system said.
    """
    if not spec.root:
        raise ConfigError("--run.root: is empty. Give a folder, such as --run.root=runs.")
    if spec.name is not None:
        rundir.check_name(spec.name, kind="run", at="--run.name")
    root = rundir.check_path(rundir.local_path(spec.root, at="--run.root"), at="--run.root")
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--run.root: {spec.root!r} can't be a folder of runs: {error.strerror}.") from error
    run = root / (spec.name or "")
    place = run if run.is_dir() else root
    fault = rundir.try_writing(place)
    if fault is not None:
        raise ConfigError(
            f"--run.root: nothing can be written in {place}: {fault.strerror}. Choose another --run.root."
        )


def place_store(spec: Sweep) -> Store:
    """Returns the MLflow store of the runs in this root.

    Raises:
      ConfigError: If it is a relative file inside a Ray job.
    """
    uri = os.environ.get("MLFLOW_TRACKING_URI", "")
    if is_ray_job() and uri.startswith("sqlite:///") and not uri.startswith("sqlite:////"):
        raise ConfigError(
            f"MLFLOW_TRACKING_URI={uri}: inside a Ray job a relative file is lost with the job's working directory."
            f" Give an absolute one: sqlite:///{Path.home() / Path(uri).name}"
        )
    return Store.at(rundir.local_path(spec.root, at="--run.root"))


def describe(
    experiment: Experiment, trials: Sequence[sweeps.Trial], *, standing: rundir.RunDir, command: str
) -> dict[str, Any]:
    """Returns what `sweep.json` says beside the spec and the trials.

    Args:
      experiment: The experiment.
      trials: Its trials.
      standing: The run directory; when it exists its identity is kept.
      command: The command as it was typed.
    """
    known = standing.sweep if standing.exists() else {}
    return {
        "id": known.get("id") or secrets.token_hex(4),
        "config": experiment.file.path.name,
        "command": known.get("command") or command,
        "base": _leaves(experiment.config, trials),
        "swept": list(dict.fromkeys(path for trial in trials for path, _ in trial.overrides)),
    }


def refuse_other_sweep(
    run: rundir.RunDir, base: Mapping[str, str], trials: Mapping[str, str], *, extend: bool = False
) -> None:
    """Refuses to continue a run directory with another sweep.

    Args:
      run: The run directory; nothing is wrong where it does not exist.
      base: The leaves of this sweep's base config.
      trials: The fingerprints of this sweep's trials by name.
      extend: Whether the trials may be more than there were, and sweep other paths.

    Raises:
      ConfigError: With the difference.
    """
    if not run.exists():
        return
    known = run.sweep
    old = known.get("base") or {}
    if extend:
        # A path that all trials of one of the two set is no part of its base.
        old, base = ({path: one[path] for path in one if path in other} for one, other in ((old, base), (base, old)))
    differences = _differences(old, base)
    standing = {trial.get("fingerprint", ""): trial["name"] for trial in known.get("trials") or ()}
    new = [f"trial {name} is new" for name, identity in trials.items() if identity not in standing]
    is_only_larger = not differences and set(standing) <= set(trials.values())
    differences += [] if extend else new
    missing = set(standing) - set(trials.values())
    differences += [f"trial {standing[identity]} is gone" for identity in standing if identity in missing]
    if differences:
        shown = ", ".join(differences[:_SHOWN])
        more = f", and {len(differences) - _SHOWN} more differences" if len(differences) > _SHOWN else ""
        hint = " To add the new points to it: --extend." if is_only_larger else ""
        if _changed(old, base) == [_STEPS]:
            one = run.path if len(standing) == 1 else f"{run.path}/trials/NAME"
            hint = f" More steps make another run: kdr train with another --run.name and --start-from={one}."
        raise ConfigError(
            f"--run.name: {run.path} holds another sweep: {shown}{more}.{hint} Choose another --run.name, or repeat the"
            f" command that made it: {recorded_command(run)}"
        )


def refuse_other_space(run: rundir.RunDir, base: Mapping[str, str], space: Sequence[str]) -> None:
    """Refuses to continue a search with another base config or from another space.

    Raises:
      ConfigError: With the difference.
    """
    if not run.exists():
        return
    known = run.sweep
    differences = _differences(known.get("base") or {}, base)
    standing = set(known.get("space") or ())
    differences += [f"{one} is new" for one in space if one not in standing]
    differences += [f"{one} is gone" for one in standing if one not in set(space)]
    if differences:
        raise ConfigError(
            f"--run.name: {run.path} holds another search: {', '.join(differences[:_SHOWN])}. Choose another"
            f" --run.name, or repeat the command that made it: {recorded_command(run)}"
        )


def _changed(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    return [path for path in dict.fromkeys([*old, *new]) if old.get(path) != new.get(path)]


def _differences(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    return [f"{path} {old.get(path, 'unset')} -> {new.get(path, 'unset')}" for path in _changed(old, new)]


def _leaves(config: konfig.ConfigDict, trials: Sequence[sweeps.Trial]) -> dict[str, str]:
    """Returns what all trials share: the leaves of the base config but for those that every trial sets."""
    always = set.intersection(*({path for path, _ in trial.overrides} for trial in trials)) if trials else set[str]()
    leaves = konfig.flatten(config)
    return {path: "{}" if value == {} else repr(value) for path, value in leaves.items() if path not in always}


def _first_free(path: Path) -> Path:
    """Returns `path`, or `path-2`, `path-3` when that exists."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free
