"""A Tune trainable of an experiment, for whoever builds the `Tuner` themselves.

    from ray import tune
    from ray_cluster.tune import trainable

    tuner = tune.Tuner(
        trainable(digits.get_config(), run_dir="runs/mine", metric="train/losses/total"),
        param_space={"optimizer.learning_rate": tune.loguniform(1e-4, 1e-1)},
        tune_config=tune.TuneConfig(num_samples=20, metric="train/losses/total", mode="min", reuse_actors=True),
    )
    tuner.fit()

The keys of `param_space` are override paths. Every trial lies in `run_dir` under Tune's own trial id, as those of a
sweep do, so `kdr status`, `kdr best`, `kdr logs` and `kdr eval` work. Reports carry the metric names of MLflow and
`step`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from ray import tune

from kauldron_core import konfig, rundir
from kauldron_core.evaluator_nodes import evaluator_nodes
from ray_cluster.cluster import environment
from ray_cluster.searches.spaces import Point
from ray_cluster.spec import Plan, PlannedTrial, Sweep
from ray_cluster.workers.jax_process import ProcessSettings
from ray_cluster.workers.supervisor import Supervisor, SupervisorSettings

_KIND = "own"


def trainable(
    config: konfig.ConfigDict,
    *,
    run_dir: str | os.PathLike[str],
    metric: str | None = None,
    mode: rundir.Mode | None = None,
    resources: Mapping[str, float] | None = None,
    max_failures: int = 2,
    trust: Iterable[str] = (),
    env: Mapping[str, str] | None = None,
) -> Any:
    """Returns the trainable of an experiment, for `tune.Tuner`.

    Args:
      config: The experiment.
      run_dir: Folder of the trials; made if it is not there. All nodes must see it.
      metric: Nothing is reported before this one has a value; schedulers that insist on it need that.
      mode: Which end of it is the good one, for `kdr best` and `kdr status`; where unset the metric says it.
      resources: What a trial owns; one CPU by default.
      max_failures: How often a trial whose process died goes on from its last checkpoint, before Tune hears of it.
      trust: Packages whose names the config may call.
      env: Variables of the process that trains.
    """
    konfig.trust(*trust)
    owned = dict(resources or {"CPU": 1})
    run = rundir.RunDir(rundir.local_path(run_dir, at="run_dir").absolute())
    if not run.exists():
        ranking = _ranking(config, metric, mode)
        run = rundir.RunDir.create(run.path, {**ranking, "command": "ray_cluster.tune.trainable(...)"})
    text = konfig.to_json(config, indent=1) + "\n"
    base = PlannedTrial(name="base", index=0, fingerprint="base", config_json=text)
    plan = Plan(sweep=Sweep(resources=owned, env=env or {}), run_dir=str(run.path), trials=(base,))
    settings = SupervisorSettings(
        process=ProcessSettings(
            run_dir=str(run.path),
            platform=environment.platform_of(owned),
            trust=konfig.trusted_packages(),
        ),
        variables=environment.worker_variables(plan, owned),
        resources=owned,
        max_failures=max_failures,
        report_on="record",
        metric=metric,
    )
    made = tune.with_parameters(OwnTrials, settings={_KIND: settings}, base=text)
    return tune.with_resources(made, tune.PlacementGroupFactory([{}, owned]))


def _ranking(config: konfig.ConfigDict, metric: str | None, mode: rundir.Mode | None) -> dict[str, Any]:
    """Returns what the run keeps of what ranks its trials; nothing where no metric was named.

    Raises:
      ConfigError: If nothing says which end of the metric is the good one.
    """
    if metric is None:
        return {}
    from kauldron_core.metrics import directions_of  # JAX

    # The metrics alone are built: the data of the experiment belongs to the trials.
    own = config.get("train_metrics")
    nodes = {name: node.get("metrics") or own for name, node in evaluator_nodes(config).items()}
    known: dict[str, rundir.Better] = {}
    for name, node in {"train": own, **nodes}.items():
        known |= directions_of(konfig.resolve(node) if node else {}, prefix=f"{name}/metrics")
    ranking = rundir.choose_ranking(rundir.Directions(known), metric=metric, mode=mode)
    return {"ranking": ranking.to_json(), "directions": known}


class OwnTrials(Supervisor):
    """A supervisor that lays its trials out itself: each is the base config with what Tune chose."""

    def setup(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, config: dict[str, Any], *, settings: Mapping[str, SupervisorSettings], base: str
    ) -> None:
        """Makes the folder of the trial, and begins it."""
        self._base = base
        self._run_dir = settings[_KIND].process.run_dir
        super().setup({"trial": self._lay_out(config)}, settings=settings)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Takes over another trial."""
        return super().reset_config({"trial": self._lay_out(new_config)})

    def step(self) -> dict[str, Any]:
        """Returns a report, and keeps the status that a sweep's driver would keep."""
        report = super().step()
        fields = {name: report[name] for name in ("reason", "last_error") if report.get(name)}
        rundir.write_status(self._trial, report["status"], step=report["step"], **fields)
        return report

    def _point(self) -> Point:
        return self._told["point"]

    def _lay_out(self, config: Mapping[str, Any]) -> dict[str, Any]:
        point = tuple(config.items())
        changed = konfig.with_values(konfig.from_json(self._base), point)
        trial = rundir.RunDir(self._run_dir).trial(self.trial_id)
        if not trial.exists():
            trial.create(konfig.to_json(changed, indent=1) + "\n")
        return {"name": trial.name, "kind": _KIND, "point": point}
