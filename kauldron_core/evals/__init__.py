"""Evaluation: exact numbers over a data set, and when to take them."""

from kauldron_core.evals.collecting import CollectingEvaluator, EvaluationStopped, StateTransform
from kauldron_core.evals.evaluator import Evaluator, shard_of, usable_in_evaluation
from kauldron_core.evals.per_example import PerExample
from kauldron_core.evals.results import Collected, EvalResult
from kauldron_core.evals.run_strategies import (
    EveryNCheckpoints,
    EveryNSteps,
    Final,
    Once,
    RunStrategy,
    StandaloneEveryCheckpoint,
    StandaloneLastCheckpoint,
)
from kauldron_core.evals.stacked import NotStackable, StackedEvaluation
from kauldron_core.evals.walks import EvalEpoch, FirstBatches, RollingBatches, Walk

__all__ = [
    "Collected",
    "CollectingEvaluator",
    "EvalEpoch",
    "EvalResult",
    "EvaluationStopped",
    "Evaluator",
    "EveryNCheckpoints",
    "EveryNSteps",
    "Final",
    "FirstBatches",
    "NotStackable",
    "Once",
    "PerExample",
    "RollingBatches",
    "RunStrategy",
    "StackedEvaluation",
    "StandaloneEveryCheckpoint",
    "StandaloneLastCheckpoint",
    "StateTransform",
    "Walk",
    "shard_of",
    "usable_in_evaluation",
]
