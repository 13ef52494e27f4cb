"""A trainer killed at any moment while it saves and removes: the newest checkpoint is whole, nothing piles up."""

from __future__ import annotations

import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import jax.numpy as jnp
import numpy as np
import pytest

from kauldron_core import ckpts

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

SAVES_AND_REMOVES = """
import sys
import jax.numpy as jnp
from kauldron_core import ckpts

checkpointer = ckpts.Checkpointer(workdir=sys.argv[1], max_to_keep=2, keep_every_n_steps=10)
state = {f"a{i}": jnp.zeros((50, 50)) for i in range(20)}
first = (checkpointer.latest_step or 0) + 1
if first > 1:
    found = checkpointer.load(state)
    assert found.step == first - 1 and not found.damaged_steps, (found.step, found.damaged_steps)
print("ready", flush=True)
for step in range(first, 10_000):
    checkpointer.save({name: leaf + step for name, leaf in state.items()}, {"next": step}, step=step)
    checkpointer.wait()
    checkpointer.finished()
"""


def test_every_kill_leaves_whole_checkpoints(tmp_path: pathlib.Path) -> None:
    kills = int(os.environ.get("KILLS", "20"))
    rng = random.Random(int(os.environ.get("SEED", "0")))
    before = 0
    for _ in range(kills):
        command = [sys.executable, "-c", SAVES_AND_REMOVES, str(tmp_path)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0.0, 0.6))
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        folder = tmp_path / "checkpoints"
        steps = ckpts.all_steps(folder)
        if not steps:
            continue
        assert steps[-1] >= before, "a checkpoint that was there is gone"
        before = steps[-1]
        assert all(ckpts.verify(ckpts.step_path(folder, step)) == [] for step in steps)
        state = {f"a{i}": jnp.zeros((50, 50)) for i in range(20)}
        found = ckpts.load(folder, state)
        assert found.step == found.data_state["next"] == before
        assert all(np.all(leaf == before) for leaf in found.state.values())
        assert set(range(10, before - 2, 10)) <= set(steps), "multiples of ten stay"
        assert len([path for path in folder.iterdir() if path.name.startswith("ckpt_")]) <= before // 10 + 6
    assert before > 0
