"""Intervals that are longer than training are said, and training goes on."""

from __future__ import annotations

from typing import Any

import pytest

from kauldron_core import kd
from kauldron_core.train.intervals import longer_than
from tests.kauldron_core import experiments


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (kd.evals.EveryNSteps(50), "evals.val.run: EveryNSteps(50) is more than the 20 steps of training"),
        (kd.evals.EveryNSteps(50, skip_first=True), "it evaluates at the last step only."),
        (kd.evals.Once(21), "it never evaluates."),
        (kd.evals.EveryNSteps(20), ""),
        (kd.evals.Once(20), ""),
        (kd.evals.Final(), ""),
    ],
)
def test_an_evaluator_that_never_comes_round_is_said(run: Any, said: str) -> None:
    trainer = experiments.trainer(num_train_steps=20, evals={"val": kd.evals.Evaluator(run=run)})
    lines = " ".join(line for line in longer_than(trainer, 20) if line.startswith("evals."))
    assert said in lines and bool(said) == bool(lines)


def test_saves_that_never_come_round_are_said_where_somebody_chose_them(caplog: pytest.LogCaptureFixture) -> None:
    for saves, said in ((50, "checkpointer.save_interval_steps: 50 is more than"), (1_000, ""), (2, "")):
        trainer = experiments.trainer(
            num_train_steps=2, checkpointer=kd.ckpts.Checkpointer(save_interval_steps=saves), evals={}
        )
        assert said in "".join(longer_than(trainer, 2)) and bool(said) == any(longer_than(trainer, 2))
        caplog.clear()
        trainer.trace()
        assert said in caplog.text
