"""Who decides about a training by its metrics has those of the step at which it decides."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from kauldron_core import kd, rundir
from kauldron_core.train import Done, Evaluated, Logged, Settled
from tests.kauldron_core import experiments


def _trainer(workdir: Any, **fields: Any) -> kd.train.Trainer:
    """Returns 12 steps with training metrics at 1, 4, 8, 12 and evaluations at 0, 3, 6, 9, 12."""
    evals = {"val": kd.evals.Evaluator(run=kd.evals.EveryNSteps(3))}
    return experiments.trainer(workdir, **{"evals": evals, "log_metrics_every": 4, **fields})


@pytest.mark.parametrize("steps_per_call", [1, 4])
def test_a_step_settles_when_all_of_it_is_measured_and_before_the_next_begins(
    tmp_path: pathlib.Path, steps_per_call: int
) -> None:
    """F03: the metrics and the evaluation of one step, whatever their intervals, are one answer."""
    evals = {"val": kd.evals.Evaluator(run=kd.evals.EveryNSteps(4))}
    trainer = _trainer(tmp_path, evals=evals, steps_per_call=steps_per_call)
    last: dict[str, int] = {}
    settled = []
    for event in trainer.iter_train(settle=True):
        match event:
            case Logged() | Evaluated():
                last[event.name if isinstance(event, Evaluated) else event.split] = event.step
            case Settled():
                settled.append(event.step)
                sources = {name.partition("/")[0] for name in event.values}
                assert sources == {source for source, step in last.items() if step == event.step}
                assert max(last.values()) == event.step
            case _:
                pass
    assert settled == [0, 1, 4, 8]
    assert last == {"train": 12, "val": 12}


def test_steps_settle_with_what_is_measured_there_and_nothing_older(tmp_path: pathlib.Path) -> None:
    settled = experiments.of_kind(_trainer(tmp_path).iter_train(settle=True), Settled)
    measured = {one.step: {name.partition("/")[0] for name in one.values} for one in settled}
    assert measured == {0: {"val"}, 1: {"train"}, 3: {"val"}, 4: {"train"}, 6: {"val"}, 8: {"train"}, 9: {"val"}}


def test_nothing_settles_unasked(tmp_path: pathlib.Path) -> None:
    assert not experiments.of_kind(_trainer(tmp_path).iter_train(), Settled)


def test_a_step_settles_again_where_a_killed_training_goes_on(tmp_path: pathlib.Path) -> None:
    trainer = _trainer(tmp_path, checkpointer=kd.ckpts.Checkpointer(save_interval_steps=6))
    events = trainer.iter_train(settle=True)
    first = next(event for event in events if isinstance(event, Settled) and event.step == 6)
    events.close()
    again = next(iter(_trainer(tmp_path).iter_train(settle=True)))
    assert again == first
    with rundir.EventWriter(tmp_path / "events", writer="scheduler") as log:
        log.append(rundir.INHERITED, 6, donor="another", changes={})
    # What was measured of the state that it had is not that of the state it was given.
    assert Settled(6, first.values) not in list(_trainer(tmp_path, num_train_steps=7).iter_train(settle=True))


def test_the_last_step_settles_with_the_end(tmp_path: pathlib.Path) -> None:
    def until(event: Any) -> str | None:
        return "enough" if event.step == 6 else None

    *_, last_settled, done = [
        event for event in _trainer(tmp_path).iter_train(settle=True, until=until) if isinstance(event, Settled | Done)
    ]
    assert isinstance(last_settled, Settled) and last_settled.step == 4
    assert done == Done(step=6, status="stopped", reason="enough")
