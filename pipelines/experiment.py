"""From the words of a command to what they mean: the experiment, its trials, the run spec.

Everything here happens before anything starts, so a mistake costs seconds: every trial's values are checked against the
config, and the config is built once for each structure and each value of an axis.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kauldron_core import konfig, rundir, sweeps
from kauldron_core.errors import ConfigError, first_line, unknown_name
from kauldron_core.sweeps.config_file import split_arguments
from kauldron_core.sweeps.config_import import import_file
from pipelines.cli.words.command import Command
from ray_cluster.searches.spaces import Conditional
from ray_cluster.spec import SEED_PATH, Sweep

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Experiment:
    """A config with the overrides of the command line.

    Attributes:
      file: The config file.
      config: The config, `--cfg` overrides applied.
    """

    file: sweeps.ConfigFile
    config: konfig.ConfigDict

    @property
    def name(self) -> str:
        """The name of the config file, which names runs."""
        return self.file.name


def read_experiment(words: Command) -> Experiment:
    """Returns the experiment that a command names.

    Args:
      words: The sorted words of the command line.

    Raises:
      ConfigError: If there is no config, or an override does not fit.
    """
    if words.config is None:
        raise ConfigError("the config file is missing. Example: pipelines/configs/digits.py")
    file = load_named_file(words.config, words.args)
    konfig.apply_overrides(
        file.config, [f"{path}={text}" for path, text in words.cfg], aliases=file.aliases, read_axis=sweeps.parse_axis
    )
    return Experiment(file, file.config)


def load_named_file(path: str, args: Mapping[str, str] | None = None) -> sweeps.ConfigFile:
    """Returns the config file that the user has named, and trusts its package for that."""
    file = sweeps.load_config_file(path, args)
    if file.module is not None:
        konfig.trust(file.module.__name__.partition(".")[0])
    return file


def import_named_file(path: str) -> None:
    """Imports a config file that the user has named, without making its config, and trusts its package for that."""
    file, _ = split_arguments(path)
    place = rundir.with_home(file)
    if file.endswith(".py") and place.is_file():
        konfig.trust(import_file(place).module.__name__.partition(".")[0])


def read_trials(words: Command, experiment: Experiment, spec: Sweep) -> list[sweeps.Trial]:
    """Returns the trials of a sweep; one without overrides if nothing is swept.

    Raises:
      ConfigError: If an axis or a value does not fit.
    """
    return expand(read_axes(words, experiment), experiment, spec)


def read_axes(words: Command, experiment: Experiment) -> list[sweeps.Points]:
    """Returns the axes that a command names.

    Raises:
      ConfigError: If one does not fit.
    """
    file, config = experiment.file, experiment.config
    axes: list[sweeps.Points] = list(sweeps.parse_axes(config, words.sweep, aliases=file.aliases))
    axes += [_sweep_function(file, name) for name in words.sweeps]
    if words.trials is not None:
        axes.append(sweeps.read_trials(words.trials, config, aliases=file.aliases))
    return axes


def _sweep_function(file: sweeps.ConfigFile, name: str) -> sweeps.Points:
    """Returns the points of `sweep_NAME()`, or the space of a `sweep_NAME(choose)`."""
    function = getattr(file.module, f"sweep_{name}" if name else "sweep", None)
    if callable(function) and inspect.signature(function).parameters:
        return Conditional(function, file.config, file.aliases)
    return file.sweep(name)


def expand(axes: Sequence[sweeps.Points], experiment: Experiment, spec: Sweep) -> list[sweeps.Trial]:
    """Returns the trials of axes, each as often as the run spec has seeds."""
    parts = [*axes, *([seed_axis(axes, experiment.config, spec.seeds)] if spec.seeds > 1 else [])]
    return sweeps.expand(experiment.config, parts, num_samples=spec.num_samples, seed=spec.seed)


def seed_axis(axes: Iterable[sweeps.Points], config: konfig.ConfigDict, num_seeds: int) -> sweeps.Points:
    """Returns the axis that repeats each point: the config's own seed and those after it.

    Raises:
      ConfigError: If the config has no seed that is a number, or it is swept.
    """
    seed = config.get(SEED_PATH, 0)
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise ConfigError(f"--seeds={num_seeds}: cfg.{SEED_PATH} is {seed!r}, not a number that others can follow.")
    if any(SEED_PATH in axis.paths for axis in axes):
        raise ConfigError(f"--seeds={num_seeds}: --sweep.{SEED_PATH} names the seeds already; keep one of the two.")
    return sweeps.axis(SEED_PATH, range(seed, seed + num_seeds))


def read_spec(words: Command) -> Sweep:
    """Returns the run spec with the `--run` overrides.

    Raises:
      ConfigError: If an override does not fit.
    """
    spec = konfig.ConfigDict({"__qualname__": "ray_cluster.spec:Sweep"})
    konfig.apply_overrides(spec, [f"{path}={text}" for path, text in words.run], flag="--run.")
    return konfig.resolve(spec)


def check_trials(experiment: Experiment, trials: Sequence[sweeps.Trial]) -> dict[str, Any]:
    """Builds the config of as many trials as it takes to see every structure and every value of an axis once.

    Returns:
      The built trainers by trial name.

    Raises:
      ConfigError: If one can't be built; the message names the trial unless there is only one.
    """
    chosen = {trial.name for trial in _representatives(trials)}
    built: dict[str, Any] = {}
    for trial, config in sweeps.configs(experiment.config, trials):
        if trial.name in chosen:
            built[trial.name] = build(config, label=trial.name if len(trials) > 1 else "")
    return built


def build(config: konfig.ConfigDict, *, label: str = "") -> Any:
    """Returns the trainer that a config describes; what goes wrong while building it is the user's mistake.

    Raises:
      ConfigError: With the place in the config.
    """
    from kauldron_core.train import Trainer  # brings JAX with it

    try:
        trainer = konfig.resolve(config)
    except Exception as error:  # the config calls what it likes, and any of that may raise
        notes = "; ".join(getattr(error, "__notes__", ()))
        kind = "" if isinstance(error, ConfigError) else f"{type(error).__name__}: "
        text = f"{kind}{error}" + (f" ({notes})" if notes else "")
        raise ConfigError(f"trial {label}: {text}" if label else text) from error
    if not isinstance(trainer, Trainer):
        raise ConfigError(f"the config describes a {type(trainer).__name__}; a kd.train.Trainer is needed.")
    return trainer


def check_wiring(trainer: Any, *, label: str = "") -> None:
    """Traces the step, its summaries and every evaluator of an experiment, with the shapes of their own data.

    Args:
      trainer: The experiment.
      label: Name of the trial, for messages.

    Raises:
      ConfigError: With what was raised; whatever does not fit together is the config's mistake.
    """
    try:
        trainer.trace()
    except Exception as error:  # this calls the model, losses and metrics of the user, which raise what they like
        all_notes = [note for note in getattr(error, "__notes__", ()) if "JAX_TRACEBACK_FILTERING" not in note]
        places = [note.removeprefix("while tracing ") for note in all_notes if note.startswith("while tracing ")]
        notes = " ".join("; ".join(note for note in all_notes if not note.startswith("while tracing ")).split())
        kind = "" if isinstance(error, ConfigError) else f"{type(error).__name__}: "
        text = " ".join(f"{kind}{error}".split()) + (f" ({notes})" if notes else "")
        # A ConfigError of the step says itself where it stands.
        what = "" if not places and not kind else f"{places[0] if places else 'the training step'} does not fit: "
        raise ConfigError(f"{f'trial {label}: ' if label else ''}{what}{text}") from error


def check_wirings(trainers: Mapping[str, Any]) -> None:
    """Traces one experiment of each structure, see `check_wiring`. Numbers make no difference to what is wired.

    What needs other devices than those here, or data that is not here, shows where it runs.
    """
    seen: set[str] = set()
    for name, trainer in trainers.items():
        structure = _structure_of(trainer.raw_cfg)
        if structure not in seen and _can_trace(trainer):
            check_wiring(trainer, label=name if len(trainers) > 1 else "")
        seen.add(structure)


def _structure_of(config: konfig.ConfigDict) -> str:
    """Returns what is equal for configs that differ in numbers only, or in how long they train."""
    numbers = [
        path
        for path, value in konfig.flatten(config).items()
        if type(value) is float or (type(value) is int and path.rpartition(".")[2] in ("seed", "num_train_steps"))
    ]
    return konfig.fingerprint(config, without=numbers)


def _can_trace(trainer: Any) -> bool:
    try:
        _ = trainer.sharding.is_trivial
        for data in (trainer.train_ds, trainer.eval_ds, *(one.ds for one in trainer.evals.values())):
            _ = None if data is None else data.element_spec
    except (Exception, SystemExit) as error:  # the data is the user's, and it ends where it is really read
        _logger.info("Not traced before it starts: %s", first_line(error))
        return False
    return True


def _representatives(trials: Sequence[sweeps.Trial]) -> Iterator[sweeps.Trial]:
    """Yields trials such that each value of each path, and each combination of structural values, is there once.

    A float is a number in the program; anything else may change what is built, together with the others.
    """
    seen: set[tuple[str, ...]] = set()
    for trial in trials:
        values = {path: repr(value) for path, value in trial.overrides}
        structure = tuple(f"{path}={values[path]}" for path, value in trial.overrides if not isinstance(value, float))
        new = {structure, *((path, text) for path, text in values.items())} - seen
        if new:
            seen |= new
            yield trial


def check_metric(
    metric: str, trainers: Mapping[str, Any], *, while_training: bool = False, at: str = "--run.metric"
) -> None:
    """Refuses a metric that no trial will report.

    Args:
      metric: Its name.
      trainers: The experiments by trial name.
      while_training: Whether somebody waits for it during training, which no stand-alone evaluator serves.
      at: Who asks for it.

    Raises:
      ConfigError: With the closest one.
    """
    known = dict.fromkeys(name for trainer in trainers.values() for name in _metric_names(trainer))
    if while_training:
        for trainer in trainers.values():
            _refuse_standalone(metric, trainer, at)
    is_part_of_known = any(metric.startswith(f"{name}/") for name in known)  # a metric may compute several numbers
    if metric not in known and not is_part_of_known and not metric.startswith("train/perf/"):
        raise ConfigError(unknown_name("metric", metric, known, at=at))


def _refuse_standalone(metric: str, trainer: Any, at: str) -> None:
    name = metric.partition("/")[0]
    if name in trainer.evals and trainer.evals[name].run.is_standalone:
        raise ConfigError(
            f"{at}={metric}: evaluator {name!r} runs beside training, and what ends or chooses trials decides before it"
            f" has a result. Evaluate inside training: --cfg.evals.{name}.run='kd.evals.EveryNSteps(100)', or take"
            " a metric of training, such as train/losses/total."
        )


def _metric_names(trainer: Any) -> Iterator[str]:
    parts = [("train", trainer.train_losses, trainer.train_metrics)]
    parts += [(name, one.losses, one.metrics) for name, one in trainer.evals.items()]
    for split, losses, metrics in parts:
        yield f"{split}/losses/total"
        yield from (f"{split}/losses/{name}" for name in losses or ())
        yield from (f"{split}/metrics/{name}" for name in metrics or ())
    yield from (f"train/schedules/{name}" for name in trainer.schedules or ())


def evaluator_names(trainers: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the names of all evaluators, in the order of the config."""
    return tuple(dict.fromkeys(name for trainer in trainers.values() for name in trainer.evals))
