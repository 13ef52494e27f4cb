"""Which checkpoints stay: the latest always, NaN never as the best, and what an evaluator still waits for."""

from __future__ import annotations

import math
import os
import pathlib
import time
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kauldron_core import ckpts, rundir
from kauldron_core.ckpts import retention
from kauldron_core.errors import ConfigError

STATE = {"w": jnp.ones(2)}
LOSS = "test/losses/total"


def _saver(workdir: pathlib.Path, **fields: Any) -> ckpts.Checkpointer:
    return ckpts.Checkpointer(workdir=workdir, **{"max_to_keep": 1, **fields})


def _save(checkpointer: ckpts.Checkpointer, losses: Mapping[int, float | None]) -> None:
    """Saves at each step, after the evaluation that found this loss, if there was one."""
    for step, loss in losses.items():
        if loss is not None:
            checkpointer.observe(step, "test", {"losses/total": loss})
        checkpointer.save(STATE, step=step)
        checkpointer.wait()
        checkpointer.finished()


def _record(trial: pathlib.Path, step: int, **values: float) -> None:
    values = {key.replace("_", "/"): value for key, value in values.items()}
    rundir.write_eval_result(trial, "test", step, {"status": "done", "values": values})


steps_and_scores = st.dictionaries(st.integers(1, 99), st.floats(), min_size=1, max_size=12)


@given(steps_and_scores, st.integers(1, 4), st.integers(1, 3), st.sampled_from(["max", "min"]), st.data())
def test_the_latest_stays_and_the_best_are_the_best(
    scores: dict[int, float], max_to_keep: int, keep_best: int, mode: str, data: st.DataObject
) -> None:
    scored = {step: scores[step] for step in scores if data.draw(st.booleans(), label=f"{step} has a score")}
    kept = retention.reasons_to_keep(scores, max_to_keep=max_to_keep, scores=scored, keep_best=keep_best, mode=mode)
    steps = sorted(scores)
    assert set(kept) == set(steps)
    assert kept[steps[-1]]
    assert all(kept[step] for step in steps[-max_to_keep:])
    best = {step for step in steps if "best" in kept[step]}
    finite = {step: score for step, score in scored.items() if math.isfinite(score)}
    assert best <= set(finite)
    assert len(best) == min(keep_best, len(finite))
    worse = [finite[step] for step in finite if step not in best]
    better = [finite[step] for step in best]
    if worse and better:
        assert min(better) >= max(worse) if mode == "max" else max(better) <= min(worse)


def test_best_newest_and_every_nth_stay(tmp_path: pathlib.Path) -> None:
    checkpointer = _saver(tmp_path, max_to_keep=2, keep_every_n_steps=40, best_metric=LOSS, mode="min", keep_best=2)
    losses = {10: 0.9, 20: 0.1, 30: math.nan, 40: 0.5, 50: 0.2, 60: -math.inf, 70: None, 80: 0.8, 90: 0.7, 100: 0.6}
    _save(checkpointer, losses)
    assert checkpointer.all_steps == [20, 40, 50, 80, 90, 100]
    assert checkpointer.reasons_to_keep() == {
        20: ["best"],
        40: ["every 40 steps"],
        50: ["best"],
        80: ["every 40 steps"],
        90: ["newest 2"],
        100: ["latest"],
    }
    assert _saver(tmp_path, best_metric=LOSS, mode="min").scores()[50] == 0.2
    assert _saver(tmp_path, best_metric=LOSS, mode="min").best_step == 20
    assert _saver(tmp_path, best_metric=LOSS, mode="max").best_step == 80
    assert _saver(tmp_path).best_step is None


def test_a_resumed_run_waits_for_the_first_evaluation(tmp_path: pathlib.Path) -> None:
    """X04: The metric that tells the best checkpoint is made by an evaluation that has not run yet."""
    fields = {"best_metric": LOSS, "mode": "min"}
    _save(_saver(tmp_path, **fields), {10: None})
    resumed = _saver(tmp_path, **fields)
    assert resumed.load(STATE).step == 10
    resumed.observe(15, "train", {"losses/total": 0.3})
    _save(resumed, {20: None})
    assert resumed.all_steps == [20]
    _save(resumed, {30: 0.2, 40: 0.4, 50: None})
    assert resumed.all_steps == [30, 50]


def test_a_metric_that_a_whole_evaluation_lacks_is_an_error(tmp_path: pathlib.Path) -> None:
    """X04: a metric that a whole evaluation lacks is an error."""
    checkpointer = _saver(tmp_path, best_metric="test/losses/totl")
    checkpointer.observe(10, "other", {"losses/xent": 0.1})
    with pytest.raises(
        ConfigError, match=r"best_metric: unknown metric 'test/losses/totl'\. Did you mean 'test/losses/to"
    ):
        checkpointer.observe(10, "test", {"losses/total": 0.1, "metrics/accuracy": 0.5})


def test_a_metric_of_no_evaluator_is_refused_before_training() -> None:
    checkpointer = ckpts.Checkpointer(best_metric="tset/losses/total")
    with pytest.raises(ConfigError, match=r"best_metric: unknown evaluator 'tset'\. Did you mean 'test'"):
        checkpointer.check_evaluators(["test", "val"])
    for metric in ("train/losses/total", "val/losses/total", None):
        ckpts.Checkpointer(best_metric=metric).check_evaluators(["test", "val"])


