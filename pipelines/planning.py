"""From the words of `kdr sweep` to a plan that the driver can run, everything checked and nothing started."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from kauldron_core import konfig, rundir, sweeps
from kauldron_core.errors import ConfigError
from pipelines import experiment as experiments
from pipelines import extending, ranking_rule, run_folder, searches, sources
from pipelines.cli.words.command import Command
from pipelines.deciding import check_decisions
from pipelines.experiment import Experiment
from ray_cluster.cluster.environment import keep_driver_on_cpu
from ray_cluster.driver import layout
from ray_cluster.searches.spaces import SearchSpace
from ray_cluster.spec import Plan, PlannedTrial, Sweep, eval_pools

_KEPT = ("id", "config", "command", "base", "swept", "space", "axes")
"""What `sweep.json` says of a run and goes on to say."""


@dataclass(frozen=True)
class Prepared:
    """A sweep that can be started.

    Attributes:
      plan: What the driver gets.
      experiment: The config that it is about.
      trials: Its trials.
      trainers: The experiments that were built to check it, by trial name.
      ranking: What ranks the trials.
      resume_command: The command that goes on where this one ended.
      pack_notes: Which trials train together, and why not others; a line each.
    """

    plan: Plan
    experiment: Experiment
    trials: tuple[sweeps.Trial, ...]
    trainers: dict[str, Any]
    ranking: rundir.Ranking
    resume_command: str
    pack_notes: tuple[str, ...] = ()

    @property
    def evaluators(self) -> tuple[str, ...]:
        """Names of the evaluators, in the order of the config."""
        return experiments.evaluator_names(self.trainers)

    def write_sources(self) -> None:
        """Keeps in the run directory what the run can go on from."""
        sources.write_sources(rundir.RunDir(self.plan.run_dir), self.experiment, self.trials)


def prepare(
    words: Command,
    spec: Sweep,
    *,
    command: str,
    retry_failed: bool = False,
    extend: bool = False,
    may_use_accelerators: bool = False,
) -> Prepared:
    """Returns the sweep that the words describe.

    Args:
      words: The sorted words of the command line.
      spec: The run spec that they hold.
      command: The command as it was typed.
      retry_failed: Run failed and stopped trials of an existing run again.
      extend: Add the points that an existing run lacks to it.
      may_use_accelerators: Whether this process is the one that trains.

    Raises:
      ConfigError: If anything does not fit.
    """
    experiment = experiments.read_experiment(words)
    return prepare_experiment(
        experiment,
        experiments.read_axes(words, experiment),
        spec,
        command=command,
        axis_texts=None if words.sweeps or words.trials else words.sweep,
        retry_failed=retry_failed,
        extend=extend,
        may_use_accelerators=may_use_accelerators,
    )


def prepare_experiment(
    experiment: Experiment,
    axes: Sequence[sweeps.Points],
    spec: Sweep,
    *,
    command: str,
    axis_texts: Sequence[tuple[str, str]] | None = None,
    retry_failed: bool = False,
    extend: bool = False,
    may_use_accelerators: bool = False,
) -> Prepared:
    """Returns the sweep over `axes` of an experiment; see `prepare`.

    Args:
      axis_texts: The axes as text, from which a search can go on without its command.
    """
    run = run_folder.place_run(spec, experiment)
    if extend and not run.exists():
        raise ConfigError(f"--extend: there is no run {run.path} yet. Give the name of one, or leave --extend out.")
    space = searches.read_space(axes, spec)
    if spec.search is not None:
        trials = sources.made_trials(run) if run.exists() else []
    else:
        trials = experiments.expand(axes, experiment, spec)
        trials = sources.with_standing_names(run, trials)
        extend = extend or extending.has_more_samples(run, axes, experiment, spec)
        trials = sources.extended(sources.read_trials(run), trials) if extend else trials
    ends = searches.trials_at_ends(space, experiment) if space is not None and spec.search else trials
    description = run_folder.describe(experiment, ends, standing=run, command=command)
    description["axes"] = None if axis_texts is None else [list(pair) for pair in axis_texts]
    if space is not None and spec.search is not None:
        description["space"] = space.describe()
        run_folder.refuse_other_space(run, description["base"], description["space"])
    else:
        identities = {trial.name: trial.fingerprint for trial in trials}
        run_folder.refuse_other_sweep(run, description["base"], identities, extend=extend)
    resume = command if spec.name is not None else f"{command} --run.name={shlex.quote(run.name)}"
    prepared = _prepared(
        experiment,
        trials,
        spec,
        run=run,
        space=space,
        description=description,
        resume_command=resume,
        retry_failed=retry_failed,
        may_use_accelerators=may_use_accelerators,
    )
    experiments.check_wirings(prepared.trainers)
    return prepared


def resume(
    run: rundir.RunDir,
    *,
    changes: Sequence[tuple[str, str]] = (),
    retry_failed: bool = False,
) -> Prepared:
    """Returns what is missing of a run, from what the run directory alone says.

    Args:
      run: The run directory.
      changes: `--run` overrides, such as `resources`.
      retry_failed: Run failed and stopped trials again.
    """
    experiment = sources.read_experiment(run)
    spec, known = sources.read_spec(run, changes), run.sweep
    space = None
    if spec.is_adaptive:
        is_chosen = spec.search is not None or spec.is_population
        space = searches.read_space(extending.standing_axes(run, experiment) if is_chosen else (), spec)
    trials = sources.made_trials(run) if spec.search is not None else sources.read_trials(run)
    if spec.search is None and extending.is_larger(run, spec):
        axes = extending.standing_axes(run, experiment)
        trials = sources.extended(trials, experiments.expand(axes, experiment, spec))
    return _prepared(
        experiment,
        trials,
        spec,
        run=run,
        space=space,
        description={key: known[key] for key in _KEPT if key in known},
        resume_command=shlex.join(["kdr", "sweep", f"--resume={run.path}"]),
        retry_failed=retry_failed,
    )


def _prepared(
    experiment: Experiment,
    trials: Sequence[sweeps.Trial],
    spec: Sweep,
    *,
    run: rundir.RunDir,
    space: SearchSpace | None,
    description: dict[str, Any],
    resume_command: str,
    retry_failed: bool,
    may_use_accelerators: bool = False,
) -> Prepared:
    """Builds what has to be built to know that everything fits."""
    layout.refuse_lost_variables(run, spec.env)
    if not may_use_accelerators:
        keep_off_accelerators()
    is_searching = space is not None and spec.search is not None
    to_check = searches.trials_at_ends(space, experiment) if space is not None and is_searching else trials
    trainers = experiments.check_trials(experiment, to_check)
    if spec.metric is not None:
        experiments.check_metric(spec.metric, trainers, while_training=spec.is_adaptive or spec.pack_rule is not None)
    directions = ranking_rule.directions_of(trainers.values())
    for rule in spec.stop_rules:
        experiments.check_metric(rule.metric, trainers, while_training=True, at="--run.stop")
        ranking_rule.warn_of_sign(rule, directions)
    check_decisions(spec, trainers)
    ranking = ranking_rule.choose(spec, run, list(trainers.values()), directions)
    plan = Plan(
        sweep=spec,
        run_dir=str(run.path),
        trials=_as_they_stand(_planned(experiment, trials), run)
        if spec.is_population or spec.pack_rule == "population"
        else _planned(experiment, trials),
        pools=eval_pools({name: one.run for name, one in trainer.evals.items()} for trainer in trainers.values()),
        trust=konfig.trusted_packages(),
        env=run_folder.place_store(spec).environment,
        retry_failed=retry_failed,
        search=searches.plan_search(space, experiment, trainers) if space is not None else None,
        directions=directions,
        ranking=ranking,
        description=description,
    )
    return Prepared(plan, experiment, tuple(trials), trainers, ranking, resume_command)


def _planned(experiment: Experiment, trials: Sequence[sweeps.Trial]) -> tuple[PlannedTrial, ...]:
    return tuple(
        PlannedTrial(
            name=trial.name,
            index=trial.index,
            fingerprint=trial.fingerprint,
            config_json=konfig.to_json(config, indent=1) + "\n",
            overrides=trial.overrides,
        )
        for trial, config in sweeps.configs(experiment.config, trials)
    )


def _as_they_stand(trials: Sequence[PlannedTrial], run: rundir.RunDir) -> tuple[PlannedTrial, ...]:
    """Returns trials whose points may have changed since they were made with the configs that they have now."""
    standing = {trial.name: trial.overrides for trial in sources.made_trials(run)} if run.exists() else {}
    return tuple(
        replace(
            trial,
            overrides=standing[trial.name],
            config_json=run.trial(trial.name).config_path.read_text(encoding="utf-8"),
        )
        if trial.name in standing
        else trial
        for trial in trials
    )


def keep_off_accelerators() -> None:
    """Leaves the accelerators to the trials: building configs here may start JAX."""
    import jax  # noqa: F401 - must be imported for the next line to reach it; the configs import it anyway

    keep_driver_on_cpu()
