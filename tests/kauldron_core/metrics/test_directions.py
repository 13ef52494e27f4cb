"""What is better of each metric: every public one says it, wrappers pass it on, a user's own may set it."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
import pytest

from evaluators.decode import DecodeEvaluator, Greedy
from evaluators.probes import KnnProbe, LinearProbe, RidgeProbe
from evaluators.seqio_metrics import SeqioEvaluator
from kauldron_core import evals, kontext, losses, metrics
from kauldron_core.errors import ConfigError
from kauldron_core.rundir import Directions

HIGHER = [
    metrics.Accuracy,
    metrics.AveragePrecision,
    metrics.BinaryAccuracy,
    metrics.F1,
    metrics.Precision,
    metrics.Precision1,
    metrics.Psnr,
    metrics.R2,
    metrics.Recall,
    metrics.RocAuc,
    metrics.Ssim,
    metrics.TokenAccuracy,
]
LOWER = [metrics.ECE, metrics.Mae, metrics.Mse, metrics.Perplexity]
NEITHER = [
    metrics.Average,
    metrics.ConfusionMatrix,
    metrics.GlobalNorm,
    metrics.Histogram,
    metrics.Metric,
    metrics.NoopMetric,
    metrics.Norm,
    metrics.SingleDimension,
    metrics.Std,
]
WRAPPERS = [metrics.SkipIfMissing, metrics.TreeMap, metrics.TreeReduce, metrics.WeightedAverage]
TABLE = {**dict.fromkeys(HIGHER, "higher"), **dict.fromkeys(LOWER, "lower"), **dict.fromkeys(NEITHER)}
ACCURACY = metrics.Accuracy(labels="batch.label", logits="preds")
FINAL = evals.Final()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pair(metrics.Metric):
    """Two numbers, one good when high."""

    better: ClassVar[Any] = {"hits": "higher", "misses": "lower"}
    x: kontext.Key = kontext.REQUIRED

    def get_state(self, x: Any) -> Any:
        return metrics.AverageState.from_values(jnp.asarray(x))


def test_every_public_metric_says_what_is_better_of_it() -> None:
    """F01: of all built-in metrics it is known; a new one has to take its place in this table."""
    public = [
        value for value in vars(metrics).values() if isinstance(value, type) and issubclass(value, metrics.Metric)
    ]
    assert set(public) == {*TABLE, *WRAPPERS}
    assert {metric: metric.better for metric in TABLE} == TABLE


def test_every_loss_is_better_when_lower() -> None:
    public = [getattr(losses, name) for name in losses.__all__]
    found = [value for value in public if isinstance(value, type) and issubclass(value, losses.Loss)]
    assert len(found) > 5 and {loss.better for loss in found} == {"lower"}


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_wrappers_pass_it_on(wrapper: type[metrics.Metric]) -> None:
    more = {"weights": "batch.w"} if wrapper is metrics.WeightedAverage else {}
    assert wrapper(metric=ACCURACY, **more).better == "higher"


def test_a_metric_of_several_numbers_says_it_by_name() -> None:
    known = metrics.directions_of(
        {"pair": Pair(x="batch.x"), "norms": metrics.TreeMap(metric=Pair(x="params.**.x")), "acc": ACCURACY},
        prefix="test/metrics",
    )
    directions = Directions(known)
    assert directions.of("test/metrics/pair/hits") == "higher"
    assert directions.of("test/metrics/pair/misses") == "lower"
    assert directions.of("test/metrics/pair/other") is None
    assert directions.of("test/metrics/norms/dense/kernel/misses") == "lower"
    assert directions.of("test/metrics/acc/3") == "higher", "an array's entries are as the whole"
    assert directions.of("val/losses/anything") == "lower"


def test_what_is_neither_is_refused_where_it_is_written() -> None:
    with pytest.raises(ConfigError, match=r"Wrong\.better: unknown direction 'max'\. Available: higher, lower, None"):
        type("Wrong", (metrics.Metric,), {"better": "max"})
    with pytest.raises(ConfigError, match=r"better: unknown direction 'up'"):
        SeqioEvaluator(run=FINAL, better={"bleu": "up"})


@pytest.mark.parametrize(
    ("evaluator", "known"),
    [
        (evals.Evaluator(run=FINAL, metrics={"acc": ACCURACY}), {"metrics/acc": "higher"}),
        (DecodeEvaluator(run=FINAL, decoder=Greedy(max_len=4), target="batch.y"), {"metrics/exact_match": "higher"}),
        (DecodeEvaluator(run=FINAL, decoder=Greedy(max_len=4)), {}),
        *((probe(run=FINAL), {"metrics/accuracy": "higher"}) for probe in (KnnProbe, LinearProbe, RidgeProbe)),
        (
            SeqioEvaluator(run=FINAL, better={"bleu": "higher", "wmt/ppl": "lower"}),
            {"metrics/*/bleu": "higher", "metrics/wmt/ppl": "lower"},
        ),
    ],
)
def test_evaluators_say_it_of_their_numbers(evaluator: evals.CollectingEvaluator, known: dict[str, str]) -> None:
    assert evaluator.directions == known


def test_a_seqio_metric_is_found_below_any_task() -> None:
    directions = Directions({"wmt/metrics/*/bleu": "higher"})
    assert directions.of("wmt/metrics/wmt_t2t_ende/bleu") == "higher"
    assert directions.of("wmt/metrics/wmt_t2t_ende/rouge") is None
