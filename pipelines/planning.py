"""From the words of `kdr sweep` to a plan that the driver can run, everything checked and nothing started."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kauldron_core import konfig, rundir
from pipelines import experiment as experiments
from pipelines import run_folder
from pipelines.experiment import Experiment
from pipelines.report import Ranking
from ray_cluster.environment import keep_driver_on_cpu
from ray_cluster.spec import Plan, PlannedTrial, Sweep, eval_pools


@dataclass(frozen=True)
class Prepared:
    """A sweep that can be started.

    Attributes:
      plan: What the driver gets.
      experiment: The config that it is about.
      evaluators: Names of the evaluators, in the order of the config.
      ranking: The metric that the user asked for.
      resume_command: The command that goes on where this one ended.
    """

    plan: Plan
    experiment: Experiment
    evaluators: tuple[str, ...]
    ranking: Ranking | None
    resume_command: str

    def write_code(self) -> None:
        """Copies a config file that actors could not import otherwise into `RUN/code`."""
        imported = self.experiment.file.imported
        if imported is not None and imported.is_copied:
            imported.copy_to(rundir.RunDir(self.plan.run_dir).code)


def prepare(
    words: konfig.Command,
    spec: Sweep,
    *,
    command: str,
    trust: Iterable[str] = (),
    retry_failed: bool = False,
    may_use_accelerators: bool = False,
) -> Prepared:
    """Returns the sweep that the words describe.

    Args:
      words: The sorted words of the command line.
      spec: The run spec that they hold.
      command: The command as it was typed.
      trust: Packages whose names configs may call.
      retry_failed: Run failed trials of an existing run again.
      may_use_accelerators: Whether this process is the one that trains.

    Raises:
      ConfigError: If anything does not fit.
    """
    experiment = experiments.read_experiment(words, trust=trust)
    trials = experiments.read_trials(words, experiment, spec)
    run = run_folder.place_run(spec, experiment)
    description = run_folder.describe(experiment, trials, standing=run, command=command)
    run_folder.refuse_other_sweep(run, description["base"], {trial.name: trial.fingerprint for trial in trials})
    if not may_use_accelerators:
        _keep_off_accelerators()
    trainers = experiments.check_trials(experiment, trials)
    if spec.metric is not None:
        experiments.check_metric(spec.metric, trainers)
    plan = Plan(
        sweep=spec,
        run_dir=str(run.path),
        trials=_planned(experiment, trials),
        pools=eval_pools({name: one.run for name, one in trainer.evals.items()} for trainer in trainers.values()),
        trust=konfig.trusted_packages(),
        env=run_folder.place_store(spec).environment,
        python_path=(str(run.code),),
        retry_failed=retry_failed,
        description=description,
    )
    ranking = Ranking(spec.metric, spec.mode) if spec.metric else None
    resume = command if spec.name is not None else f"{command} --run.name={shlex.quote(run.name)}"
    return Prepared(plan, experiment, experiments.evaluator_names(trainers), ranking, resume)


def _planned(experiment: Experiment, trials: Sequence[konfig.Trial]) -> tuple[PlannedTrial, ...]:
    return tuple(
        PlannedTrial(
            name=trial.name,
            index=trial.index,
            fingerprint=trial.fingerprint,
            config_json=konfig.to_json(config, indent=1) + "\n",
            overrides=trial.overrides,
        )
        for trial, config in konfig.configs(experiment.config, trials)
    )


def _keep_off_accelerators() -> None:
    """Leaves the accelerators to the trials: building configs here may start JAX."""
    import jax  # noqa: F401 - must be imported for the next line to reach it; the configs import it anyway

    keep_driver_on_cpu()
