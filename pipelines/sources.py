"""What a run keeps of its config and its points, so that it goes on without the command and the file it was made from.

`RUN/base.json` is the config before any axis, `RUN/points.json` what each trial sets, with the types it was given.
"""

from __future__ import annotations

import dataclasses
import logging
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kauldron_core import konfig, rundir, sweeps
from kauldron_core.errors import ConfigError, DamagedFile, first_line
from kauldron_core.konfig.calls.hints import Misfit
from kauldron_core.konfig.overrides.places import find_place
from kauldron_core.konfig.trusting.code_copies import copy_code
from kauldron_core.konfig.writing.files import from_data
from pipelines.experiment import Experiment
from pipelines.recorded_command import recorded_command
from ray_cluster.spec import Sweep

_logger = logging.getLogger(__name__)

BASE, POINTS = "base.json", "points.json"


def write_sources(run: rundir.RunDir, experiment: Experiment, trials: Iterable[sweeps.Trial]) -> None:
    """Keeps the config and its points in the run directory, and the config files that actors can't import otherwise."""
    rundir.make_folder(run.path)
    rundir.refuse_links(run)
    base = konfig.to_json(experiment.config, indent=1) + "\n"
    rundir.write_atomic(run.path / BASE, base)
    rows = [
        {
            "index": trial.index,
            "name": trial.name,
            "overrides": [list(pair) for pair in trial.overrides],
            "fingerprint": trial.fingerprint,
        }
        for trial in trials
    ]
    points = konfig.to_json(konfig.ConfigDict({"trials": rows}), indent=1) + "\n"
    rundir.write_atomic(run.path / POINTS, points)
    copy_code(base + points, run.code)


def read_trials(run: rundir.RunDir) -> list[sweeps.Trial]:
    """Returns the trials that the run was made with.

    Raises:
      ConfigError: If it keeps none.
    """
    held = konfig.from_json(_text(run, POINTS), source=str(run.path / POINTS)).get("trials")
    try:
        return [_trial(row) for row in held]
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise DamagedFile(f"{run.path / POINTS}: damaged, it lists no trials ({first_line(error)}).") from None


def _trial(row: Any) -> sweeps.Trial:
    point = tuple((path, value) for path, value in row.overrides)
    if not all(isinstance(text, str) for text in (row.fingerprint, *(path for path, _ in point))):
        raise TypeError("a path is no text")
    name = rundir.check_name(row.name, kind="trial")
    return sweeps.Trial(int(row.index), name, point, row.fingerprint, is_fitted=True)


def read_experiment(run: rundir.RunDir) -> Experiment:
    """Returns the experiment that the run was made with. Its config is untrusted, like everything read from a disk."""
    config = konfig.from_json(_text(run, BASE), source=str(run.path / BASE))
    path = Path(str(run.sweep.get("config") or run.name))
    return Experiment(sweeps.ConfigFile(config, path, path.stem), config)


def listed_trials(run: rundir.RunDir) -> list[sweeps.Trial]:
    """Returns the trials as the list of the run has them: their values as JSON can hold them."""
    rows: list[dict[str, Any]] = run.sweep.get("trials") or []
    return [
        sweeps.Trial(row.get("index", at), row["name"], tuple((path, value) for path, value in row["overrides"]), "")
        for at, row in enumerate(rows)
    ]


def made_trials(run: rundir.RunDir) -> list[sweeps.Trial]:
    """Returns the trials that a search has made so far; their values are those in their configs."""
    found: list[sweeps.Trial] = []
    for row in run.sweep.get("trials") or ():
        trial = run.trial(row["name"])
        if not trial.exists():
            continue  # It was deleted, and the search does not know it any more.
        try:
            config = konfig.load(trial.config_path)
        except DamagedFile as error:
            _logger.warning("%s The search goes on without this trial.", error)
            continue
        point = tuple((path, find_place(config, path).slot.current) for path, _ in row.get("overrides") or ())
        found.append(sweeps.Trial(row.get("index", len(found)), row["name"], point, row.get("fingerprint", "")))
    return found


