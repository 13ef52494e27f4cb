"""Which checkpoint can be best: refused when the experiment is built, where evaluations don't meet the saves."""

from __future__ import annotations

from typing import Any

import pytest

from kauldron_core import kd
from kauldron_core.errors import ConfigError
from kauldron_core.train import Evaluated
from tests.kauldron_core import experiments

METRIC = "val/losses/total"


def built(run: Any, metric: str = METRIC, *, saving: dict[str, Any] | None = None, **fields: Any) -> kd.train.Trainer:
    keeper = {"save_interval_steps": 10, "max_to_keep": 1, "best_metric": metric, "mode": "min"}
    checkpointer = kd.ckpts.Checkpointer(**{**keeper, **(saving or {})})
    evals = {"val": kd.evals.Evaluator(run=run)}
    return experiments.trainer(checkpointer=checkpointer, evals=evals, **{"log_metrics_every": 5, **fields})


def test_a_best_metric_that_is_not_measured_at_the_saves_is_refused_with_what_fits(tmp_path: Any) -> None:
    """F15: saves every 10, evaluation every 7: only the last checkpoint stayed, or was known; it was shown as best."""
    for kept in (1, None):
        with pytest.raises(ConfigError, match=r"every 7 steps .* every 10, .*val\.run\.n=10 .*save_interval_steps=7"):
            built(kd.evals.EveryNSteps(7), saving={"max_to_keep": kept})
    with pytest.raises(ConfigError, match=r"training metrics come every 4 steps.*log_metrics_every=10"):
        built(kd.evals.EveryNSteps(10), "train/losses/total", log_metrics_every=4)
    with pytest.raises(ConfigError, match=r"by the clock.*save_interval_steps=10"):
        built(kd.evals.EveryNSteps(10), saving={"save_interval_steps": None, "save_interval_s": 60.0})
    assert built(kd.evals.EveryNSteps(7), num_train_steps=9)  # One checkpoint is saved, the last.
    # The interval that it names fits.
    trainer = built(kd.evals.EveryNSteps(10), workdir=tmp_path, num_train_steps=30)
    measured = {event.step: event.values["losses/total"] for event in trainer.iter_train() if type(event) is Evaluated}
    best = min((step for step in measured if step), key=measured.__getitem__)
    assert set(trainer.checkpointer.all_steps) == {best, 30}


@pytest.mark.parametrize("run", [kd.evals.Final(), kd.evals.Once(10), kd.evals.StandaloneLastCheckpoint()])
def test_a_best_metric_that_is_measured_once_is_refused(run: Any) -> None:
    """F15: of one measured checkpoint that one is best, whatever the others are."""
    with pytest.raises(ConfigError, match=rf"measured once \({type(run).__name__}\).*evals\.val\.run="):
        built(run)
    assert built(run, saving={"max_to_keep": None})


@pytest.mark.parametrize(
    "run",
    [
        kd.evals.EveryNSteps(5),
        kd.evals.EveryNSteps(20),
        kd.evals.StandaloneEveryCheckpoint(),
        kd.evals.EveryNCheckpoints(n=3),
    ],
)
def test_metrics_that_meet_the_saves_are_fine(run: Any) -> None:
    """F15: also those that come later, from stand-alone evaluators: checkpoints wait for them."""
    assert built(run)


def test_a_training_metric_that_no_one_makes_is_refused() -> None:
    """F15: a name that training does not measure would make no checkpoint the best."""
    with pytest.raises(ConfigError, match=r"unknown metric 'train/losses/xnt'\. Did you mean 'train/losses/xent'"):
        built(kd.evals.EveryNSteps(10), "train/losses/xnt")
    assert built(kd.evals.EveryNSteps(10), "train/metrics/accuracy")
