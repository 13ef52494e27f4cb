"""Stop rules: what is one, and where it ends a trial."""

import pytest

from kauldron_core import rundir
from kauldron_core.errors import ConfigError
from ray_cluster import Sweep
from ray_cluster.driver import layout
from ray_cluster.workers.host_worker import HostWorker
from ray_cluster.workers.jax_process import ProcessSettings
from ray_cluster.workers.stopping import StopRule, read_rules
from tests.ray_cluster import tiny

LOSS = "train/losses/total"


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        (f"{LOSS}<=0.01", [StopRule(LOSS, "<=", 0.01)]),
        (f" {LOSS} <= 1e-2, test/metrics/accuracy>=0.99", [(LOSS, "<=", 0.01), ("test/metrics/accuracy", ">=", 0.99)]),
        ([f"{LOSS}<=-1", "a/b>=2"], [(LOSS, "<=", -1.0), ("a/b", ">=", 2.0)]),
        ("", []),
    ],
)
def test_rules_are_read(text, rules):
    assert read_rules(text) == tuple(StopRule(*rule) if isinstance(rule, tuple) else rule for rule in rules)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (LOSS, "run.stop: 'train/losses/total' is no rule. Write METRIC<=NUMBER or METRIC>=NUMBER"),
        (f"{LOSS}<0.1", "is no rule"),
        (f"0.1>={LOSS}", "'train/losses/total' in '0.1>=train/losses/total' is not a finite number"),
        (f"{LOSS}<=nan", "is not a finite number"),
        ("train/perf/steps_per_s<=3", "depends on the machine"),
    ],
)
def test_what_is_no_rule_is_refused_in_one_line(text, fault):
    with pytest.raises(ConfigError, match=fault) as caught:
        Sweep(stop=text)
    assert "\n" not in str(caught.value)


def test_a_trial_that_a_rule_has_ended_is_done_and_not_gone_on_with(tmp_path):
    plan = tiny.plan(tmp_path / "run", tiny.trial(0), tiny.trial(1), stop=f"{LOSS}<=0.7")
    run = layout.lay_out(plan)
    layout.write_trials(plan, run)
    trial = run.trial("0000")
    worker = HostWorker(ProcessSettings(run_dir=str(run.path), trust=plan.trust, stop=plan.sweep.stop_rules))
    worker.warm()
    ending = {}
    # The second time as if the process had been killed after the checkpoint of its end.
    for _ in range(2):
        worker.start(trial.path)
        ending = worker.poll(60)[-1]
        assert ending["status"] == "stopped"
        assert ending["reason"].startswith(f"stop rule {LOSS}<=0.7: 0.")
        assert ending["reason"].endswith("at step 15")
    logged = [event for event in rundir.read_events(trial.events) if event["kind"] == "metrics"]
    assert [event["step"] for event in logged if event["values"]["losses/total"] <= 0.7] == [15]
    assert (trial.checkpoints / "ckpt_15").is_dir()

    rundir.write_status(trial, "stopped", reason=ending["reason"])
    rundir.write_status(run.trial("0001"), "stopped", reason="kdr stop by somebody")
    for stop, statuses in ((f"{LOSS}<=0.7", ["stopped", "queued"]), (f"{LOSS}<=0.1", ["queued", "queued"])):
        again = tiny.plan(run.path, *plan.trials, stop=stop)
        layout.write_trials(again.__class__(**{**vars(again), "retry_failed": True}), run)
        assert [one.status() for one in run.trials()] == statuses
