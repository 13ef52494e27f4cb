"""A driver of its own, for tests that end it: `python -m tests.ray_cluster.driver_process RUN_DIR ADDRESS N packed`."""

import sys

import ray_cluster
from kauldron_core.errors import RunFailed
from tests.ray_cluster import tiny


def plan(run_dir, max_failures=2):
    """Returns two slow trials, which can run at a time, and one that waits for them."""
    trials = (tiny.trial(index, slow_s=slow_s) for index, slow_s in enumerate((0.12, 0.12, 0.0)))
    return tiny.plan(run_dir, *trials, max_failures=max_failures)


def packed_plan(run_dir, max_failures=2):
    """Returns three trials in a pack, and one beside it."""
    trials = [*(tiny.planned(index, tiny.long_config(seed=index)) for index in range(3)), tiny.trial(3)]
    return tiny.packed(tiny.plan(run_dir, *trials, max_failures=max_failures), size=3)


if __name__ == "__main__":
    try:
        make = packed_plan if sys.argv[4:] == ["packed"] else plan
        asked = make(sys.argv[1], *map(int, sys.argv[3:4]))
        sys.exit(0 if ray_cluster.run(asked, address=sys.argv[2]).ok else 1)
    except KeyboardInterrupt:
        sys.exit(130)
    except RunFailed as error:
        sys.exit(f"error: {error}")
