"""Worker processes: the batches of one process, states that know no worker count, and an end with the parent."""

import dataclasses
import os
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from kauldron_core import data

pytestmark = pytest.mark.process


def add_process(element):
    return {**element, "process": os.getpid()}


def source(count=46, **settings):
    records = [{"id": number} for number in range(count)]
    defaults = {"batch_size": 8, "num_epochs": 2, "shuffle": True, "seed": 1, "num_workers": 2}
    return data.py.DataSource(records, **{**defaults, **settings})


def ids(ds):
    return [batch["id"].tolist() for batch in ds]


def test_workers_give_the_same_batches_and_states_for_any_count():
    """D02, D04, D16: workers give the same batches and states for any count."""
    jax.block_until_ready(jax.numpy.ones(3) + 1)  # Starts JAX: workers must not be forked from here on.
    ds = source(batch_drop_remainder="pad", transforms=[add_process])
    plain = dataclasses.replace(ds, num_workers=0)
    iterator = iter(ds)
    batches = [next(iterator) for _ in range(5)]
    state = iterator.get_state()
    batches += list(iterator)
    assert [batch["id"].tolist() for batch in batches] == ids(plain)
    assert len(batches) == len(ds) == 12
    assert os.getpid() not in np.concatenate([batch["process"] for batch in batches])
    for workers in (0, 3):
        resumed = iter(dataclasses.replace(ds, num_workers=workers))
        resumed.set_state(state)
        assert [batch["id"].tolist() for batch in resumed] == ids(plain)[5:]


def test_drop_with_three_workers():
    """D08: drop with three workers."""
    ds = source(num_workers=3, num_epochs=1)
    assert len(ds) == len(ids(ds)) == 5


def test_an_iterator_closed_early_ends_its_workers():
    iterator = iter(source(num_epochs=None, transforms=[add_process]))
    workers = {next(iterator)["process"][0] for _ in range(4)}
    iterator.close()
    assert len(workers) == 2
    assert not any(_is_alive(int(worker)) for worker in workers)


def fail_on_nine(element):
    if element["id"] == 9:
        raise ValueError("nine is not wanted")
    return element


def test_an_error_in_a_worker_reaches_the_parent():
    iterator = iter(source(num_workers=1, shuffle=False, transforms=[fail_on_nine]))
    next(iterator)
    with pytest.raises(ValueError, match="nine is not wanted"):
        next(iterator)
    iterator.close()


_ENDLESS = """
import sys
from kauldron_core import data
from tests_workers_entry import add_process
if __name__ == "__main__":
    ds = data.py.DataSource([{"id": 0}] * 8, batch_size=4, num_workers=2, transforms=[add_process])
    iterator = iter(ds)
    print(*{int(next(iterator)["process"][0]) for _ in range(4)}, flush=True)
    sys.stdin.read()
"""


def test_workers_end_with_a_parent_that_was_killed(tmp_path):
    (tmp_path / "tests_workers_entry.py").write_text(
        "import os\ndef add_process(element):\n    return {**element, 'process': os.getpid()}\n"
    )
    script = tmp_path / "endless.py"
    script.write_text(_ENDLESS)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.getcwd()}"}
    parent = subprocess.Popen(
        [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        workers = [int(word) for word in parent.stdout.readline().split()]
        assert len(workers) == 2 and all(_is_alive(worker) for worker in workers)
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.communicate()
    deadline = time.monotonic() + 20
    while any(_is_alive(worker) for worker in workers):
        assert time.monotonic() < deadline, "workers outlive their parent"
        time.sleep(0.1)


def _is_alive(process):
    try:
        with open(f"/proc/{process}/stat") as stat:
            return stat.read().split()[2] != "Z"
    except FileNotFoundError:
        return False
