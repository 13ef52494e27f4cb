"""Jobs that turn checkpoints into metrics: watcher, ledger of what is due, checkpoint evaluator, evaluation jobs.

Importing this loads no JAX; building the first experiment does.
"""

from evaluators.checkpoint_evaluator import CheckpointEvaluator
from evaluators.jobs import evaluate_run
from evaluators.ledger import due
from evaluators.trial import evaluator_fingerprint, standalone_strategies
from evaluators.watcher import committed_steps, is_committed

__all__ = [
    "CheckpointEvaluator",
    "committed_steps",
    "due",
    "evaluate_run",
    "evaluator_fingerprint",
    "is_committed",
    "standalone_strategies",
]
