"""The JAX process of a trial, without Ray: many trials in one process, logs of their own, errors as records."""

import json
import subprocess

import pytest

from kauldron_core import kd, rundir
from kauldron_core.errors import RunFailed
from ray_cluster.workers import jax_process
from ray_cluster.workers.host_worker import ENDINGS, HostWorker
from ray_cluster.workers.jax_process import ProcessSettings
from tests.ray_cluster import tiny


@pytest.fixture
def run(tmp_path):
    return rundir.RunDir.create(tmp_path / "run", {})


@pytest.fixture
def worker(run):
    worker = HostWorker(ProcessSettings(run_dir=str(run.path), probe=rundir.write_probe(run), trust=("tests",)))
    worker.warm()
    return worker


def _add(run: rundir.RunDir, index: int, **options) -> rundir.TrialDir:
    planned = tiny.trial(index, **options)
    return run.trial(planned.name).create(planned.config_json)


def _wait(worker: HostWorker) -> list[dict]:
    records = worker.poll(60)
    assert records[-1]["kind"] in ENDINGS
    return records


def test_one_process_runs_trial_after_trial(run, worker):
    for index in range(2):
        trial = _add(run, index)
        worker.start(trial)
        records = _wait(worker)
        ending = records[-1]
        assert (ending["kind"], ending["status"], ending["step"]) == ("done", "done", tiny.NUM_STEPS)
        assert ending["began_ms"] < ending["ended_ms"]
        assert [record["step"] for record in records if record["kind"] == "saved"] == tiny.STEPS
        assert "losses/total" in next(record for record in records if record["kind"] == "logged")["values"]
        json.dumps(records)


def test_a_stopped_trial_saves_and_goes_on_from_there(run, worker):
    trial = _add(run, 0, slow_s=0.05)
    worker.start(trial)
    while not any(record["kind"] == "saved" for record in worker.poll(10, at_once=True)):
        pass
    worker.stop()
    ending = _wait(worker)[-1]
    assert ending["status"] == "preempted"
    assert tiny.SAVE_EVERY <= ending["step"] < tiny.NUM_STEPS
    worker.start(trial)
    assert _wait(worker)[-1]["status"] == "done"
    steps = [event["step"] for event in rundir.read_events(trial.events) if event["kind"] == "metrics"]
    assert steps == sorted(set(steps))


def test_only_one_trial_at_a_time(run, worker):
    worker.start(_add(run, 0, slow_s=0.05))
    with pytest.raises(RunFailed, match="still runs another trial"):
        worker.start(_add(run, 1))
    worker.stop()
    _wait(worker)


def test_what_a_trial_raises_is_a_record_and_stands_in_its_log(run, worker):
    trial = _add(run, 0, loader=tiny.load_nothing)
    worker.start(trial)
    ending = _wait(worker)[-1]
    assert ending["kind"] == "raised"
    assert ending["error"].startswith("OSError: the disk with the data is not mounted")
    assert not ending["is_mistake"]
    assert "Traceback" in (trial.logs / "stderr.log").read_text()


def test_a_diverged_trial_ends_as_such(run, worker):
    worker.start(_add(run, 0, loader=tiny.load_nan))
    assert _wait(worker)[-1]["status"] == "diverged"


def test_a_config_that_may_not_be_built_is_a_mistake_and_starts_nothing(run, worker):
    config = tiny.config()
    config.aux = kd.konfig.ConfigDict({"__qualname__": "subprocess:run", "0": "true"})
    trial = run.trial("0000").create(kd.konfig.to_json(config))
    worker.start(trial)
    ending = _wait(worker)[-1]
    assert ending["is_mistake"] and ending["is_setup"]
    assert "subprocess" in ending["error"]


def test_another_platform_than_the_one_asked_for_is_refused(run):
    with pytest.raises(RunFailed, match="a gpu process was asked for and JAX runs on cpu"):
        HostWorker(ProcessSettings(run_dir=str(run.path), platform="gpu")).warm()


def test_whoever_holds_the_tpu_is_named_and_left_alone(run, tmp_path, monkeypatch):
    """G06: whoever holds the tpu is named and left alone."""
    device = tmp_path / "accel0"
    device.touch()
    monkeypatch.setattr(jax_process, "_TPU_DEVICES", (f"{tmp_path}/accel[0-9]*",))

    def refuse():
        raise RuntimeError("ABORTED: The TPU is already in use by another process")

    monkeypatch.setattr("jax.default_backend", refuse)
    with device.open() as opened, subprocess.Popen(["sleep", "60"], stdin=opened) as holder:
        with pytest.raises(
            RunFailed, match=rf"already in use by another process\. Held by process {holder.pid} on this"
        ):
            HostWorker(ProcessSettings(run_dir=str(run.path), platform="tpu")).warm()
        assert holder.poll() is None
        holder.kill()
    assert device.exists()


def test_a_node_that_does_not_see_the_run_directory_is_named(run, monkeypatch):
    monkeypatch.setitem(rundir.check_probe.__kwdefaults__, "timeout_s", 0.1)
    with pytest.raises(RunFailed, match="does not see what the driver wrote there"):
        HostWorker(ProcessSettings(run_dir=str(run.path), probe="another token")).warm()
