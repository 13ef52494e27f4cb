"""A driver of its own, for tests that end it: `python -m tests.ray_cluster.driver_process RUN_DIR ADDRESS`."""

import sys

import ray_cluster
from tests.ray_cluster import tiny


def plan(run_dir):
    """Returns three slow trials; two of them can run at a time."""
    return tiny.plan(run_dir, *(tiny.trial(index, slow_s=0.1) for index in range(3)))


if __name__ == "__main__":
    try:
        sys.exit(0 if ray_cluster.run(plan(sys.argv[1]), address=sys.argv[2]).ok else 1)
    except KeyboardInterrupt:
        sys.exit(130)