def test_a_training_metric_may_be_logged_less_often_than_others(tmp_path: pathlib.Path) -> None:
    """X04: a training metric may be logged less often than others."""
    checkpointer = _saver(tmp_path, best_metric="train/losses/total", mode="min")
    checkpointer.observe(1, "train", {"perf/steps_per_s": 3.0})
    checkpointer.observe(1, "train", {"losses/total": 0.1})
    checkpointer.save(STATE, step=1)
    checkpointer.wait()
    assert checkpointer.scores() == {1: 0.1}
    with pytest.raises(ConfigError, match="unknown metric"):
        checkpointer.observe(2, "train", {"losses/xent": 0.1})


def test_standalone_results_tell_the_best(tmp_path: pathlib.Path) -> None:
    checkpointer = _saver(tmp_path, max_to_keep=3, best_metric=LOSS, mode="min")
    _save(checkpointer, {10: None, 20: None, 30: None})
    _record(tmp_path, 10, losses_total=0.1)
    _record(tmp_path, 20, losses_total=0.4)
    rundir.write_eval_result(tmp_path, "test", 30, {"status": "failed", "values": {}, "error": "no"})
    _save(checkpointer, {40: None, 50: None})
    assert checkpointer.all_steps == [10, 30, 40, 50]
    _record(tmp_path, 40, losses_xent=0.4)
    with pytest.raises(ConfigError, match=r"unknown metric 'test/losses/total'.*Available: test/losses/xent"):
        checkpointer.reasons_to_keep()


def test_what_a_live_evaluator_waits_for_stays_until_it_has_a_result(tmp_path: pathlib.Path) -> None:
    checkpointer = _saver(tmp_path)
    watch = rundir.Lease.acquire(rundir.watch_path(tmp_path, "test"))
    assert watch is not None
    _save(checkpointer, {10: None, 20: None, 30: None})
    assert checkpointer.all_steps == [10, 20, 30], "the evaluator has not looked yet, so each may be due"
    assert checkpointer.reasons_to_keep()[10] == ["waits for evaluator 'test'"]
    rundir.write_pending(tmp_path, "test", rundir.Pending(due=(20,), seen=30))
    _record(tmp_path, 30, losses_total=0.1)
    _save(checkpointer, {40: None, 50: None})
    assert checkpointer.all_steps == [20, 40, 50], "10 is not due; 40 is newer than what was seen"
    watch.release()
    _save(checkpointer, {60: None})
    assert checkpointer.all_steps == [60]


def test_at_most_max_pending_wait(tmp_path: pathlib.Path) -> None:
    checkpointer = _saver(tmp_path)
    with rundir.Lease.acquire(rundir.watch_path(tmp_path, "test")) or pytest.fail("no lease"):
        rundir.write_pending(tmp_path, "test", rundir.Pending(due=(10, 20), seen=20, max_pending=2))
        _save(checkpointer, {step: None for step in (10, 20, 30, 40)})
        assert checkpointer.all_steps == [20, 30, 40]


def test_a_watch_that_ran_out_keeps_nothing(tmp_path: pathlib.Path) -> None:
    checkpointer = _saver(tmp_path)
    watch = rundir.Lease.acquire(rundir.watch_path(tmp_path, "test"), ttl_s=60)
    assert watch is not None
    _save(checkpointer, {10: None, 20: None})
    assert checkpointer.all_steps == [10, 20]
    an_hour_ago = time.time() - 3600
    os.utime(watch.path / f"{watch.generation:08d}", (an_hour_ago, an_hour_ago))
    _save(checkpointer, {30: None})
    assert checkpointer.all_steps == [30]


def test_the_one_being_evaluated_stays_whoever_evaluates_it(tmp_path: pathlib.Path) -> None:
    checkpointer = _saver(tmp_path)
    with rundir.Lease.acquire(rundir.work_path(tmp_path, "probe", 10)) or pytest.fail("no lease"):
        _save(checkpointer, {10: None, 20: None, 30: None})
        assert checkpointer.all_steps == [10, 30]
    _save(checkpointer, {40: None})
    assert checkpointer.all_steps == [40]


def test_saves_by_the_clock_are_asked_for_at_the_end_of_a_call(tmp_path: pathlib.Path) -> None:
    checkpointer = _saver(tmp_path, save_interval_steps=100, save_interval_s=0.2)
    assert not checkpointer.is_due(1)
    assert not checkpointer.should_save(1)
    time.sleep(0.25)
    assert checkpointer.is_due(7)
    assert not checkpointer.should_save(7), "where calls end depends on steps alone"
    checkpointer.save(STATE, step=7)
    assert not checkpointer.is_due(8)
    assert checkpointer.is_due(100)
    checkpointer.close()
    assert not any(ckpts.Checkpointer(save_interval_steps=None).is_due(step) for step in (1, 1000))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"save_interval_s": 0}, "save_interval_s: must be above 0"),
        ({"keep_every_n_steps": 5}, "keep_every_n_steps: has no effect while max_to_keep is None"),
        ({"keep_best": 2, "max_to_keep": 1}, "keep_best: needs best_metric"),
        ({"keep_best": 2, "best_metric": LOSS}, "and max_to_keep"),
        ({"best_metric": "accuracy"}, "best_metric: 'accuracy' names no evaluator"),
        ({"mode": "most"}, "unknown mode 'most'"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ckpts.Checkpointer(**fields)
