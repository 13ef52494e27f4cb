"""Evaluates the trials of a pack in one program."""

from __future__ import annotations

import dataclasses
import functools
import logging
import threading
from collections.abc import Sequence
from typing import Any

import jax

from kauldron_core import konfig, paths
from kauldron_core.evals import EvalResult, Evaluator, NotStackable, StackedEvaluation, usable_in_evaluation
from kauldron_core.forward import Blueprint, RngStreams, TrainState, as_arguments
from kauldron_core.packs.planning.differences import token
from kauldron_core.packs.planning.tables import Tabulated
from kauldron_core.packs.planning.tracing import stacked_arguments
from kauldron_core.packs.running.division import is_shortage
from kauldron_core.train.inherit import inherit

_FIELDS = ("model", "precision", "rng_streams", "seed", "train_losses", "train_metrics")
"""What an evaluator may take from its trainer."""

_KEPT = "_stacked"
_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, eq=False)
class Heritage:
    """What evaluators take from trainers that differ in numbers.

    Attributes:
      blueprint: What the config of one of the trainers says of it; None where they do not differ.
      names: Paths of the numbers, or of the tabulated schedules, in which the trainers differ.
      tables: Those that are tabulated.
    """

    blueprint: Blueprint | None = None
    names: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()

    @classmethod
    def of(cls, cfg: Any, names: Sequence[str], tables: Sequence[str] = ()) -> Heritage:
        """Returns the heritage for those of some arguments of a step that evaluators may take over."""
        names = tuple(name for name in names if cls.reads(name))
        return cls(_blueprint(cfg, names), names, tuple(name for name in tables if name in names))

    @staticmethod
    def reads(path: str) -> bool:
        """Returns whether evaluators may take over what is at `path` in the config of a trainer."""
        return paths.parse(path)[0] in _FIELDS

    def variant(self, evaluator: Evaluator, values: Sequence[Any]) -> Evaluator:
        """Returns the evaluator of the trial that has these numbers. Traced."""
        if self.blueprint is None:
            return evaluator
        overlay = dict(zip(self.names, values, strict=True))
        parts = self.blueprint.build({n: Tabulated(v) if n in self.tables else v for n, v in overlay.items()})
        given = {name: parts[name] for name in ("model", "precision") if name in parts}
        if (losses := parts.get("train_losses")) is not None:
            given["losses"] = losses
        if (metrics := parts.get("train_metrics")) is not None:
            given["metrics"] = usable_in_evaluation(metrics)
        given["rng_streams"] = inherit(parts.get("rng_streams") or RngStreams(), seed=parts.get("seed", 0))
        return inherit(evaluator, **given)


def evaluate_stacked(
    evaluators: Sequence[Any],
    states: TrainState,
    *,
    configs: Sequence[Any] | None = None,
    stop: threading.Event | None = None,
) -> list[EvalResult]:
    """Returns the results of evaluators, each of which evaluates its own row of the states.

    They run in one program where they are alike, but for numbers that they take from their trainers. Others run one by
    one (those that decode, work on the host, or keep rows of examples), with the same results. The program is kept with
    the first evaluator, and used again with it.

    Args:
      evaluators: The evaluators of the trials, all by one name.
      states: The states, of one step, with a first dimension for the trial.
      configs: The configs of the trials. Without them evaluators run one by one unless their trainers agree in all that
        concerns an evaluation.
      stop: When set, the evaluation ends before its next batch.

    Raises:
      EvaluationStopped: If `stop` was set.
    """
    heritage, values = _heritage(evaluators, configs)
    return evaluate(evaluators[0], list(enumerate(evaluators)), states, heritage, values, stop=stop)


def inherited(configs: Sequence[Any], name: str) -> tuple[Heritage | None, Sequence[Any]]:
    """Returns what the evaluators `name` of some trainers inherit, None if they are not alike; and its numbers."""
    names = _differing_numbers(configs, name)
    if names is None:
        return None, ()
    if not names:
        return Heritage(), ()
    blueprints = [_blueprint(cfg, names) for cfg in configs]
    rows = [tuple(as_arguments({name: one.numbers[name] for name in names}).values()) for one in blueprints]
    return Heritage(blueprints[0], names), stacked_arguments(rows)


