"""A cluster of several nodes, one of which is lost with a running trial. The driver is a process of its own."""

import os
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from kauldron_core import kd, rundir
from tests.ray_cluster import driver_process, tiny

pytestmark = [pytest.mark.cluster, pytest.mark.soak, pytest.mark.timeout(400)]

_HEALTH = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}


@pytest.fixture
def cluster():
    """Two nodes with one CPU each, on this machine."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "include_dashboard": False, "_system_config": _HEALTH},
    )
    yield cluster
    cluster.shutdown()


def test_trials_of_a_lost_node_go_on_elsewhere(cluster, run_dir):
    second = cluster.add_node(num_cpus=1, include_dashboard=False)
    run = rundir.RunDir(run_dir)
    command = [sys.executable, "-m", "tests.ray_cluster.driver_process", str(run_dir), cluster.address]
    driver = subprocess.Popen(command, env=dict(os.environ), start_new_session=True)
    try:
        saved = [run.trial(name).checkpoints / f"ckpt_{tiny.SAVE_EVERY}" for name in ("0000", "0001")]
        deadline = time.monotonic() + 150
        while not all(folder.exists() for folder in saved):
            assert driver.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
        cluster.remove_node(second, allow_graceful=False)
        assert driver.wait(200) == 0
    finally:
        driver.kill()
        driver.wait()
    assert [trial.status() for trial in run.trials()] == ["done"] * len(driver_process.plan(run_dir).trials)
    rows = [rundir.read_eval_results(trial) for trial in run.trials()]
    assert all(sorted(records) == [("test", step) for step in tiny.STEPS] for records in rows)
    attempts = [len(rundir.list_segments(trial.events)) for trial in run.trials()]
    assert max(attempts) > 1
    # A trial that was resumed came to what it comes to undisturbed.
    resumed = attempts.index(max(attempts))
    undisturbed = rundir.RunDir.create(run.path.parent / "undisturbed").trial("0000")
    undisturbed.create(tiny.trial(resumed, slow_s=0.1).config_json)
    kd.konfig.trust("tests")
    list(kd.train.load_trial(undisturbed).iter_train())
    first, second = (_leaves(trial) for trial in (run.trials()[resumed], undisturbed))
    assert all(np.array_equal(one, other) for one, other in zip(first, second, strict=True))


def _leaves(trial):
    _, state = kd.load_run(trial, step=tiny.NUM_STEPS)
    return jax.tree.leaves(jax.tree.map(np.asarray, state.params))
