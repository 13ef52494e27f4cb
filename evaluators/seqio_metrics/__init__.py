"""The metrics of SeqIO tasks: `SeqioEvaluator`. TensorFlow and SeqIO load when one is used."""

from evaluators.seqio_metrics.evaluator import SeqioEvaluator
from evaluators.seqio_metrics.likelihood import LogLikelihood
from evaluators.seqio_metrics.outputs import TaskOutputs

__all__ = ["LogLikelihood", "SeqioEvaluator", "TaskOutputs"]