def read_spec(run: rundir.RunDir, changes: Sequence[tuple[str, str]] = ()) -> Sweep:
    """Returns the run spec that the run was made with, in the place where it lies now.

    Args:
      run: The run directory.
      changes: `--run` overrides on top.
    """
    place = {"name": run.name, "root": str(run.path.parent)}
    spec = konfig.ConfigDict({"__qualname__": "ray_cluster.spec:Sweep", **place})
    # Variables are never taken from a file.
    known = {name: value for name, value in run.sweep.get("run", {}).items() if name not in (*place, "env")}
    if known.get("metric") is None or ("ranking" not in run.sweep and known.get("mode") == "max"):
        known.pop("mode", None)  # Earlier versions kept `max` also when nobody had said so; the metric says it.
    _fill(spec, known, run)
    _refuse_code_of_runs(spec, [path for path, _ in changes])
    for path, text in changes:
        if path in place:
            raise ConfigError(f"--run.{path}={text}: a run that goes on stays where it is, in {run.path}.")
    konfig.apply_overrides(spec, [f"{path}={text}" for path, text in changes], flag="--run.")
    return konfig.resolve(spec)


def _fill(spec: konfig.ConfigDict, known: Mapping[str, Any], run: rundir.RunDir) -> None:
    """Sets the fields of a run spec to what the run's file says; what it nests is as untrusted as a config's.

    Raises:
      ConfigError: If a value does not fit its field.
    """
    at = f"{run.sweep_path}: run."
    for name, value in from_data(known, source=str(run.sweep_path)).items():
        if name not in Sweep.__dataclass_fields__:
            continue  # A later version may know it.
        place = find_place(spec, name, flag=at)
        try:
            place.set(place.slot.fit(value))
        except Misfit as misfit:
            raise ConfigError(f"{at}{name}: a {type(value).__name__} does not fit, expected {misfit}.") from None


def _refuse_code_of_runs(spec: konfig.ConfigDict, given: Sequence[str]) -> None:
    """Refuses to send code to the nodes that a run brings along, because the run's own file says so.

    Raises:
      ConfigError: If a folder of code lies in a run directory and was not given anew.
    """
    for name in ("working_dir", "py_modules"):
        named = (spec.get(name) or ()) if name not in given else ()
        for text in [named] if isinstance(named, str) else named:
            place = rundir.local_path(str(text), at=f"--run.{name}").absolute()
            if any(rundir.RunDir(folder).exists() for folder in (place, *place.parents)):
                raise ConfigError(
                    f"--run.{name}: the run asks for {str(text)!r}, which lies in a run. If you know that it is"
                    f" harmless, give it yourself: --run.{name}={shlex.quote(repr(str(text)))}"
                )


def _text(run: rundir.RunDir, name: str) -> str:
    try:
        return rundir.read_bytes(run.path / name).decode()
    except UnicodeDecodeError:
        raise DamagedFile(f"{run.path / name}: damaged, it is no text.") from None
    except FileNotFoundError:
        command = recorded_command(run)
        raise ConfigError(f"{run.path}: keeps no {name}. Repeat the command that made it: {command}") from None


def renumbered(trial: sweeps.Trial, index: int, width: int) -> sweeps.Trial:
    """Returns a trial at another place of the sweep: the same point, another number."""
    _, dash, rest = trial.name.partition("-")
    return dataclasses.replace(trial, index=index, name=f"{index:0{width}d}{dash}{rest}")


def with_standing_names(run: rundir.RunDir, trials: Sequence[sweeps.Trial]) -> list[sweeps.Trial]:
    """Returns the trials of a sweep, those that the run has already under the names that they have there."""
    rows = (run.sweep.get("trials") or ()) if run.exists() else ()
    names = {row.get("fingerprint"): row["name"] for row in rows}
    return [dataclasses.replace(trial, name=names.get(trial.fingerprint, trial.name)) for trial in trials]


def extended(standing: Sequence[sweeps.Trial], wanted: Sequence[Any]) -> list[sweeps.Trial]:
    """Returns the standing trials and, after them, those wanted ones whose point is new."""
    known = {trial.fingerprint for trial in standing}
    first = max((trial.index for trial in standing), default=-1) + 1
    width = len(standing[0].name.partition("-")[0]) if standing else 4
    new = [trial for trial in wanted if trial.fingerprint not in known]
    return [*standing, *(renumbered(trial, first + number, width) for number, trial in enumerate(new))]
