"""Kills at random, of everything that a sweep consists of: the run comes to what it comes to undisturbed."""

import os
import random
import subprocess
import sys
import time

import jax
import numpy as np
import psutil
import pytest

import evaluators
from kauldron_core import kd, rundir
from tests.ray_cluster import driver_process, tiny
from tests.ray_cluster.conftest import EVALUATOR, HOST_WORKER, SUPERVISOR, actor_processes

pytestmark = [pytest.mark.cluster, pytest.mark.soak, pytest.mark.timeout(3600)]

KILLS, SEED = int(os.environ.get("KILLS", "6")), int(os.environ.get("SEED", "0"))


class Driver:
    """A driver process that is started again when it was killed."""

    def __init__(self, run_dir, address):
        self._command = [sys.executable, "-m", "tests.ray_cluster.driver_process", str(run_dir), address, "1000"]
        self.starts = 0
        self.start()

    def start(self):
        self.process = subprocess.Popen(self._command, start_new_session=True)
        self.starts += 1

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.start()


def _leaves(trial):
    _, state = kd.load_run(trial, step=tiny.NUM_STEPS)
    return jax.tree.leaves(jax.tree.map(np.asarray, state.params))


@pytest.mark.usefixtures("no_leaks")
def test_random_kills_change_nothing(run_dir, ray_session):
    rng, run = random.Random(SEED), rundir.RunDir(run_dir)
    driver, killed = Driver(run_dir, ray_session), []
    try:
        while len(killed) < KILLS and driver.process.poll() is None:
            time.sleep(rng.uniform(1.0, 12.0))
            what = rng.choice(["driver", HOST_WORKER, SUPERVISOR, EVALUATOR])
            if what == "driver":
                driver.kill()
            else:
                found = actor_processes(what)
                if not found:
                    continue
                psutil.Process(rng.choice(found).pid).kill()
            killed.append(what)
        assert driver.process.wait(900) == 0
    finally:
        driver.process.kill()
        driver.process.wait()
    print(f"{len(killed)} kills: {', '.join(killed)}; {driver.starts} drivers")
    _check_undisturbed(run)


@pytest.mark.usefixtures("no_leaks")
def test_a_driver_that_is_killed_at_five_moments_changes_nothing(run_dir, ray_session):
    run = rundir.RunDir(run_dir)

    def are_trials(*statuses):
        return len(run.trials()) == 3 and all(trial.status() in statuses for trial in run.trials())

    moments = {
        "laid out": run.exists,
        "a worker at work": lambda: any(trial.status() == "running" for trial in run.trials()),
        "a checkpoint": lambda: any(evaluators.committed_steps(trial.checkpoints) for trial in run.trials()),
        "a trial done": lambda: any(trial.status() == "done" for trial in run.trials()),
        "all trained, not all evaluated": lambda: are_trials("done"),
    }
    driver, hit = Driver(run_dir, ray_session), []
    try:
        for name, is_now in moments.items():
            while not is_now() and driver.process.poll() is None:
                time.sleep(0.02)
            if driver.process.poll() is None:
                driver.kill()
                hit.append(name)
        assert driver.process.wait(900) == 0
    finally:
        driver.process.kill()
        driver.process.wait()
    print(f"killed at: {', '.join(hit)}")
    assert len(hit) >= 4
    _check_undisturbed(run)


def _check_undisturbed(run):
    """Looks that every trial came to what it comes to alone, and is recorded once."""
    kd.konfig.trust("tests")
    for planned in driver_process.plan(run.path).trials:
        trial = run.trial(planned.name)
        assert trial.status() == "done"
        steps = [event["step"] for event in rundir.read_events(trial.events) if event["kind"] == "metrics"]
        assert steps == sorted(set(steps))
        assert sorted(rundir.read_eval_results(trial)) == [("test", step) for step in tiny.STEPS]
        alone = rundir.RunDir(run.path.parent / f"{run.name}-alone").trial(planned.name).create(planned.config_json)
        list(kd.train.load_trial(alone).iter_train())
        assert all(np.array_equal(one, other) for one, other in zip(_leaves(trial), _leaves(alone), strict=True))
