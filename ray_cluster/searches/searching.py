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

import optuna
from ray import tune
from ray.tune.schedulers import PopulationBasedTraining, TrialScheduler
from ray.tune.search import Searcher
from ray.tune.search.optuna import OptunaSearch

from kauldron_core import konfig
from kauldron_core.errors import ConfigError, unknown_name
from kauldron_core.rundir import TERMINAL
from kauldron_core.sweeps.draws import distinct
from kauldron_core.sweeps.sampling import fraction
from ray_cluster.results import TrialResult
from ray_cluster.searches import choosing
from ray_cluster.searches.named_calls import read_call
from ray_cluster.searches.schedulers import AT, read_scheduler
from ray_cluster.searches.spaces import Point, SearchSpace, identity
from ray_cluster.spec import PACK_RULES, SEARCHERS, TUNE_SCHEDULERS, Plan, PlannedTrial

_logger = logging.getLogger(__name__)

_MAX_ASKED = 16
"""So often a searcher is asked for a point that does not stand."""

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
    if name == "random":
        random = _call(choosing.RandomSearch, {"seed": seed, **arguments, "space": space}, at="--run.search")
        return random, random.point
    kind = _find(name, SEARCHERS, Searcher, at="--run.search")
    if kind is OptunaSearch:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        kind, arguments = choosing.NumberedOptunaSearch, {"seed": seed, **arguments}
    if space.conditional is not None:
        if kind is not choosing.NumberedOptunaSearch:
            raise ConfigError("--run.search: a function that chooses works with optuna and random only.")
        asking = choosing.Asking(space.conditional)
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


def make_trials_with(plan: Plan, source: TrialSource, rows: Sequence[TrialResult]) -> TrialMaker:
    """Returns the searcher of a plan as Tune takes it, told of the trials that stand.

    Args:
      plan: The plan.
      source: Where trials come to be.
      rows: The trials that stand, in order.

    Raises:
      ConfigError: If the plan has no search, or there is no such searcher.
    """
    sweep, search = plan.sweep, plan.search
    if sweep.search is None or search is None or sweep.metric is None or plan.ranking is None:
        raise ConfigError("plan: a search needs `Plan.search` and a metric.")
    ranked = {"metric": sweep.metric, "mode": plan.ranking.mode, "seed": sweep.seed}
    searcher, to_point = make_searcher(sweep.search, search.space, **ranked)
    maker = TrialMaker(searcher, to_point, search.space, source, **ranked)
    maker.observe_all(rows)
    return maker


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

    @property
    def next_number(self) -> int | None:
        """Number of the next trial; None when there are enough."""
        ...

    def waiting(self) -> PlannedTrial | None:
        """Returns a trial that an earlier driver has left unfinished, if any is left."""
        ...

    def stands(self, point: Point) -> bool:
        """Returns whether a trial of the run has this point."""
        ...

    @property
    def num_points(self) -> int:
        """How many different points the trials have."""
        ...

    def add(self, point: Point) -> PlannedTrial:
        """Returns a new trial at a point, laid out in the run directory."""
        ...

    def describe(self, trial: PlannedTrial) -> dict[str, Any]:
        """Returns what the supervisor of a trial is told."""
        ...


