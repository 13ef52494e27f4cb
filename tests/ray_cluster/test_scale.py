"""Many trials through one driver: what it holds does not grow with them."""

import psutil
import pytest

import ray_cluster
from kauldron_core import rundir
from tests.ray_cluster import tiny

pytestmark = [pytest.mark.cluster, pytest.mark.soak, pytest.mark.timeout(600), pytest.mark.usefixtures("ray_session")]


class Memory:
    """A sidecar that notes the driver's memory each 50 trials."""

    def __init__(self):
        self.megabytes = []

    def start(self, run_dir):
        self._run = run_dir

    def poll(self):
        ended = sum(trial.status() in rundir.TERMINAL for trial in self._run.trials())
        if ended // 50 > len(self.megabytes) - 1:
            self.megabytes.append(psutil.Process().memory_info().rss / 1e6)

    def close(self, results):
        self.poll()


def test_two_hundred_trials_leave_the_driver_as_small_as_fifty(run_dir):
    """U16: two hundred trials leave the driver as small as fifty."""
    empty = tiny.config(num_steps=1)
    empty.checkpointer = None
    empty.evals = {}
    trials = []
    for index in range(200):
        empty.seed = index
        trials.append(tiny.planned(index, empty))
    memory = Memory()
    results = ray_cluster.run(tiny.plan(run_dir, *trials, pools=()), sidecars=[memory])
    assert {row.status for row in results.rows} == {"done"}
    print(f"driver MB at 0, 50, ... trials: {[round(one) for one in memory.megabytes]}")
    # 150 trials more: less than 0.2 MB each.
    assert memory.megabytes[-1] - memory.megabytes[1] < 30
