"""Searchers and schedulers of Ray Tune, named in the run spec, and the searcher's side of making trials.

`--run.search='optuna(seed=3)'` and `--run.scheduler='asha(grace_period=50)'` name what is in the tables below; any
other Searcher or Scheduler is given by its dotted name, `ray.tune.search.hyperopt.HyperOptSearch(n_initial_points=5)`.
"""

from __future__ import annotations

import importlib
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ray import tune
from ray.tune.schedulers import PopulationBasedTraining, TrialScheduler
from ray.tune.search import Searcher

from kauldron_core import konfig
from kauldron_core.errors import ConfigError, unknown_name
from ray_cluster.named_calls import read_call
from ray_cluster.results import TrialResult
from ray_cluster.schedulers import AT, read_scheduler
from ray_cluster.spaces import Conditional, Dimension, Point, SearchSpace
from ray_cluster.spec import PACK_RULES, SEARCHERS, TUNE_SCHEDULERS, PlannedTrial

_logger = logging.getLogger(__name__)

ToPoint = Callable[[Mapping[str, Any]], Point]

_DOMAINS: dict[str, Callable[..., Any]] = {
    "uniform": tune.uniform,
    "loguniform": tune.loguniform,
    "quniform": tune.quniform,
    "randint": tune.randint,
    "normal": tune.randn,
}


def make_searcher(text: str, space: SearchSpace, *, metric: str, mode: str, seed: int) -> tuple[Searcher, ToPoint]:
    """Returns the searcher that `run.search` names, ready to suggest, and what makes a point of a suggestion.

    Args:
      text: `optuna`, `optuna(seed=3)`, or a dotted name with arguments.
      space: What it chooses.
      metric: What it is told of a trial.
      mode: Which end of it is good.
      seed: Seed, for those that take one and are not given another.

    Raises:
      ConfigError: If there is no such searcher, or it can't search this space.
    """
    name, arguments = read_call(text, at="--run.search", known=SEARCHERS)
    kind = _find(name, SEARCHERS, Searcher, at="--run.search")
    if kind.__name__ == "OptunaSearch":
        import optuna  # Tune has imported it by now

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        arguments = {"seed": seed, **arguments}
        if name == "random":
            arguments = {"sampler": optuna.samplers.RandomSampler(seed=arguments.pop("seed"))}
    if space.conditional is not None:
        if kind.__name__ != "OptunaSearch":
            raise ConfigError("--run.search: a function that chooses works with optuna and random only.")
        asking = Asking(space.conditional)
        searcher = _call(kind, {**arguments, "space": asking, "metric": metric, "mode": mode}, at="--run.search")
        return searcher, asking.point
    searcher = _call(kind, arguments, at="--run.search")
    try:
        is_taken = searcher.set_search_properties(metric, mode, domains(space))
    except ValueError as error:
        raise ConfigError(f"--run.search={text}: can't search this space: {error}") from error
    if not is_taken:
        raise ConfigError(f"--run.search={text}: brings its own space, metric or mode; the axes and --run.metric do.")
    return searcher, space.point


def make_scheduler(text: str, space: SearchSpace | None, *, num_steps: int, save_every: int) -> TrialScheduler:
    """Returns the scheduler that `run.scheduler` names. Its time is the training step.

    Args:
      text: `asha`, `median`, `hyperband`, `pbt`, with arguments or without, or a dotted name with arguments.
      space: What population based training may change.
      num_steps: Steps of a trial, for the defaults of time limits.
      save_every: Steps between checkpoints, for the default interval of population based training.
    """
    name, arguments = read_scheduler(text, num_steps=num_steps, save_every=save_every)
    kind = _find(name, TUNE_SCHEDULERS, TrialScheduler, at=AT)
    if name == "pbt":
        if space is None or not space.dimensions:
            raise ConfigError("--run.scheduler=pbt: needs random axes, whose values it changes while trials run.")
        kind = Population
        changed = {one.name: _mutation(space, one.name) for one in space.dimensions}
        arguments = {"hyperparam_mutations": {"trial": {"values": changed}}, **arguments}
    return _call(kind, arguments, at=AT)


def domains(space: SearchSpace) -> dict[str, Any]:
    """Returns a space in Tune's own terms."""
    found: dict[str, Any] = {}
    for one in space.dimensions:
        if one.choices is not None:
            found[one.name] = tune.choice(list(range(len(one.choices))))
        elif one.axis is not None:
            found[one.name] = _DOMAINS[one.axis.distribution.name](*one.axis.distribution.arguments)
    return found


class TrialSource(Protocol):
    """Where a searcher's points become trials of the run."""

    def waiting(self) -> PlannedTrial | None:
        """Returns a trial that an earlier driver has left unfinished, if any is left."""
        ...

    def add(self, point: Point) -> PlannedTrial | None:
        """Returns a new trial at a point, laid out in the run directory; None when there are enough."""
        ...

    def describe(self, trial: PlannedTrial) -> dict[str, Any]:
        """Returns what the supervisor of a trial is told."""
        ...


