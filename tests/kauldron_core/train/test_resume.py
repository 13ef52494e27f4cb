"""A run that was interrupted ends bit for bit where an uninterrupted one ends."""

from __future__ import annotations

import dataclasses
import pathlib
import resource
import threading
from typing import Any

import flax.linen as nn
import jax
import numpy as np
import optax
import pytest

from kauldron_core import kd, kontext, rundir
from kauldron_core.errors import ConfigError
from kauldron_core.train import Done, Evaluated, Logged, Saved
from tests.kauldron_core import experiments


class Normalised(nn.Module):
    """Dropout and batch statistics: everything that a model can carry from step to step."""

    x: kontext.Key = "batch.x"
    is_training = kd.nn.train_property()

    @nn.compact
    def __call__(self, x):
        x = nn.BatchNorm(use_running_average=not self.is_training, momentum=0.9)(nn.Dense(6)(x))
        return nn.Dense(experiments.CLASSES)(kd.nn.Dropout(0.3)(x))


class Watch:
    """Sets `stop` when the step that leads to `stop_at` starts."""

    stop_at: int | None = None
    stop = threading.Event()


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class WatchedStep(kd.train.TrainStep):
    watch: Watch = dataclasses.field(default_factory=Watch)

    def run(self, state, batches, outputs, *, size=1):
        if self.watch.stop_at is not None and int(state.step) + 1 == self.watch.stop_at:
            self.watch.stop.set()
        return super().run(state, batches, outputs, size=size)


# One object for all tests: what is made from it by `replace` shares its compiled programs.
BASE = experiments.trainer(
    model=Normalised(),
    optimizer=optax.chain(optax.adam(1e-2), optax.ema(0.9)),
    trainstep=WatchedStep(),
    evals={"test": kd.evals.Evaluator(run=kd.evals.EveryNSteps(5))},
)


def with_everything(workdir: Any, *, num_train_steps: int, batch_transforms: Any = ()) -> kd.train.Trainer:
    """Returns an experiment with dropout, batch statistics, a moving average and shuffled data."""
    return dataclasses.replace(
        BASE,
        workdir=workdir,
        trainstep=kd.train.TrainStep(),
        num_train_steps=num_train_steps,
        train_ds=experiments.points(shuffle=True, batch_transforms=batch_transforms),
    )


def _run(
    workdir: Any, *, stop_at: int | None = None, base: kd.train.Trainer = BASE, **fields: Any
) -> tuple[list[Any], kd.train.TrainState]:
    """Trains; asks to stop during the step that leads to `stop_at`."""
    trainer = dataclasses.replace(base, workdir=workdir, **fields)
    watch, events = trainer.trainstep.watch, []
    watch.stop_at, watch.stop = stop_at, threading.Event()
    stream = trainer.iter_train(stop=watch.stop)
    while True:
        try:
            events.append(next(stream))
        except StopIteration as end:
            return events, jax.device_get(end.value)


def _assert_same(left: Any, right: Any) -> None:
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def _values(workdir: pathlib.Path) -> list[tuple[Any, ...]]:
    """Returns the metrics and evaluations on record, without what depends on the clock."""
    records = []
    for event in rundir.read_events(workdir / "events"):
        if event["kind"] in ("metrics", "evaluated"):
            values = {name: value for name, value in event["values"].items() if not name.startswith("perf/")}
            records.append((event["kind"], event["split"], event["step"], values))
    return records


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, list[Any], kd.train.TrainState]:
    workdir = tmp_path_factory.mktemp("whole")
    return workdir, *_run(workdir)


def test_a_run_makes_exactly_its_steps_and_tells_what_it_did(whole: Any) -> None:
    _, events, state = whole
    assert int(state.step) == 12
    assert [event.step for event in experiments.of_kind(events, Logged)] == [1, 4, 8, 12]
    assert [event.step for event in experiments.of_kind(events, Evaluated)] == [0, 5, 10, 12]
    assert [event.step for event in experiments.of_kind(events, Saved)] == [4, 8, 12]
    assert events[-1] == Done(step=12, status="done")


@pytest.mark.parametrize("stops", [(1,), (2, 7), (4, 5, 9), (11,), tuple(range(1, 12))])
def test_an_interrupted_run_equals_an_uninterrupted_one(
    tmp_path: pathlib.Path, whole: Any, stops: tuple[int, ...]
) -> None:
    for stop_at in stops:
        events, state = _run(tmp_path, stop_at=stop_at)
        assert events[-1] == Done(step=stop_at, status="preempted", reason="stopped on request")
        assert int(state.step) == stop_at
    events, state = _run(tmp_path)
    assert events[-1].status == "done"
    _assert_same(state, whole[2])
    assert _values(tmp_path) == _values(whole[0])


def test_a_run_that_was_closed_goes_on_from_its_last_checkpoint(tmp_path: pathlib.Path, whole: Any) -> None:
    stream = dataclasses.replace(BASE, workdir=tmp_path).iter_train()
    for event in stream:
        if isinstance(event, Evaluated) and event.step == 10:
            break
    stream.close()
    assert kd.ckpts.all_steps(tmp_path / "checkpoints") == [4, 8]
    _, state = _run(tmp_path)
    _assert_same(state, whole[2])
    assert _values(tmp_path) == _values(whole[0])


def test_a_damaged_newest_checkpoint_is_set_aside_and_made_again(tmp_path: pathlib.Path, whole: Any) -> None:
    _run(tmp_path, stop_at=9)
    for step in (8, 9):
        (tmp_path / "checkpoints" / f"ckpt_{step}" / "state" / "manifest.ocdbt").unlink()
    events, state = _run(tmp_path)
    assert [event.step for event in experiments.of_kind(events, Saved)] == [8, 12]
    _assert_same(state, whole[2])
    assert _values(tmp_path) == _values(whole[0])


