"""Signals in the driver: the first one asks trials to save, the second one stops now."""

import os
import signal

import pytest

from kauldron_core import rundir
from kauldron_core.errors import RunFailed
from ray_cluster import control
from ray_cluster.interrupts import Interrupts


@pytest.fixture
def run(tmp_path):
    return rundir.RunDir.create(tmp_path / "run", {})


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_the_first_signal_asks_and_the_second_one_stops(run, number, raised):
    before = signal.getsignal(number)
    with Interrupts(run) as interrupts:
        os.kill(os.getpid(), number)
        assert interrupts.is_requested()
        assert control.is_stop_requested(run)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
        with pytest.raises(raised):
            interrupts.raise_if_requested()
    assert signal.getsignal(number) == before


def test_without_a_signal_nothing_is_raised(run):
    with Interrupts(run) as interrupts:
        interrupts.raise_if_requested()
    assert not control.is_stop_requested(run)


def test_a_sweep_that_can_run_nothing_fails(run):
    with Interrupts(run) as interrupts:
        interrupts.give_up("JAX runs on cpu")
        with pytest.raises(RunFailed, match="JAX runs on cpu"):
            interrupts.raise_if_requested()
    control.clear(run)
    assert not control.is_stop_requested(run)