class TrialMaker(Searcher):
    """Hands a searcher's suggestions to Tune as trials of the run, and the trials' results to the searcher."""

    def __init__(
        self, searcher: Searcher, to_point: ToPoint, space: SearchSpace, source: TrialSource, *, metric: str, mode: str
    ):
        super().__init__(metric=metric, mode=mode)
        self._inner = searcher
        self._to_point = to_point
        self._space = space
        self._source = source
        self._points: dict[str, Point] = {}
        self._is_suggested: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        # Tune copies its searchers into files that nobody reads here.
        return {}

    def suggest(self, trial_id: str) -> Any:
        waiting = self._source.waiting()
        if waiting is not None:
            self._points[trial_id] = waiting.overrides
            return {"trial": self._source.describe(waiting)}
        raw = self._inner.suggest(trial_id)
        if raw is None or isinstance(raw, str):
            return raw
        trial = self._source.add(self._to_point(raw))
        if trial is None:
            return Searcher.FINISHED
        self._points[trial_id] = trial.overrides
        self._is_suggested.add(trial_id)
        return {"trial": self._source.describe(trial)}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        if trial_id in self._is_suggested and _is_number(result.get(self.metric)):
            self._inner.on_trial_result(trial_id, result)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        value = (result or {}).get(self.metric)
        if trial_id in self._is_suggested:
            known = result if _is_number(value) else None
            self._inner.on_trial_complete(trial_id, known, error=error or known is None)
        elif trial_id in self._points and _is_number(value):
            self.observe(self._points[trial_id], float(value))  # type: ignore[arg-type]

    def observe(self, point: Point, value: float) -> bool:
        """Tells the searcher of a trial that it did not suggest; returns whether it could be told."""
        try:
            self._inner.add_evaluated_point(self._space.raw(point), value)
        except (NotImplementedError, TypeError, KeyError, StopIteration):
            return False
        return True

    def observe_all(self, rows: Sequence[TrialResult]) -> None:
        """Tells the searcher of the trials that an earlier driver has finished."""
        known = [row for row in rows if _is_number(row.values.get(str(self.metric)))]
        told = [self.observe(row.overrides, row.values[str(self.metric)]) for row in known]
        if not all(told):
            _logger.warning("%s can't be told of earlier trials and starts anew.", type(self._inner).__name__)

    def save(self, checkpoint_path: str) -> None:
        """Does nothing: what a search has found is read from the run directory."""

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Does nothing, see `save`."""


class Population(PopulationBasedTraining):
    """Population based training in which a trial keeps its own name when it takes another one's place."""

    def _get_new_config(self, trial: Any, trial_to_clone: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        config, operations = super()._get_new_config(trial, trial_to_clone)
        own, donor = trial.config["trial"], trial_to_clone.config["trial"]
        config["trial"] = {**own, "values": config["trial"]["values"], "donor": donor["name"]}
        return config, operations


def _mutation(space: SearchSpace, name: str) -> Any:
    one = next(one for one in space.dimensions if one.name == name)
    # A list is stepped through, a domain is drawn from or scaled.
    return list(range(len(one.choices))) if one.choices is not None else domains(SearchSpace((one,)))[name]


class Asking:
    """A conditional space as Optuna takes it: a function of its trial that asks for one value after the other."""

    def __init__(self, space: Conditional):
        self._space = space
        self._point: Point = ()

    def __call__(self, trial: Any) -> None:
        """Runs the space's function; Optuna calls this for each suggestion."""
        self._point = self._space.collect(lambda dimension: _suggested(trial, dimension))

    def point(self, raw: Mapping[str, Any]) -> Point:
        """Returns what the function put together for the suggestion that was just made."""
        del raw
        return self._point


def _suggested(trial: Any, one: Dimension) -> Any:
    """Asks Optuna for a number of one dimension."""
    if one.choices is not None:
        return trial.suggest_categorical(one.name, list(range(len(one.choices))))
    if one.axis is None or one.axis.distribution.name == "normal":
        raise ConfigError(f"--sweep: Optuna can't draw {one.name}; take uniform, loguniform, quniform or randint.")
    low, high, *step = one.axis.distribution.arguments
    match one.axis.distribution.name:
        case "randint":
            return trial.suggest_int(one.name, low, high - 1)
        case "quniform":
            return trial.suggest_float(one.name, low, high, step=step[0])
        case name:
            return trial.suggest_float(one.name, low, high, log=name == "loguniform")


def _find(name: str, table: Mapping[str, str], base: type, *, at: str) -> type[Any]:
    """Returns the class of a name; only from Tune itself or from a trusted package."""
    full = table.get(name, name)
    module, _, attribute = full.rpartition(".")
    if not module:
        known = [*table, *PACK_RULES] if base is TrialScheduler else list(table)
        raise ConfigError(unknown_name(base.__name__.lower(), name, known, at=at))
    root = module.partition(".")[0]
    if not full.startswith("ray.tune.") and root not in konfig.trusted_packages():
        how = f"add --trust={root}, in Python konfig.trust({root!r})"
        raise ConfigError(f"{at}={name}: {root} is not trusted. If you trust it, {how}.")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{at}={name}: {error}. Known by a short name: {', '.join(table)}.") from error
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ConfigError(f"{at}={name}: is no {base.__name__} of Ray Tune.")
    return found


def _call(kind: type[Any], arguments: Mapping[str, Any], *, at: str) -> Any:
    try:
        return kind(**arguments)
    except (TypeError, ValueError, AssertionError, ImportError) as error:
        raise ConfigError(f"{at}: {kind.__name__}: {error}") from error


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not math.isnan(value)
