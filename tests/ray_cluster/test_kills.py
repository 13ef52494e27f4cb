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
from tests.ray_cluster import driver_process
from tests.ray_cluster.conftest import EVALUATOR, HOST_WORKER, SUPERVISOR, actor_processes

pytestmark = [pytest.mark.cluster, pytest.mark.soak, pytest.mark.timeout(3600)]

KILLS, SEED = int(os.environ.get("KILLS", "6")), int(os.environ.get("SEED", "0"))


class Driver:
    """A driver process that is started again when it was killed."""

    def __init__(self, run_dir, address, *options):
        words = [str(run_dir), address, "1000", *options]
        self._command = [sys.executable, "-m", "tests.ray_cluster.driver_process", *words]
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
    _, state = kd.load_run(trial)
    return jax.tree.leaves(jax.tree.map(np.asarray, state.params))


@pytest.mark.usefixtures("no_leaks")
@pytest.mark.parametrize("options", [(), ("packed",)], ids=["alone", "packed"])
def test_random_kills_change_nothing(run_dir, ray_session, options):
    rng, run = random.Random(SEED), rundir.RunDir(run_dir)
    driver, killed = Driver(run_dir, ray_session, *options), []
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
    _check_undisturbed(run, driver_process.packed_plan(run_dir) if options else driver_process.plan(run_dir))


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
    _check_undisturbed(run, driver_process.plan(run_dir))


def _check_undisturbed(run, plan):
    """Looks that every trial came to what it comes to undisturbed, and is recorded once."""
    kd.konfig.trust("tests")
    undisturbed = _train(plan, rundir.RunDir(run.path.parent / f"{run.name}-undisturbed"))
    for planned in plan.trials:
        trial = run.trial(planned.name)
        assert trial.status() == "done"
        steps = [event["step"] for event in rundir.read_events(trial.events) if event["kind"] == "metrics"]
        assert steps == sorted(set(steps))
        assert sorted(rundir.read_eval_results(trial)) == [("test", step) for step in _saved_steps(planned)]
        pairs = zip(_leaves(trial), _leaves(undisturbed.trial(planned.name)), strict=True)
        assert all(np.array_equal(one, other) for one, other in pairs)


def _train(plan, run):
    """Trains the trials of a plan in this process, as the workers do."""
    for planned in plan.trials:
        run.trial(planned.name).create(planned.config_json)
    packed = {name for pack in plan.packs for name in pack.trials}
    for pack in plan.packs:
        configs = [kd.train.load_config(run.trial(name)) for name in pack.trials]
        kd.packs.train(configs, kd.packs.Pack.from_json(pack.content["pack"]), folder=run.pack(pack.name).path)
    for planned in plan.trials:
        if planned.name not in packed:
            list(kd.train.load_trial(run.trial(planned.name)).iter_train())
    return run


def _saved_steps(planned):
    config = kd.konfig.from_json(planned.config_json)
    every = config.checkpointer.save_interval_steps
    return list(range(every, config.num_train_steps + 1, every))