class TrialMaker(Searcher):
    """Hands a searcher's suggestions to Tune as trials of the run, and the trials' results to the searcher.

    A point that stands is not made again: the searcher is asked once more, some times, then one of those that are left
    is taken. Where none is left, points repeat, and that is said.

    Args:
      searcher: The searcher. One with `begin(number, attempt)` is told which trial comes next.
      to_point: Makes a point of what it suggests.
      space: What it chooses from.
      source: Where trials come to be.
      metric: What it is told of a trial.
      mode: Which end of it is good.
      seed: Seed of the points that it does not choose itself.
    """

    def __init__(
        self,
        searcher: Searcher,
        to_point: ToPoint,
        space: SearchSpace,
        source: TrialSource,
        *,
        metric: str,
        mode: str,
        seed: int = 0,
    ):
        super().__init__(metric=metric, mode=mode)
        self._inner = searcher
        self._to_point = to_point
        self._space = space
        self._source = source
        self._seed = seed
        self._size = space.size
        self._points: dict[str, Point] = {}
        self._asked: dict[str, str] = {}
        """What the searcher calls the trials that it has suggested."""
        self._is_said = False

    def __getstate__(self) -> dict[str, Any]:
        # Tune copies its searchers into files that nobody reads here.
        return {}

    def suggest(self, trial_id: str) -> Any:
        waiting = self._source.waiting()
        if waiting is not None:
            self._points[trial_id] = waiting.overrides
            if waiting.name in self._asked:
                self._asked[trial_id] = waiting.name
            return {"trial": self._source.describe(waiting)}
        number = self._source.next_number
        if number is None:
            return Searcher.FINISHED
        point = self._chosen(trial_id, number)
        if not isinstance(point, tuple):
            return point
        trial = self._source.add(point)
        self._points[trial_id] = trial.overrides
        return {"trial": self._source.describe(trial)}

    def _chosen(self, trial_id: str, number: int) -> Point | str | None:
        """Returns the next point, or what the searcher says instead."""
        is_used_up = self._size is not None and self._source.num_points >= self._size
        for attempt in range(1 if is_used_up else _MAX_ASKED):
            asked = f"{trial_id}-{attempt}"
            self._begin(number, attempt)
            raw = self._inner.suggest(asked)
            if raw is None or isinstance(raw, str):
                return raw
            point = self._to_point(raw)
            if is_used_up or not self._source.stands(point):
                self._asked[trial_id] = asked
                break
            self._inner.on_trial_complete(asked, None, error=True)
        else:
            point = self._left(number)
        if self._source.stands(point):
            self._say_repeated(number)
        return point

    def _left(self, number: int) -> Point:
        """Returns a point that stands nowhere, drawn without the searcher; a repeated one if there is none."""
        return distinct(
            lambda attempt: self._space.drawn(number, self._seed, attempt),
            self._source.stands,
            self._space.every,
            pick=fraction(self._seed, "", number),
            size=self._size,
        )

    def _say_repeated(self, number: int) -> None:
        if not self._is_said:
            self._is_said = True
            known = "all points that there are stand" if self._size is not None else "no new point was found"
            _logger.warning("trial %d and others repeat points: %s, %d.", number, known, self._source.num_points)

    def _begin(self, number: int, attempt: int) -> None:
        begin = getattr(self._inner, "begin", None)
        if begin is not None:
            begin(number, attempt)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        if trial_id in self._asked and _is_number(result.get(self.metric)):
            self._inner.on_trial_result(self._asked[trial_id], result)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        value = (result or {}).get(self.metric)
        if trial_id in self._asked:
            known = result if _is_number(value) else None
            self._inner.on_trial_complete(self._asked[trial_id], known, error=error or known is None)
        elif trial_id in self._points and _is_number(value):
            self._observe(self._points[trial_id], float(value))  # type: ignore[arg-type]

    def _observe(self, point: Point, value: float) -> bool:
        """Tells the searcher of a trial that it did not suggest; returns whether it could be told."""
        try:
            self._inner.add_evaluated_point(self._raw(point), value)
        except (NotImplementedError, TypeError, KeyError, StopIteration, ValueError):
            return False
        return True

    def _raw(self, point: Point) -> dict[str, Any]:
        return dict(point) if self._space.conditional is not None else self._space.raw(point)

    def observe_all(self, rows: Sequence[TrialResult]) -> None:
        """Tells the searcher of the trials that stand: of their values, or, where it can't be told, by asking it again.

        Args:
          rows: The trials in order; those without a value have not ended, or have none.
        """
        pairs = [(row, self._value(row)) for row in rows]
        if type(self._inner).add_evaluated_point is not Searcher.add_evaluated_point:
            is_known = [self._observe(row.overrides, value) for row, value in pairs if value is not None]
        else:
            is_known = [self._asked_again(row, value) for row, value in pairs]
        if not all(is_known):
            name, number = type(self._inner).__name__, sum(is_known)
            _logger.warning("%s can be told of %d of %d earlier trials only.", name, number, len(is_known))

    def _value(self, row: TrialResult) -> float | None:
        """Returns what a trial that has ended came to."""
        value = row.values.get(str(self.metric))
        return float(value) if value is not None and _is_number(value) and row.status in TERMINAL else None

    def _asked_again(self, row: TrialResult, value: float | None) -> bool:
        """Asks the searcher for a trial that stands; returns whether it suggests the same point once more."""
        self._begin(row.index, 0)
        raw = self._inner.suggest(row.name)
        if raw is None or isinstance(raw, str):
            return False
        is_alike = identity(self._to_point(raw)) == identity(row.overrides)
        if is_alike and row.status not in TERMINAL:
            self._asked[row.name] = row.name  # It goes on, and ends later.
        elif is_alike and value is not None:
            self._inner.on_trial_complete(row.name, {str(self.metric): value, "training_iteration": 1})
        else:
            self._inner.on_trial_complete(row.name, None, error=True)
        return is_alike

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
