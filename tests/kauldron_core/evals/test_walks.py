"""Which batches an evaluation takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kauldron_core import kd
from kauldron_core.errors import ConfigError
from kauldron_core.evals import (
    EvalEpoch,
    Evaluator,
    EveryNSteps,
    Final,
    FirstBatches,
    Once,
    RollingBatches,
    RunStrategy,
    StandaloneEveryCheckpoint,
)
from tests.kauldron_core import experiments


def _numbers(walk: Any, ds: Any, *, run: RunStrategy = Final(), step: int = 0) -> list[int]:  # noqa: B008
    return [number for number, _ in walk.batches(ds, run=run, step=step)]


def _data(num_batches: int) -> kd.data.InMemoryPipeline:
    rows = np.arange(num_batches * 2, dtype=np.int32)
    return kd.data.InMemoryPipeline(loader=lambda: {"x": rows}, batch_size=2, num_epochs=1)


class _WithoutLength:
    """Data that tells its length only at its end."""

    def __init__(self, ds: Any):
        self._ds = ds

    def __iter__(self):
        return iter(self._ds)

    def __len__(self):
        raise TypeError


@pytest.mark.parametrize("run", [EveryNSteps(3), EveryNSteps(3, skip_first=True), Once(4), Final()])
def test_how_often_a_strategy_ran_before(run: RunStrategy) -> None:
    for step in range(13):
        assert run.num_runs_before(step) == sum(run.should_run(earlier, False) for earlier in range(step)), step


def test_an_epoch_and_the_first_batches_start_over_each_time() -> None:
    for step in (0, 30):
        assert _numbers(EvalEpoch(), _data(5), step=step) == [0, 1, 2, 3, 4]
        assert _numbers(FirstBatches(2), _data(5), step=step) == [0, 1]
    assert _numbers(FirstBatches(9), _data(5)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("wrap", [lambda ds: ds, _WithoutLength])
def test_rolling_batches_do_not_overlap_and_go_round(wrap: Any) -> None:
    taken = [
        _numbers(RollingBatches(3), wrap(_data(7)), run=EveryNSteps(10), step=step) for step in (0, 10, 20, 30, 40, 45)
    ]
    assert taken[:5] == [[0, 1, 2], [3, 4, 5], [6, 0, 1], [2, 3, 4], [5, 6, 0]]
    assert taken[5] == [1, 2, 3], "the evaluation at the last step comes after that of step 40"


@pytest.mark.parametrize("wrap", [lambda ds: ds, _WithoutLength])
def test_no_evaluation_takes_a_batch_twice(wrap: Any) -> None:
    for step in (0, 10):
        assert sorted(_numbers(RollingBatches(5), wrap(_data(3)), run=EveryNSteps(10), step=step)) == [0, 1, 2]


def test_a_resumed_run_goes_on_with_the_very_next_batches(tmp_path: Any) -> None:
    def evaluated(workdir: Any, **fields: Any) -> dict[int, float]:
        evaluator = Evaluator(run=EveryNSteps(4), walk=RollingBatches(2), metrics={"labels": Labels})
        trainer = experiments.trainer(workdir, evals={"test": evaluator}, **fields)
        events = experiments.of_kind(trainer.iter_train(), kd.train.Evaluated)
        return {event.step: event.values["metrics/labels"] for event in events}

    Labels = kd.metrics.Average(values="batch.x")
    whole = evaluated(tmp_path / "whole")
    first = evaluated(tmp_path / "cut", stop_after_steps=4)
    rest = evaluated(tmp_path / "cut")
    assert {**first, **rest} == whole
    assert len(set(whole.values())) == 4


def test_what_cannot_be_walked_is_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match=r"num_batches is unset\. .* never ends .* EvalEpoch\(\)"):
        RollingBatches()
    with pytest.raises(ConfigError, match=r"evals\.eval\.walk: RollingBatches .* in any order"):
        Evaluator(run=StandaloneEveryCheckpoint(), walk=RollingBatches(2))
    with pytest.raises(ConfigError, match="walk and num_batches both"):
        Evaluator(run=Final(), walk=EvalEpoch(), num_batches=2)
    with pytest.raises(ConfigError, match="at least 1"):
        FirstBatches(0)
