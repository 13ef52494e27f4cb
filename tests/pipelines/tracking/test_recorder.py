"""What stands in MLflow, read back from a real SQLite store."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kauldron_core import rundir
from pipelines.tracking import Store

pytestmark = pytest.mark.slow  # the store takes seconds to make

DONE = SimpleNamespace(ok=True)
CONFIG = json.dumps(
    {
        "optimizer": {"learning_rate": 0.01, "b1": 0.9},
        "model": {"hidden": 32},
        "num_train_steps": 500,
        "schedule": {"steps": {"__ref__": "num_train_steps"}},
    }
)


def config(**changes: Any) -> str:
    return json.dumps({**json.loads(CONFIG), **changes})


def test_a_sweep_is_an_experiment_with_a_parent_and_a_child_per_trial(make_run: Any) -> None:
    run = make_run({"0000-lr=0.01": {"optimizer.learning_rate": 0.01}, "0001-lr=0.1": {"optimizer.learning_rate": 0.1}})
    for name, steps in (("0000-lr=0.01", range(1, 4)), ("0001-lr=0.1", range(1, 3))):
        trial = run.add_trial(name, CONFIG)
        run.log(trial, steps)
        run.evaluate(trial, 2, **{"metrics/accuracy": 0.5})
        rundir.write_status(trial, "done")
    run.record(DONE)
    runs = run.runs()
    parent = runs.pop(run.dir.name)
    assert set(runs) == {"0000-lr=0.01", "0001-lr=0.1"}
    assert {child.data.tags["mlflow.parentRunId"] for child in runs.values()} == {parent.info.run_id}
    assert {child.info.status for child in [parent, *runs.values()]} == {"FINISHED"}
    assert [step for step, _ in run.curve("0000-lr=0.01", "train/losses/total")] == [1, 2, 3]
    assert run.curve("0001-lr=0.1", "test/metrics/accuracy") == [(2, 0.5)]
    experiment = run.client.get_experiment(parent.info.experiment_id)
    assert experiment.name == f"{run.dir.name}-{run.dir.sweep['id']}"
    assert Path(experiment.artifact_location).is_absolute()
    assert run.warnings == []


def test_points_carry_the_time_of_their_event(make_run: Any) -> None:
    run = make_run()
    trial = run.add_trial("a", CONFIG)
    run.log(trial, range(1, 3))
    run.record()
    times = [event["time_ms"] for event in rundir.read_events(trial.events)]
    history = run.client.get_metric_history(run.runs()["a"].info.run_id, "train/losses/total")
    assert sorted(metric.timestamp for metric in history) == sorted(times)


def test_the_config_is_an_artifact(make_run: Any) -> None:
    run = make_run()
    run.add_trial("a", CONFIG)
    run.record()
    location = run.runs()["a"].info.artifact_uri
    assert (Path(location) / "config.json").read_text() == CONFIG
    assert Path(location).is_relative_to(Path(run.store.root) / "mlartifacts")


def test_every_setting_is_found_on_the_children(make_run: Any) -> None:
    """L12: every setting is found on the children."""
    run = make_run({"a": {"optimizer.learning_rate": 0.01}})
    run.add_trial("a", CONFIG)
    run.record()
    child = run.runs()["a"]
    query = "params.`optimizer.b1` = '0.9' and params.`schedule.steps` = '500' and tags.`kdr.sweep` LIKE '%'"
    found = run.client.search_runs([child.info.experiment_id], query)
    assert [one.info.run_id for one in found] == [child.info.run_id]
    assert child.data.tags["kdr.sweep"] == run.dir.sweep["id"]


def test_a_call_is_named_by_its_path(make_run: Any) -> None:
    run = make_run({"a": {"optimizer.learning_rate": 0.1}, "b": {"optimizer.learning_rate": 0.2}})
    optimizer = {"__qualname__": "optax:adam", "learning_rate": 0.1}
    run.add_trial("a", json.dumps({"optimizer": optimizer, "act": {"__const__": "jax:nn.relu"}}))
    run.record()
    params = run.runs()["a"].data.params
    assert params == {"optimizer": "optax:adam", "optimizer.learning_rate": "0.1", "act": "jax:nn.relu"}
    assert run.runs()[run.dir.name].data.params["sweep.optimizer.learning_rate"] == "[0.1, 0.2]"


def test_swept_settings_are_marked_among_two_hundred(make_run: Any) -> None:
    """L24: swept settings are marked among two hundred."""
    swept = {"lr": 0.1, "hidden": 8}
    run = make_run({"a": swept})
    run.add_trial("a", json.dumps({**{f"setting{n}": n for n in range(198)}, **swept}))
    run.record()
    data = run.runs()["a"].data
    assert len(data.params) == 200
    assert {key: value for key, value in data.tags.items() if key.startswith("sweep.")} == {
        "sweep.lr": "0.1",
        "sweep.hidden": "8",
    }
    assert data.tags["kdr.swept"] == "lr, hidden"


def test_1001_metrics_and_250_parameters_at_once(make_run: Any) -> None:
    """L20: 1001 metrics and 250 parameters at once."""
    run = make_run()
    trial = run.add_trial("a", json.dumps({f"setting{n}": n for n in range(250)}))
    run.log(trial, range(1, 2), **{f"m{n}": float(n) for n in range(1001)})
    run.record()
    data = run.runs()["a"].data
    assert len(data.params) == 250
    assert {data.metrics[f"train/m{n}"] for n in range(1001)} == set(map(float, range(1001)))


def test_a_long_value_is_cut_by_the_same_rule_everywhere(make_run: Any) -> None:
    """L02: a long value is cut by the same rule everywhere."""
    long = "x" * 9000
    run = make_run({"a": {"note": long}})
    run.add_trial("a", json.dumps({"note": long}))
    run.record()
    data = run.runs()["a"].data
    assert data.params["note"].endswith("(9000 characters; whole in config.json)")
    assert data.tags["sweep.note"].endswith("(9000 characters; whole in config.json)")
    run.record()  # the cut value is the same one, not a change
    assert not [key for key in run.runs()["a"].data.tags if key.startswith("kdr.changed")]


def test_a_changed_setting_is_a_dated_tag_and_a_new_one_is_added(make_run: Any) -> None:
    """L04: a changed setting is a dated tag and a new one is added."""
    run = make_run()
    trial = run.add_trial("a", CONFIG)
    run.log(trial, range(1, 3))
    run.record()
    rundir.write_atomic(trial.config_path, config(num_train_steps=1000, note="longer"))
    with rundir.EventWriter(trial.events) as writer:
        writer.append("metrics", 3, split="train", values={"losses/total": 0.1})
    run.record()
    data = run.runs()["a"].data
    assert data.params["num_train_steps"] == "500"
    assert data.params["note"] == "longer"
    assert data.tags["kdr.changed.num_train_steps"].endswith(": 500 -> 1000")
    assert data.tags["kdr.changed.num_train_steps"].startswith("20")
    assert [step for step, _ in run.curve("a", "train/losses/total")] == [1, 2, 3]


def test_infinities_are_marked_and_never_plain_numbers(make_run: Any) -> None:
    """L06: infinities are marked and never plain numbers."""
    run = make_run()
    trial = run.add_trial("a", CONFIG)
    run.log(trial, range(1, 3), good=1.0, up=math.inf, down=-math.inf)
    run.record()
    assert [math.isnan(value) for _, value in run.curve("a", "train/up")] == [True, True]
    tags = run.runs()["a"].data.tags
    assert tags["kdr.infinite.train/up"] == "2 points, the first inf at step 1"
    assert tags["kdr.infinite.train/down"] == "2 points, the first -inf at step 1"


def test_nan_is_recorded_and_what_is_no_number_is_skipped_with_one_warning(make_run: Any) -> None:
    """L08: nan is recorded and what is no number is skipped with one warning."""
    run = make_run()
    trials = [run.add_trial(name, CONFIG) for name in ("a", "b")]
    for trial in trials:
        run.log(trial, range(1, 5), nan=math.nan, none=None, text="high", good=1.0)
    run.record()
    for name in ("a", "b"):
        assert set(run.runs()[name].data.metrics) == {"train/nan", "train/good"}
        assert all(math.isnan(value) for _, value in run.curve(name, "train/nan"))
    assert sorted(warning.split("'")[1] for warning in run.warnings) == ["train/none", "train/text"]


def test_a_bad_name_never_loses_the_others(make_run: Any) -> None:
    """L10: a bad name never loses the others."""
    run = make_run()
    trial = run.add_trial("a", CONFIG)
    run.log(trial, range(1, 2), **{f"m{n}": 1.0 for n in range(39)}, **{"recall@5[0], = //": 1.0})
    run.record()
    assert len(run.runs()["a"].data.metrics) == 40


def test_what_mlflow_refuses_all_the_same_is_one_warning(make_run: Any) -> None:
    """L10: A time before 1970 is nothing that a clean name could mend."""
    run = make_run()
    trial = run.add_trial("a", CONFIG)
    with rundir.EventWriter(trial.events) as writer:
        for step, time_ms in ((1, 10), (2, -20), (3, 30)):
            writer.append("metrics", step, split="train", time_ms=time_ms, values={"good": 1.0, "better": 0.5})
    run.record()
    assert [step for step, _ in run.curve("a", "train/good")] == [1, 3]
    assert [warning.split(":")[0] for warning in run.warnings] == [
        "MLflow refuses metric 'train/good'",
        "MLflow refuses metric 'train/better'",
    ]


def test_each_trial_writes_into_its_own_run(make_run: Any) -> None:
    """L14: each trial writes into its own run."""
    run = make_run()
    trials = {name: run.add_trial(name, CONFIG) for name in ("a", "b")}
    recorder = run.recorder()
    for step in range(1, 6):
        for number, trial in enumerate(trials.values()):
            run.log(trial, range(step, step + 1), mine=float(number))
        recorder.poll()
    recorder.close()
    assert run.curve("a", "train/mine") == [(step, 0.0) for step in range(1, 6)]
    assert run.curve("b", "train/mine") == [(step, 1.0) for step in range(1, 6)]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("done", "FINISHED"),
        ("failed", "FAILED"),
        ("diverged", "FAILED"),
        ("stopped", "KILLED"),
        ("pruned", "KILLED"),
        ("preempted", "KILLED"),
        ("running", "KILLED"),
    ],
)
def test_every_end_of_a_trial_has_its_status(make_run: Any, status: str, expected: str) -> None:
    """L18: every end of a trial has its status."""
    run = make_run()
    trial = run.add_trial("a", CONFIG)
    rundir.write_status(trial, status, error="ValueError: no" if status == "failed" else None)
    run.record(SimpleNamespace(ok=status == "done"))
    child = run.runs()["a"]
    assert child.info.status == expected
    assert child.data.tags["kdr.status"] == status
    assert child.data.tags.get("kdr.error") == ("ValueError: no" if status == "failed" else None)
    parent = run.runs()[run.dir.name]
    assert parent.info.status == {"done": "FINISHED", "preempted": "KILLED", "running": "KILLED"}.get(status, "FAILED")


def test_what_a_killed_driver_left_open_is_closed_by_the_next_one(make_run: Any) -> None:
    """L18: what a killed driver left open is closed by the next one."""
    killed = make_run()
    killed.add_trial("a", CONFIG)
    killed.recorder().poll()
    assert killed.runs()["a"].info.status == "RUNNING"
    other = make_run()
    other.record(DONE)
    assert {run.info.status for run in killed.runs().values()} == {"KILLED"}
    assert any(str(killed.dir.path) in warning for warning in other.warnings)


def test_a_driver_that_lives_is_left_alone(make_run: Any) -> None:
    """L18: a driver that lives is left alone."""
    alive = make_run()
    alive.add_trial("a", CONFIG)
    with alive.dir.lock():
        alive.recorder().poll()
        make_run().record(DONE)
        assert alive.runs()["a"].info.status == "RUNNING"


def test_a_trial_that_waits_again_after_a_kill_is_not_running(make_run: Any) -> None:
    """L18: a trial that waits again after a kill is not running."""
    run = make_run()
    trial = run.add_trial("a", CONFIG)
    run.recorder().poll()
    rundir.write_status(trial, "queued")
    recorder = run.recorder()
    assert run.runs()["a"].info.status == "KILLED"
    rundir.write_status(trial, "running")
    recorder.poll()
    assert run.runs()["a"].info.status == "RUNNING"


def test_no_step_is_in_the_curve_twice_after_a_resume(make_run: Any) -> None:
    """L22: no step is in the curve twice after a resume."""
    run = make_run()
    trial = run.add_trial("a", CONFIG)
    run.log(trial, range(1, 121))
    run.recorder().poll()
    with rundir.EventWriter(trial.events) as writer:
        writer.resumed_from(100)
        for step in range(101, 151):
            writer.append("metrics", step, split="train", values={"losses/total": 1 / (step + 1)})
    run.record()  # a new recorder, too
    assert [step for step, _ in run.curve("a", "train/losses/total")] == list(range(1, 151))
    assert run.runs()["a"].data.tags["kdr.rewound"] == "to step 100"


def test_a_restart_never_doubles_a_point(make_run: Any) -> None:
    run = make_run()
    trial = run.add_trial("a", CONFIG)
    for stop in (5, 10, 15):
        run.log(trial, range(stop - 4, stop + 1))
        run.evaluate(trial, stop, **{"metrics/accuracy": stop / 100})
        recorder = run.recorder()
        recorder.poll()
        run.record()
    assert [step for step, _ in run.curve("a", "train/losses/total")] == list(range(1, 16))
    assert run.curve("a", "test/metrics/accuracy") == [(5, 0.05), (10, 0.1), (15, 0.15)]
    assert len(run.runs()) == 2


def test_two_recorders_at_once_write_every_point_once(make_run: Any) -> None:
    """`kdr eval` records beside a driver that is at work."""
    run = make_run()
    trial = run.add_trial("a", CONFIG)
    first, second = run.recorder(), run.recorder(is_driver=False)
    for step in range(1, 6):
        run.log(trial, range(step, step + 1))
        first.poll()
        second.poll()
    second.close()
    assert run.runs()["a"].info.status == "RUNNING"
    first.close(DONE)
    assert [step for step, _ in run.curve("a", "train/losses/total")] == list(range(1, 6))


def test_an_evaluation_done_again_is_the_latest(make_run: Any) -> None:
    run = make_run()
    trial = run.add_trial("a", CONFIG)
    run.evaluate(trial, 5, **{"metrics/accuracy": 0.5})
    recorder = run.recorder()
    run.evaluate(trial, 5, again=True, **{"metrics/accuracy": 0.6})
    recorder.close()
    run.record()
    assert run.curve("a", "test/metrics/accuracy") == [(5, 0.5), (5, 0.6)]
    assert run.runs()["a"].data.metrics["test/metrics/accuracy"] == 0.6
    assert run.runs()["a"].data.tags["kdr.evaluated_again"] == "test at step 5"


def test_a_name_that_was_deleted_is_not_used_again(make_run: Any) -> None:
    run = make_run()
    trial = run.add_trial("a", CONFIG)
    run.log(trial, range(1, 3))
    run.record()
    run.client.delete_experiment(run.runs()["a"].info.experiment_id)
    run.record()
    assert [step for step, _ in run.curve("a", "train/losses/total")] == [1, 2]


def test_a_run_that_was_deleted_is_left_out_and_the_others_go_on(make_run: Any) -> None:
    run = make_run()
    trials = [run.add_trial(name, CONFIG) for name in ("a", "b")]
    recorder = run.recorder()
    run.client.delete_run(run.runs()["a"].info.run_id)
    for trial in trials:
        run.log(trial, range(1, 3))
    recorder.close()
    assert [step for step, _ in run.curve("b", "train/losses/total")] == [1, 2]
    assert len([warning for warning in run.warnings if "was deleted" in warning]) == 1


def test_a_store_that_is_down_costs_nothing(make_run: Any, tmp_path: Path, store: Store) -> None:
    """The store's folder can't be made at first; all of it is written once it can."""
    root = tmp_path / "down"
    root.write_text("a file where the folder should be")
    late = Store.at(root, environ={})
    run = make_run(store=late)
    trial = run.add_trial("a", CONFIG)
    recorder = run.recorder(patience_s=0.0)
    for step in range(1, 4):
        run.log(trial, range(step, step + 1))
        recorder.poll()
    assert len(run.warnings) == 1
    recorder.close()
    assert "kdr record" in run.warnings[-1]
    root.unlink()
    root.mkdir()
    shutil.copy(Path(store.root) / "mlflow.db", root / "mlflow.db")  # making one takes seconds
    recorder.close(DONE)
    run.client = late.open()
    assert [step for step, _ in run.curve("a", "train/losses/total")] == [1, 2, 3]
    assert run.warnings[-1] == "MLflow can be written again; nothing was lost."
