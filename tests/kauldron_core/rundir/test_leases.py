"""Leases and the run lock within one process; races between processes are in test_kill.py."""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

import pytest

from kauldron_core import rundir
from kauldron_core.errors import ConfigError
from kauldron_core.rundir import leases


def make_stale(lease: rundir.Lease) -> None:
    """Moves the last heartbeat two minutes into the past."""
    file = lease.path / f"{lease.generation:08d}"
    os.utime(file, (time.time() - 120, time.time() - 120))


def pretend_other_host(lease_path: pathlib.Path, **changes: object) -> None:
    """Rewrites the claim in force as if a process of another machine had made it."""
    file = max(lease_path.glob("0*"))
    identity = {**json.loads(file.read_text()), "machine": "elsewhere", "host": "node7", "pid": 4242, **changes}
    file.write_text(json.dumps(identity))


def test_one_holder_at_a_time(tmp_path: pathlib.Path):
    first = rundir.Lease.acquire(tmp_path / "lease")
    assert first is not None
    assert rundir.Lease.acquire(tmp_path / "lease") is None
    assert rundir.Lease.is_live(tmp_path / "lease")
    first.release()
    assert not rundir.Lease.is_live(tmp_path / "lease")
    second = rundir.Lease.acquire(tmp_path / "lease")
    assert second is not None
    assert second.heartbeat()


def test_nothing_is_live_where_nobody_was(tmp_path: pathlib.Path):
    assert not rundir.Lease.is_live(tmp_path / "lease")
    assert rundir.read_holder(tmp_path / "lease") is None
    assert not (tmp_path / "lease").exists()


def test_a_lease_runs_out_without_a_heartbeat_and_lives_with_one(tmp_path: pathlib.Path):
    lease = rundir.Lease.acquire(tmp_path / "lease", ttl_s=60)
    assert lease is not None
    make_stale(lease)
    assert not rundir.Lease.is_live(tmp_path / "lease")
    assert lease.heartbeat()
    assert rundir.Lease.is_live(tmp_path / "lease")


def test_a_holder_that_wakes_up_late_does_not_disturb_its_successor(tmp_path: pathlib.Path):
    late = rundir.Lease.acquire(tmp_path / "lease")
    assert late is not None
    make_stale(late)
    successor = rundir.Lease.acquire(tmp_path / "lease")
    assert successor is not None
    assert not late.is_held()
    assert not late.heartbeat()
    assert successor.is_held()
    late.release(forget=True)
    assert successor.heartbeat()
    assert rundir.Lease.acquire(tmp_path / "lease") is None


def test_a_forgotten_lease_leaves_nothing_and_can_be_claimed_again(tmp_path: pathlib.Path):
    lease = rundir.Lease.acquire(tmp_path / "lease")
    assert lease is not None
    lease.release(forget=True)
    assert not (tmp_path / "lease").exists()
    assert not lease.heartbeat()
    again = rundir.Lease.acquire(tmp_path / "lease")
    assert again is not None
    assert again.generation == 1


def test_old_claims_are_cleaned_up(tmp_path: pathlib.Path):
    for _ in range(40):
        lease = rundir.Lease.acquire(tmp_path / "lease")
        assert lease is not None
        lease.release()
    assert len(list((tmp_path / "lease").iterdir())) < 15


def test_a_slow_claimant_of_a_number_that_was_cleaned_up_loses(tmp_path: pathlib.Path):
    path = tmp_path / "lease"
    first = rundir.Lease.acquire(path)
    assert first is not None
    seen_by_slow = rundir.read_holder(path)
    first.release()
    for _ in range(20):
        lease = rundir.Lease.acquire(path)
        assert lease is not None
        lease.release()
    held = rundir.Lease.acquire(path)
    assert held is not None
    assert rundir.Lease.claim(path, after=seen_by_slow) is None
    assert held.heartbeat()


def test_the_note_and_the_holder_are_told(tmp_path: pathlib.Path):
    lease = rundir.Lease.acquire(tmp_path / "lease", note="evaluating 200")
    holder = rundir.read_holder(tmp_path / "lease")
    assert lease is not None
    assert holder is not None
    assert holder.note == "evaluating 200"
    assert str(holder) == f"{os.uname().nodename} pid {os.getpid()}"
    assert holder.is_process_alive() is True
    assert 0 <= holder.age_s < 30


def test_a_process_of_another_machine_is_judged_by_its_heartbeat_alone(tmp_path: pathlib.Path):
    lease = rundir.Lease.acquire(tmp_path / "lease")
    assert lease is not None
    pretend_other_host(lease.path, pid=2**22 + 1)  # No such process here.
    lease.heartbeat()
    holder = rundir.read_holder(tmp_path / "lease")
    assert holder is not None
    assert holder.is_process_alive() is None
    assert holder.is_live()
    make_stale(lease)
    assert not rundir.Lease.is_live(tmp_path / "lease")


def test_a_reused_process_number_is_not_the_holder(tmp_path: pathlib.Path):
    lease = rundir.Lease.acquire(tmp_path / "lease")
    assert lease is not None
    identity = json.loads((lease.path / "00000001").read_text())
    (lease.path / "00000001").write_text(json.dumps({**identity, "process_start": "17"}))
    assert not rundir.Lease.is_live(tmp_path / "lease")