def test_stopping_within_an_epoch_trains_the_rest_of_it(tmp_path: pathlib.Path) -> None:
    """R02: stopping within an epoch trains the rest of it."""
    one_epoch = {"train_ds": experiments.points(shuffle=True, num_epochs=1), "num_train_steps": None}
    assert _run(tmp_path, stop_at=1, **one_epoch)[0][-1].status == "preempted"
    events, state = _run(tmp_path, **one_epoch)
    assert (int(state.step), events[-1].status) == (experiments.NUM_EXAMPLES // 16, "done")


def test_resuming_a_finished_run_changes_nothing(tmp_path: pathlib.Path) -> None:
    """R04: resuming a finished run changes nothing."""
    _, first = _run(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "checkpoints").rglob("*")}
    events, second = _run(tmp_path)
    assert events == [Done(step=12, status="done")]
    _assert_same(first, second)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "checkpoints").rglob("*")} == before
    assert [record[:3] for record in _values(tmp_path)][-1] == ("evaluated", "test", 12)


def test_a_final_evaluation_that_is_missing_is_made_up(tmp_path: pathlib.Path) -> None:
    """R04: a final evaluation that is missing is made up."""
    _run(tmp_path, evals={})
    events, _ = _run(tmp_path, evals={"final": kd.evals.Evaluator(run=kd.evals.Final())})
    assert [(type(event), event.step) for event in events] == [(Evaluated, 12), (Done, 12)]


@pytest.mark.slow
def test_a_learning_rate_ramp_goes_on_where_it_was(tmp_path: pathlib.Path) -> None:
    """R06: a learning rate ramp goes on where it was."""
    ramp = optax.linear_schedule(0.0, 1e-2, 12)
    base = dataclasses.replace(
        BASE, optimizer=optax.sgd(ramp), schedules={"learning_rate": ramp}, log_metrics_every=1, evals={}
    )
    _run(tmp_path, stop_at=6, base=base)
    events, _ = _run(tmp_path, base=base)
    rates = {event.step: event.values["schedules/learning_rate"] for event in experiments.of_kind(events, Logged)}
    assert rates == pytest.approx({step: float(ramp(step - 1)) for step in range(7, 13)})


def test_a_stop_during_warm_up_ends_before_the_first_step(tmp_path: pathlib.Path) -> None:
    """R08: a stop during warm up ends before the first step."""
    stop = threading.Event()
    stop.set()
    events = list(dataclasses.replace(BASE, workdir=tmp_path).iter_train(stop=stop))
    assert events == [Done(step=0, status="preempted", reason="stopped on request")]
    assert kd.ckpts.all_steps(tmp_path / "checkpoints") == []


def test_asking_for_more_steps_goes_on(tmp_path: pathlib.Path) -> None:
    _run(tmp_path, num_train_steps=6)
    events, state = _run(tmp_path, num_train_steps=12)
    assert experiments.of_kind(events, Logged)[0].step == 8
    assert int(state.step) == 12
    assert kd.ckpts.all_steps(tmp_path / "checkpoints") == [4, 6, 8, 12]


def test_asking_for_fewer_steps_says_so(tmp_path: pathlib.Path) -> None:
    _run(tmp_path)
    events, state = _run(tmp_path, num_train_steps=6)
    assert events == [Done(step=12, status="done", reason="6 steps were asked for, 12 are done already")]
    assert int(state.step) == 12


def test_stop_after_steps_ends_early_and_is_done(tmp_path: pathlib.Path) -> None:
    events, state = _run(tmp_path, stop_after_steps=5)
    assert (int(state.step), events[-1]) == (5, Done(step=5, status="done"))


def test_data_that_is_too_short_is_refused_before_the_first_step(tmp_path: pathlib.Path) -> None:
    with pytest.raises(
        ConfigError, match=r"num_train_steps: 12 steps are asked for, and train_ds ends after 8 batches"
    ):
        _run(tmp_path, train_ds=experiments.points(num_epochs=2))
    assert list(tmp_path.iterdir()) == []


def test_data_without_end_needs_a_number_of_steps() -> None:
    with pytest.raises(ConfigError, match="num_train_steps: unset, and train_ds has no end"):
        _run(None, num_train_steps=None)


def test_without_a_workdir_nothing_is_written(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    events, state = _run(None)
    assert (int(state.step), events[-1].status) == (12, "done")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_run_whose_checkpoint_cannot_be_written_fails_and_names_it(tmp_path: pathlib.Path) -> None:
    """C06: a run whose checkpoint cannot be written fails and names it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The operating system refuses larger files, as a full disk would; this model's weights need one.
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        with pytest.raises(kd.ckpts.SaveFailed, match="ckpt_4: the checkpoint could not be saved"):
            _run(tmp_path, model=kd.nn.MLP(hidden=3_000, features=experiments.CLASSES, x="batch.x"), evals={})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert kd.ckpts.all_steps(tmp_path / "checkpoints") == []
    assert "done" not in [event["kind"] for event in rundir.read_events(tmp_path / "events")]


def test_a_resumed_run_of_another_model_is_refused(tmp_path: pathlib.Path) -> None:
    _run(tmp_path)
    with pytest.raises(kd.ckpts.StateMismatch, match="does not fit the config"):
        _run(tmp_path, model=experiments.trainer().model)
