"""Searchers whose choice for a trial depends on the seed, the trial's number and what they have been told alone.

So a search that was cut off goes on as if it had not been: random points are those of an explicit sweep over the same
axes, and Optuna's sampler begins anew for each trial.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import optuna
from ray.tune.search import Searcher
from ray.tune.search.optuna import OptunaSearch

from kauldron_core.errors import ConfigError
from ray_cluster.searches.spaces import Conditional, Dimension, Point, SearchSpace


class RandomSearch(Searcher):
    """Draws points of a space.

    Args:
      space: The space.
      seed: Seed of the draws.
    """

    def __init__(self, space: SearchSpace, *, seed: int):
        super().__init__()
        self._space = space
        self._seed = seed
        self._asked = (0, 0)
        self._point: Point = ()

    def begin(self, number: int, attempt: int) -> None:
        """Says for which trial the next suggestion is, else the one after the last, and how often it was asked for."""
        self._asked = number, attempt

    def suggest(self, trial_id: str) -> dict[str, Any]:
        number, attempt = self._asked
        self._asked = number + 1, 0
        self._point = self._space.drawn(number, self._seed, attempt)
        return {"number": number}

    def point(self, raw: Mapping[str, Any]) -> Point:
        """Returns the point of the suggestion that was just made."""
        del raw
        return self._point

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Does nothing: what trials come to changes no draw."""

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Does nothing, likewise."""

    def add_evaluated_point(self, parameters: dict[str, Any], value: float, *args: Any, **kwargs: Any) -> None:
        """Does nothing, likewise."""

    def save(self, checkpoint_path: str) -> None:
        """Does nothing: there is no state."""

    def restore(self, checkpoint_path: str) -> None:
        """Does nothing, likewise."""


class NumberedSampler(optuna.samplers.BaseSampler):
    """A sampler that begins anew for each trial, with a seed that follows from the trial's number.

    Args:
      make: Makes the sampler of a seed.
      seed: The seed of the search.
    """

    def __init__(self, make: Callable[[int], optuna.samplers.BaseSampler], *, seed: int):
        self._make = make
        self._seed = seed
        self._now = make(seed)

    def begin(self, number: int, attempt: int) -> None:
        """Says which trial comes next, and how often it was asked for before."""
        digest = hashlib.sha256(f"{self._seed}\n{number}\n{attempt}".encode()).digest()
        self._now = self._make(int.from_bytes(digest[:4], "big"))

    def infer_relative_search_space(self, study: Any, trial: Any) -> Any:
        return self._now.infer_relative_search_space(study, trial)

    def sample_relative(self, study: Any, trial: Any, search_space: Any) -> Any:
        return self._now.sample_relative(study, trial, search_space)

    def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
        return self._now.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: Any, trial: Any) -> None:
        self._now.before_trial(study, trial)

    def after_trial(self, study: Any, trial: Any, state: Any, values: Any) -> None:
        self._now.after_trial(study, trial, state, values)


class NumberedOptunaSearch(OptunaSearch):
    """Tune's Optuna searcher with a `NumberedSampler`; of a conditional space it can be told points, too."""

    def __init__(self, space: Any = None, *, seed: int = 0, sampler: Any = None, **fields: Any):
        numbered = sampler or NumberedSampler(lambda number: optuna.samplers.TPESampler(seed=number), seed=seed)
        super().__init__(space=space, sampler=numbered, **fields)

    def begin(self, number: int, attempt: int) -> None:
        """Says for which trial the next suggestion is, and how often it was asked for before."""
        if isinstance(self._sampler, NumberedSampler):
            self._sampler.begin(number, attempt)

    def add_evaluated_point(self, parameters: dict[str, Any], value: float, *args: Any, **kwargs: Any) -> None:
        if not isinstance(self._space, Asking):
            super().add_evaluated_point(parameters, value, *args, **kwargs)
            return
        params, distributions = self._space.asked_for(parameters)
        trial = optuna.trial.create_trial(params=params, distributions=distributions, value=value)
        self._ot_study.add_trial(trial)  # pyright: ignore[reportOptionalMemberAccess]  (made with the space)


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

    def asked_for(self, values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the numbers and distributions that the function asks for on its way to a point.

        Args:
          values: The point, by path.
        """
        params: dict[str, Any] = {}
        distributions: dict[str, Any] = {}

        def choose(one: Dimension) -> Any:
            params[one.name] = one.raw(dict(values))
            trial = optuna.trial.FixedTrial(params)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of types that are not ours to choose
                found = _suggested(trial, one)
            distributions.update(trial.distributions)
            return found

        self._space.collect(choose)
        return params, distributions


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