def evaluate(
    lead: Any,
    evaluators: Sequence[tuple[int, Any]],
    states: TrainState,
    heritage: Heritage | None,
    values: Sequence[Any] = (),
    *,
    stop: threading.Event | None = None,
) -> list[EvalResult]:
    """Returns the results of evaluators that are alike but for what they inherit.

    Args:
      lead: The one of the first trial, whether it is among them or not: the program is kept with it.
      evaluators: Row of the state, and the evaluator.
      states: The states.
      heritage: What they inherit; None: they are not known to be alike.
      values: Its numbers, each with a first dimension for the state.
      stop: When set, the evaluation ends before its next batch.
    """
    if heritage is not None and (mapped := _mapped(lead, heritage)) is not None:
        try:
            results = _in_parts(mapped, values, states, stop)
            return [results[row] for row, _ in evaluators]
        except NotStackable as error:
            _note(lead, error)
    return [
        evaluator.evaluate(jax.tree.map(lambda leaf, row=row: leaf[row], states), stop=stop)
        for row, evaluator in evaluators
    ]


def _in_parts(
    mapped: StackedEvaluation, values: Sequence[Any], states: TrainState, stop: threading.Event | None
) -> list[EvalResult]:
    """Returns the results of all states, as many at once as fit into memory."""
    count = len(states.step)
    while True:
        size = mapped.rows_at_once or count
        parts = [slice(start, start + size) for start in range(0, count, size)] if size < count else [slice(None)]
        try:
            return [result for part in parts for result in mapped.evaluate(*_rows(values, states, part), stop=stop)]
        except Exception as error:
            if size == 1 or not is_shortage(error):
                raise
        mapped.rows_at_once = (size + 1) // 2


def _rows(values: Sequence[Any], states: TrainState, part: slice) -> tuple[Sequence[Any], TrainState]:
    if part == slice(None):
        return values, states
    return [value[part] for value in values], jax.tree.map(lambda leaf: leaf[part], states)


def _mapped(evaluator: Any, heritage: Heritage) -> StackedEvaluation | None:
    """Returns the evaluator mapped over states, the same one each time; None if it was found not to work."""
    if not hasattr(evaluator, "__dict__"):
        return None
    known: dict[tuple[str, ...], StackedEvaluation] | None = vars(evaluator).setdefault(_KEPT, {})
    if known is not None and heritage.names not in known:
        variant = functools.partial(heritage.variant, evaluator) if heritage.names else None
        try:
            known[heritage.names] = StackedEvaluation(evaluator, variant)
        except NotStackable as error:
            _note(evaluator, error)
            return None
    return None if known is None else known[heritage.names]


def _note(evaluator: Any, error: NotStackable) -> None:
    """Remembers that an evaluator has to look at one state after the other."""
    _logger.info("evals.%s: evaluates trials one by one: %s", getattr(evaluator, "name", "?"), error)
    vars(evaluator)[_KEPT] = None


def _heritage(evaluators: Sequence[Any], configs: Sequence[Any] | None) -> tuple[Heritage | None, Sequence[Any]]:
    """Returns what evaluators inherit, None if they are not known to be alike; and its numbers."""
    if configs is None:
        shared = [vars(evaluator).get("_programs") for evaluator in evaluators]
        is_alike = len(evaluators) == 1 or (shared[0] is not None and all(one is shared[0] for one in shared))
        return (Heritage() if is_alike else None), ()
    return inherited(configs, evaluators[0].name)


def _blueprint(cfg: Any, names: Sequence[str]) -> Blueprint:
    return Blueprint.of(cfg, _FIELDS, numbers_in=("train_losses",), others=names)


def _differing_numbers(configs: Sequence[Any], name: str) -> tuple[str, ...] | None:
    """Returns the paths of the numbers in which trainers differ that evaluator `name` takes over.

    None: they differ in other things that concern it.
    """
    flat = [_leaves(cfg, name) for cfg in configs]
    first = flat[0]
    if any(own.keys() != first.keys() for own in flat):
        return None
    differing = [path for path in first if any(token(own[path]) != token(first[path]) for own in flat)]
    for path in differing:
        if paths.parse(path)[0] not in _FIELDS or any(type(own[path]) not in (int, float) for own in flat):
            return None
    return tuple(differing)


def _leaves(cfg: Any, name: str) -> dict[str, Any]:
    node = cfg.evals[name]
    part = {field: cfg[field] for field in (*_FIELDS, "eval_ds") if field in cfg}
    part["evals"] = {name: {field: node[field] for field in node if field != "run"}}
    return konfig.flatten(konfig.ConfigDict(part).copy_and_resolve_references())
