"""Lays a plan out in its run directory and finds what is missing there."""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from kauldron_core import masking, rundir
from kauldron_core.errors import ConfigError, listing
from ray_cluster.cluster.environment import is_ray_job
from ray_cluster.driver import control
from ray_cluster.spec import Plan, PlannedTrial

_logger = logging.getLogger(__name__)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def lay_out(plan: Plan) -> rundir.RunDir:
    """Returns the plan's run directory, made if it is not there.

    Raises:
      ConfigError: If it holds other trials under the same names or a link that leads out, or is relative inside a Ray
        job.
    """
    if is_ray_job() and not os.path.isabs(plan.run_dir):
        raise ConfigError(
            f"--run.root: {plan.run_dir!r} is relative, and a Ray job's working directory is lost with its node."
            " Give an absolute path on a file system that all nodes share: --run.root=/absolute/path."
        )
    run = rundir.RunDir(rundir.local_path(plan.run_dir, at="run_dir").absolute())
    return run if run.exists() else rundir.RunDir.create(run.path, describe(plan))


def describe(plan: Plan) -> dict[str, Any]:
    """Returns what `sweep.json` says about a plan."""
    sweep = {name: _plain(value) for name, value in vars(plan.sweep).items()}
    sweep["env"] = {str(name): masking.MASK for name in plan.sweep.env}
    description = {name: _plain(value) for name, value in plan.description.items()}
    return {**description, **_ranking(plan), "run": sweep, "trials": _rows(plan.trials)}


def _ranking(plan: Plan) -> dict[str, Any]:
    """Returns what tells the best trial and checkpoint, for whoever only reads the run."""
    ranking = plan.ranking.to_json() if plan.ranking is not None else None
    return {"ranking": ranking, "directions": dict(plan.directions.known)}


def write_list(run: rundir.RunDir, trials: Iterable[PlannedTrial]) -> None:
    """Writes the list of all trials anew, while the run's lock is held."""
    run.write_sweep({**run.sweep, "trials": _rows(trials)})


def _rows(trials: Iterable[PlannedTrial]) -> list[dict[str, Any]]:
    return [
        {
            "name": trial.name,
            "index": trial.index,
            "fingerprint": trial.fingerprint,
            "overrides": [[path, _plain(value)] for path, value in trial.overrides],
        }
        for trial in trials
    ]


def write_trials(plan: Plan, run: rundir.RunDir) -> None:
    """Writes every trial's config and first status; the caller holds the run's lock.

    Raises:
      ConfigError: If a trial's folder holds another config.
    """
    control.clear(run, ended=[one.name for one in plan.trials if run.trial(one.name).status() in rundir.TERMINAL])
    for trial in plan.trials:
        folder = run.trial(trial.name)
        _mend(folder, trial)
        try:
            folder.create(trial.config_json)
        except ConfigError as error:
            raise ConfigError(_difference(folder, trial)) from error
        # What a killed driver left as running is queued again; terminal ones stay.
        rundir.write_status(folder, "queued", retry=is_tried_again(folder, plan))
    for pack in plan.packs:
        run.pack(pack.name).write({**pack.content, "trials": list(pack.trials)})
    description = describe(plan)
    is_larger = plan.sweep.num_samples != (run.sweep.get("run") or {}).get("num_samples")
    if is_larger or any(description[name] != run.sweep.get(name) for name in ("trials", "ranking", "directions")):
        run.write_sweep({**run.sweep, **description})
    _add_variables(plan, run)
    run.write_trials(description["trials"])


def _mend(folder: rundir.TrialDir, trial: PlannedTrial) -> None:
    """Writes the config of a trial anew where its file can't be read; what the run keeps of its points says it all."""
    if not folder.exists():
        return
    try:
        rundir.read_json(folder.config_path)
    except rundir.DamagedFile as error:
        _logger.warning("%s It is written anew.", error)
        rundir.write_atomic(folder.config_path, trial.config_json)


def variables_of(run: rundir.RunDir) -> tuple[str, ...]:
    """Returns the names of the variables (`run.env`) that a run was made with; it keeps no values."""
    spec = run.readable_sweep.get("run") if run.exists() else None
    found = spec.get("env") if isinstance(spec, Mapping) else None
    names = found if isinstance(found, Mapping) else ()
    return tuple(name for name in names if isinstance(name, str) and _VARIABLE.fullmatch(name))


def refuse_lost_variables(run: rundir.RunDir, env: Mapping[str, str | None]) -> None:
    """Refuses to go on with a run without the variables that it was made with.

    Raises:
      ConfigError: With how to give them again, or to leave them out.
    """
    missing = [name for name in variables_of(run) if name not in env]
    if missing:
        given = json.dumps(dict.fromkeys(missing, "..."))
        raise ConfigError(
            f"--run.env: {run.path} was made with {listing(missing)}, and a run keeps no values. Give them again, or"
            f" None for one that is to be left out: --run.env={shlex.quote(given)}"
        )


def _add_variables(plan: Plan, run: rundir.RunDir) -> None:
    """Keeps the names of variables that are new to a run."""
    standing = dict.fromkeys(variables_of(run), masking.MASK)
    names = standing | {str(name): masking.MASK for name in plan.sweep.env}
    if names != standing:
        run.write_sweep({**run.sweep, "run": {**run.sweep.get("run", {}), "env": names}})


def is_tried_again(folder: rundir.TrialDir, plan: Plan) -> bool:
    """Returns whether a trial has ended and is to run again; a rule that stands would end it again."""
    if not plan.retry_failed:
        return False
    status = rundir.read_status(folder)
    is_over = any(rule.has_ended(status.get("reason")) for rule in plan.sweep.stop_rules)
    return status["status"] in ("failed", "stopped") and not is_over


def _difference(folder: rundir.TrialDir, trial: PlannedTrial) -> str:
    standing = _leaves(rundir.read_json(folder.config_path))
    wanted = _leaves(rundir.parse(trial.config_json.encode(), folder.config_path))
    path = next(path for path in {**standing, **wanted} if standing.get(path) != wanted.get(path))
    return (
        f"--run.name: {folder.path} holds another trial of this name: {path} is {standing.get(path)!r} there and"
        f" {wanted.get(path)!r} here. Choose another --run.name."
    )


def _leaves(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, Mapping):
        pairs = value.items()
    elif isinstance(value, list):
        pairs = enumerate(value)
    else:
        return {prefix: value}
    return {path: leaf for key, part in pairs for path, leaf in _leaves(part, f"{prefix}.{key}".lstrip(".")).items()}


def _plain(value: Any) -> Any:
    """Returns a value as JSON can hold it; what it can't is written as text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
