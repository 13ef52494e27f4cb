"""Sidecars run beside a sweep and can't hurt it."""

import logging
import threading

from kauldron_core import rundir
from ray_cluster import Results
from ray_cluster.driver.sidecars import SidecarThreads

RESULTS = Results(run_dir="runs/a", rows=())


class Recorder:
    """Remembers its calls and in which thread they came."""

    def __init__(self, fails_in: str = ""):
        self.calls: list[str] = []
        self.threads: set[int] = set()
        self.polled = threading.Event()
        self._fails_in = fails_in

    def start(self, run_dir):
        self._note("start")

    def poll(self):
        self.polled.set()
        self._note("poll")

    def close(self, results):
        assert results is RESULTS
        self._note("close")

    def _note(self, call: str) -> None:
        self.calls.append(call)
        self.threads.add(threading.get_ident())
        if call == self._fails_in:
            raise OSError("the server is down")


def _watch(monkeypatch, tmp_path, *sidecars: Recorder, wait_for: list[Recorder]) -> SidecarThreads:
    monkeypatch.setattr("ray_cluster.driver.sidecars._POLL_S", 0.01)
    threads = SidecarThreads(sidecars, rundir.RunDir(tmp_path))
    threads.start()
    assert all(sidecar.polled.wait(10) for sidecar in wait_for)
    threads.close(RESULTS)
    return threads


def test_each_sidecar_has_one_thread_of_its_own(monkeypatch, tmp_path):
    one, two = Recorder(), Recorder()
    threads = _watch(monkeypatch, tmp_path, one, two, wait_for=[one, two])
    assert one.calls[0] == "start" and one.calls[-1] == "close"
    assert len(one.threads) == len(two.threads) == 1
    assert one.threads != two.threads
    assert not one.threads & {threading.get_ident()}
    assert threads.errors == []


def test_a_failing_sidecar_is_warned_of_and_the_others_go_on(monkeypatch, tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    good, bad, worse = Recorder(), Recorder("poll"), Recorder("start")
    threads = _watch(monkeypatch, tmp_path, good, bad, worse, wait_for=[good, bad])
    assert good.calls[-1] == "close"
    assert bad.calls == ["start", "poll", "close"]
    assert worse.calls == ["start"]
    assert sorted(threads.errors) == ["Recorder: OSError: the server is down"] * 2
    assert "the server is down" in caplog.text
