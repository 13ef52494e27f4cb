"""Jobs that turn checkpoints into metrics: ledger of what is due, checkpoint evaluator, evaluation jobs.

Beside them config entries of evaluation: decoders, SeqIO metrics, probes. Importing this loads no JAX; using one of
those, or building the first experiment, does.
"""

import importlib
from typing import TYPE_CHECKING, Any

from evaluators.checkpoint_evaluator import CheckpointEvaluator
from evaluators.follow import Following, follow_run
from evaluators.jobs import EvalPlan, evaluate_run, plan_run
from evaluators.ledger import Backlog, due
from evaluators.shards import evaluate_in_shards, evaluate_shard
from evaluators.sources import Source, evaluate_source
from evaluators.surplus import remove_surplus
from evaluators.trial import Changes, standalone_strategies
from kauldron_core.evaluator_nodes import evaluator_fingerprint
from kauldron_core.rundir import RunWatch, committed_steps, is_committed

if TYPE_CHECKING:
    from evaluators.decode import Beam, DecodeEvaluator, Greedy, Sample
    from evaluators.probes import KnnProbe, LinearProbe, RidgeProbe
    from evaluators.seqio_metrics import SeqioEvaluator

# Names of modules that import JAX, which the driver of a sweep does without.
_LATE = {
    "Beam": "evaluators.decode",
    "DecodeEvaluator": "evaluators.decode",
    "Greedy": "evaluators.decode",
    "KnnProbe": "evaluators.probes",
    "LinearProbe": "evaluators.probes",
    "RidgeProbe": "evaluators.probes",
    "Sample": "evaluators.decode",
    "SeqioEvaluator": "evaluators.seqio_metrics",
}

__all__ = [
    "Backlog",
    "Beam",
    "Changes",
    "CheckpointEvaluator",
    "DecodeEvaluator",
    "EvalPlan",
    "Following",
    "Greedy",
    "KnnProbe",
    "LinearProbe",
    "RidgeProbe",
    "RunWatch",
    "Sample",
    "SeqioEvaluator",
    "Source",
    "committed_steps",
    "due",
    "evaluate_in_shards",
    "evaluate_run",
    "evaluate_shard",
    "evaluate_source",
    "evaluator_fingerprint",
    "follow_run",
    "is_committed",
    "plan_run",
    "remove_surplus",
    "standalone_strategies",
]


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LATE[name]), name)
