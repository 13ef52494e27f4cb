"""The code that a sweep takes along to a cluster: `working_dir`, `py_modules`, `excludes` of the run spec."""

from __future__ import annotations

import json
import pathlib
import shlex
from collections.abc import Sequence
from typing import Any

from kauldron_core.errors import ConfigError
from kauldron_core.konfig.trusting.project_path import refuse_hiding
from ray_cluster.cluster.environment import is_ray_connected, is_ray_job
from ray_cluster.spec import Sweep

KEPT_AT_HOME = (".env", ".env.*", ".git", ".venv", "/runs", "/mlflow.db", "/mlruns", "__pycache__", "*.ipynb")
"""What is not sent along with a folder, beside what its .gitignore and .rayignore name."""


def check(sweep: Sweep) -> None:
    """Refuses code that can't be taken along. On a Ray of our own it is there anyway, and nothing is sent.

    Raises:
      ConfigError: If something is not there, or whoever connected to Ray decides what is sent.
    """
    if sweep.excludes and sweep.working_dir is None and not sweep.py_modules:
        raise ConfigError("run.excludes: nothing is sent that it could leave out. Give run.working_dir, too.")
    if not _ships(sweep):
        return
    if is_ray_job():
        raise ConfigError(f"run.{_first(sweep)}: inside a Ray job the job brings the code. {_flags(sweep)}")
    if sweep.working_dir is not None:
        _refuse_missing(sweep.working_dir, ".zip", at="run.working_dir")
        refuse_hiding(_expanded(sweep.working_dir), "run.working_dir")  # It comes first on the path of the nodes.
    for one in _listed(sweep.py_modules):
        _refuse_missing(one, ".whl", at="run.py_modules")
    if is_ray_connected():
        raise ConfigError(
            f"run.{_first(sweep)}: this process has joined Ray already. Give it to ray.init(runtime_env=...) there."
        )


def runtime_env(sweep: Sweep) -> dict[str, Any]:
    """Returns what Ray is told of the code when a cluster is joined; empty if nothing is sent."""
    if not _ships(sweep):
        return {}
    folder = _expanded(sweep.working_dir) if sweep.working_dir is not None else None
    parts = {"working_dir": folder, "py_modules": [_expanded(one) for one in _listed(sweep.py_modules)]}
    excludes = [*KEPT_AT_HOME, *_listed(sweep.excludes)]
    return {**{name: part for name, part in parts.items() if part}, "excludes": excludes}


def _listed(value: str | Sequence[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _ships(sweep: Sweep) -> bool:
    return sweep.working_dir is not None or bool(sweep.py_modules)


def _first(sweep: Sweep) -> str:
    return "working_dir" if sweep.working_dir is not None else "py_modules"


def _flags(sweep: Sweep) -> str:
    """Returns the flags of `ray job submit` that do the same."""
    flags = ["--working-dir", sweep.working_dir] if sweep.working_dir is not None else []
    rest = {"py_modules": _listed(sweep.py_modules), "excludes": _listed(sweep.excludes)}
    rest = {name: part for name, part in rest.items() if part}
    flags += ["--runtime-env-json", json.dumps(rest)] if rest else []
    return f"Leave it out here, and submit with: ray job submit {shlex.join(flags)}"


def _expanded(path: str) -> str:
    return path if "://" in path else str(pathlib.Path(path).expanduser())


def _refuse_missing(path: str, ending: str, *, at: str) -> None:
    if "://" in path:  # An archive elsewhere; the nodes fetch it.
        return
    found = pathlib.Path(_expanded(path))
    if not (found.is_dir() or (found.is_file() and found.suffix == ending)):
        what = "is neither a folder nor" if found.exists() else "does not exist; a folder or"
        raise ConfigError(f"{at}: {path!r} {what} a {ending} file. Relative paths begin at {pathlib.Path.cwd()}.")