@pytest.mark.parametrize("text", ["", "\x00\x00", "[1, 2]", "{", '{"pid": "x"}'])
def test_a_claim_that_a_power_cut_emptied_runs_out_by_its_age(tmp_path: pathlib.Path, text: str):
    lease = rundir.Lease.acquire(tmp_path / "lease")
    assert lease is not None
    (lease.path / "00000001").write_text(text)
    assert rundir.Lease.acquire(tmp_path / "lease") is None
    make_stale(lease)
    assert rundir.Lease.acquire(tmp_path / "lease") is not None


@pytest.mark.process
def test_a_dead_holder_on_this_host_is_found_out_at_once(tmp_path: pathlib.Path):
    code = f"from kauldron_core import rundir; rundir.Lease.acquire({str(tmp_path / 'lease')!r}, ttl_s=1e6)"
    env = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[3])}
    child = subprocess.Popen([sys.executable, "-c", code], env=env)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # Ended, and still in the process table.
    assert not rundir.Lease.is_live(tmp_path / "lease"), "a process that nobody has waited for is dead too"
    child.wait()
    assert not rundir.Lease.is_live(tmp_path / "lease")
    assert rundir.Lease.acquire(tmp_path / "lease") is not None


def test_a_second_driver_is_told_who_holds_the_run(tmp_path: pathlib.Path):
    run = rundir.RunDir.create(tmp_path / "run")
    with run.lock(), pytest.raises(ConfigError) as caught, run.lock():
        pass
    message = str(caught.value)
    assert "\n" not in message
    assert f"in use by another driver ({os.uname().nodename} pid {os.getpid()}, last sign of life 0 s ago)" in message
    with run.lock() as lock:
        assert lock.is_held()
    assert not lock.is_held()


def test_a_suspended_driver_on_this_host_is_not_taken_over(tmp_path: pathlib.Path):
    run = rundir.RunDir.create(tmp_path / "run")
    with run.lock():
        os.utime(run.path / ".lock" / "00000001", (time.time() - 900, time.time() - 900))
        with pytest.raises(ConfigError, match="last sign of life 900 s ago"), run.lock():
            pass


def test_a_driver_of_another_host_is_taken_over_once_it_is_silent(tmp_path: pathlib.Path):
    run = rundir.RunDir.create(tmp_path / "run")
    with run.lock() as first:
        pretend_other_host(run.path / ".lock")
        with pytest.raises(ConfigError, match="node7 pid 4242"), run.lock():
            pass
        os.utime(run.path / ".lock" / "00000001", (time.time() - 900, time.time() - 900))
        with run.lock() as second:
            assert second.is_held()
            assert not first.is_held()


def test_the_lock_beats_by_itself(tmp_path: pathlib.Path):
    with rundir.RunLock(tmp_path / "lock", ttl_s=0.3):
        os.utime(tmp_path / "lock" / "00000001", (1, 1))
        deadline = time.monotonic() + 10
        while (tmp_path / "lock" / "00000001").stat().st_mtime == 1 and time.monotonic() < deadline:
            time.sleep(0.02)
        holder = leases.read_holder(tmp_path / "lock")
        assert holder is not None
        assert holder.age_s < 10


def date_ahead(lease_path: pathlib.Path, seconds: float = 3600.0) -> None:
    file = max(lease_path.glob("0*"))
    os.utime(file, (time.time() + seconds, time.time() + seconds))


def test_a_driver_that_is_gone_and_whose_clock_was_ahead_is_taken_over(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
):
    """F30: lock of another host whose heartbeat is an hour ahead was "0 s ago" and refused for ever."""
    lease = rundir.Lease.acquire(tmp_path / "lock", 0.4)
    assert lease is not None
    pretend_other_host(tmp_path / "lock")
    date_ahead(tmp_path / "lock")
    assert not rundir.is_locked(tmp_path / "lock", ttl_s=0.4), "also for `kdr rm`, which holds no lock itself"
    with rundir.RunLock(tmp_path / "lock", ttl_s=0.4) as lock:
        assert lock.is_held()
    assert "the lock of node7 pid 4242 is dated 60 min ahead: a clock is wrong" in caplog.text


def test_a_driver_that_lives_and_whose_clock_is_ahead_is_told_with_its_clock(tmp_path: pathlib.Path):
    """F30: it beats, so it is left alone, and what is wrong is said."""
    lease = rundir.Lease.acquire(tmp_path / "lock", 0.6)
    assert lease is not None
    pretend_other_host(tmp_path / "lock")
    is_over = threading.Event()

    def beat() -> None:
        for number in itertools.count():
            date_ahead(tmp_path / "lock", 3600 + number)
            if is_over.wait(0.02):
                return

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        time.sleep(0.1)
        assert rundir.is_locked(tmp_path / "lock", ttl_s=0.6)
        message = r"in use by another driver \(node7 pid 4242.*The clock of node7 is 6\d min ahead; set it"
        with pytest.raises(ConfigError, match=message), rundir.RunLock(tmp_path / "lock", ttl_s=0.6):
            pass
    finally:
        is_over.set()
        thread.join()


def test_a_lease_that_is_dated_ahead_runs_out_like_any_other(tmp_path: pathlib.Path):
    """F30: the same for a lease on work, whose holder is gone."""
    lease = rundir.Lease.acquire(tmp_path / "lease", 0.3)
    assert lease is not None
    pretend_other_host(tmp_path / "lease")
    date_ahead(tmp_path / "lease")
    assert rundir.Lease.is_live(tmp_path / "lease")
    deadline = time.monotonic() + 10
    while rundir.Lease.is_live(tmp_path / "lease") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert rundir.Lease.acquire(tmp_path / "lease", 0.3) is not None
