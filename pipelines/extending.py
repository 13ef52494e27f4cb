"""Sweeps that go on with more samples of the same axes: what stands is among what is wanted."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from kauldron_core import konfig, rundir, sweeps
from kauldron_core.errors import ConfigError
from pipelines import experiment as experiments
from pipelines.experiment import Experiment
from pipelines.recorded_command import recorded_command
from ray_cluster.spec import Sweep


def is_larger(run: rundir.RunDir, spec: Sweep) -> bool:
    """Returns whether more samples are asked for than the run was made with."""
    return spec.num_samples > _num_samples(run)


def has_more_samples(run: rundir.RunDir, axes: Sequence[sweeps.Points], experiment: Experiment, spec: Sweep) -> bool:
    """Returns whether a sweep is that of the run, but with more samples of its random axes."""
    if not run.exists() or not any(axis.is_random for axis in axes) or not is_larger(run, spec):
        return False
    before = experiments.expand(axes, experiment, replace(spec, num_samples=_num_samples(run)))
    standing = {row["fingerprint"] for row in run.sweep.get("trials") or ()}
    return standing == {trial.fingerprint for trial in before}


def standing_axes(run: rundir.RunDir, experiment: Experiment) -> list[sweeps.Points]:
    """Returns the axes that a run was made with.

    Raises:
      ConfigError: If it does not keep them.
    """
    texts = run.sweep.get("axes")
    if texts is None:
        raise ConfigError(
            f"{run.path}: what it draws from was made by a function or a file. Repeat the command that made it:"
            f" {recorded_command(run)}"
        )
    with contextlib.suppress(Exception):  # What can't be built without a point is known by what its values are.
        konfig.resolve(experiment.config)  # Imports what it calls: that says which values an argument takes.
    return list(sweeps.parse_axes(experiment.config, [(path, text) for path, text in texts], trusted=False))


def _num_samples(run: rundir.RunDir) -> int:
    number = run.sweep.get("run", {}).get("num_samples", 1)
    return number if isinstance(number, int) else 1
