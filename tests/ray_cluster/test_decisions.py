"""When a trial is reported to whoever decides about it; without Ray."""

import pytest

from kauldron_core import rundir
from ray_cluster.workers.decisions import Decisions
from ray_cluster.workers.host_worker import ENDINGS, HostWorker
from ray_cluster.workers.jax_process import ProcessSettings
from tests.ray_cluster import tiny

VAL = "val/metrics/accuracy"


def test_a_step_is_decided_at_where_the_metric_is_measured_and_once():
    """F03: no decision at step 10 by the value of step 0."""
    decisions = Decisions(VAL)
    decisions.settled(0, {VAL: 0.1})
    assert decisions.take() == {VAL: 0.1, "step": 0}
    decisions.settled(7, {"train/losses/total": 1.0})
    assert not decisions.is_due
    decisions.settled(10, {VAL: 0.9, "train/losses/total": 0.5})
    assert decisions.take() == {VAL: 0.9, "train/losses/total": 0.5, "step": 10}
    decisions.settled(10, {VAL: 0.9})  # It was killed, and began again at the checkpoint of this step.
    assert not decisions.is_due
    assert decisions.take() == {}


@pytest.mark.parametrize("order", ["settled first", "saved first"])
def test_states_are_exchanged_where_one_is_saved_and_measured(order):
    """F03: population based training takes the value of the very state that it passes on."""
    decisions = Decisions(VAL, at_checkpoints=True)
    decisions.settled(5, {VAL: 0.5})
    told = [lambda: decisions.settled(10, {VAL: 0.6}), lambda: decisions.saved(10)]
    for tell in told if order == "settled first" else reversed(told):
        assert not decisions.is_due
        tell()
    decisions.settled(11, {VAL: 0.7})
    assert decisions.take() == {VAL: 0.6, "step": 10}
    decisions.saved(20)
    assert not decisions.is_due


def test_a_trial_waits_after_each_step_until_it_is_decided_about(tmp_path):
    """F03: metrics every 5 steps and an evaluation every 10 come together, and the next step waits."""
    config = tiny.config()
    config.evals = {
        "val": tiny.node(
            "evals.Evaluator",
            run=tiny.node("evals.EveryNSteps", n=10),
            ds=tiny.node("data.InMemoryPipeline", loader=tiny.load_test, batch_size=8, shuffle=False),
        )
    }
    run = rundir.RunDir.create(tmp_path / "run", {})
    planned = tiny.planned(0, config)
    worker = HostWorker(ProcessSettings(run_dir=str(run.path), probe=rundir.write_probe(run), trust=("tests",)))
    worker.warm()
    worker.start(run.trial(planned.name).create(planned.config_json), in_lockstep=True)
    records = []
    while not records or records[-1]["kind"] not in ENDINGS:
        records += worker.poll(60, at_once=True)
        steps = [record["step"] for record in records if record["kind"] in ("logged", "evaluated")]
        settled = [record["step"] for record in records if record["kind"] == "settled"]
        if records[-1]["kind"] == "settled":
            assert max(steps) == settled[-1]
    at_ten = next(record for record in records if record["kind"] == "settled" and record["step"] == 10)
    (evaluated,) = [r["values"] for r in records if r["kind"] == "evaluated" and r["step"] == 10]
    assert at_ten["values"].items() >= {f"val/{name}": value for name, value in evaluated.items()}.items()
    assert "train/losses/total" in at_ten["values"]
    assert settled == [0, 1, 5, 10, 15, 20, 25]
