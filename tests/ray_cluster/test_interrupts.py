"""Signals in the driver: the first one asks trials to save, the second one stops now."""

import os
import signal

import pytest

from kauldron_core import rundir
from kauldron_core.errors import RunFailed
from ray_cluster.driver import control
from ray_cluster.driver.interrupts import Interrupts


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


def test_a_time_budget_that_is_used_up_ends_the_sweep_like_a_stop(run):
    with Interrupts(run, time_budget_s=1e9) as interrupts:
        assert not interrupts.is_requested()
    with Interrupts(run, time_budget_s=-1.0) as interrupts:
        assert interrupts.is_requested()
        assert control.stop_reason(run) == "the time budget is used up"
        with pytest.raises(SystemExit):
            interrupts.raise_if_requested()


def test_a_stop_from_another_terminal_is_seen(run):
    with Interrupts(run) as interrupts:
        assert not interrupts.is_requested()
        control.request_trial_stop(run, "0000", reason="enough")
        assert not interrupts.is_requested()
        control.request_stop(run, reason="kdr stop")
        assert interrupts.is_requested()
    assert control.stop_reason(run, "0000") == "enough"
    assert control.stop_reason(run, "0001") is None
