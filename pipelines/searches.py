"""What a search or a scheduler needs beside the trials: the space, checked at its ends, and a maker of trials."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kauldron_core import konfig, sweeps
from kauldron_core.errors import ConfigError
from pipelines.experiment import Experiment
from pipelines.sources import renumbered
from ray_cluster.searches.spaces import Conditional, Point, SearchSpace
from ray_cluster.spec import PlannedTrial, SearchPlan, Sweep

_WIDTH = 4


def read_space(axes: Sequence[sweeps.Points], spec: Sweep) -> SearchSpace | None:
    """Returns what a search or scheduler may choose; None where the run spec names neither.

    Raises:
      ConfigError: If axes and run spec don't fit each other.
    """
    if spec.search is None and any(isinstance(axis, Conditional) for axis in axes):
        raise ConfigError("--sweep: a function that chooses needs a search: --run.search=optuna.")
    if spec.search is None:
        # A scheduler alone ends trials; only population based training looks at the space.
        return SearchSpace.of(axes) if spec.is_population else SearchSpace() if spec.is_adaptive else None
    if spec.seeds > 1:
        raise ConfigError("--seeds: a search makes each point once; run the best again with --seeds.")
    return SearchSpace.of(axes)


def trials_at_ends(space: SearchSpace, experiment: Experiment) -> list[sweeps.Trial]:
    """Returns trials that hold every choice and both ends of every range, to be checked and never run."""
    points = {repr(point): point for point in space.ends()}
    return sweeps.expand(experiment.config, [sweeps.from_points(points.values())])


def plan_search(space: SearchSpace, experiment: Experiment, trainers: Mapping[str, Any]) -> SearchPlan:
    """Returns what the driver gets."""
    steps = max(int(trainer.num_train_steps or 0) for trainer in trainers.values())
    if not steps:
        raise ConfigError("cfg.num_train_steps: a search or scheduler needs to know how long a trial is.")
    intervals = [getattr(trainer.checkpointer, "save_interval_steps", None) for trainer in trainers.values()]
    save_every = min((interval for interval in intervals if interval), default=max(1, steps // 10))
    make = _maker(experiment)
    return SearchPlan(space=space, make_trial=make, num_steps=steps, save_every=save_every)


def _maker(experiment: Experiment) -> Callable[[int, Point], PlannedTrial]:
    def make(index: int, point: Point) -> PlannedTrial:
        (trial,) = sweeps.expand(experiment.config, [sweeps.from_points([point])])
        trial = renumbered(trial, index, _WIDTH)
        return PlannedTrial(
            name=trial.name,
            index=index,
            fingerprint=trial.fingerprint,
            config_json=konfig.to_json(trial.config(experiment.config), indent=1) + "\n",
            overrides=trial.overrides,
        )

    return make
