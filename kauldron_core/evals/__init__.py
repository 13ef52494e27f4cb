"""Evaluation: exact numbers over a data set, and when to take them."""

from kauldron_core.evals.evaluator import EvalResult, EvaluationStopped, Evaluator, usable_in_evaluation
from kauldron_core.evals.run_strategies import (
    EveryNSteps,
    Final,
    Once,
    RunStrategy,
    StandaloneEveryCheckpoint,
    StandaloneLastCheckpoint,
)

__all__ = [
    "EvalResult",
    "EvaluationStopped",
    "Evaluator",
    "EveryNSteps",
    "Final",
    "Once",
    "RunStrategy",
    "StandaloneEveryCheckpoint",
    "StandaloneLastCheckpoint",
    "usable_in_evaluation",
]
