"""A cluster whose resources are all taken: the sweep waits, says for what, and starts when there is room."""

import logging

import pytest

import ray_cluster
from tests.ray_cluster import tiny

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("ray_session", "no_leaks")]


class Holder(logging.Handler):
    """Holds all CPUs until the sweep has said that it waits."""

    def __init__(self):
        import ray

        super().__init__()
        self._group = ray.util.placement_group([{"CPU": 2}])
        ray.get(self._group.ready())
        self.said = []

    def emit(self, record):
        import ray

        self.said.append(record.getMessage())
        ray.util.remove_placement_group(self._group)


def test_a_busy_cluster_is_waited_for_and_named(run_dir, monkeypatch):
    """U14: a busy cluster is waited for and named."""
    from ray_cluster.driver import tuning

    monkeypatch.setattr(tuning, "_PATIENCE_S", 1.0)
    holder = Holder()
    logger = logging.getLogger("ray_cluster.driver.tuning")
    logger.addHandler(holder)
    try:
        results = ray_cluster.run(tiny.plan(run_dir, tiny.trial(0), pools=()))
    finally:
        logger.removeHandler(holder)
    assert holder.said == ["waiting for CPU 1 on one node, for a trial. Free on the cluster now: CPU 0 of 2"]
    assert results.ok
