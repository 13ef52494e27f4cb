"""A plan is laid out once; the same plan again changes nothing, another one is refused."""

import json

import pytest

from kauldron_core import rundir
from kauldron_core.errors import ConfigError
from ray_cluster import Plan, PlannedTrial, Sweep
from ray_cluster.driver.layout import lay_out, write_trials


def _plan(path, *, rate=0.1, **fields) -> Plan:
    config = json.dumps({"optimizer": {"learning_rate": rate}, "steps": [1, 2]})
    trial = PlannedTrial(
        name="0000", index=0, fingerprint="f", config_json=config, overrides=(("optimizer.learning_rate", rate),)
    )
    return Plan(sweep=Sweep(env={"TOKEN": "secret"}), run_dir=str(path), trials=(trial,), **fields)


def _lay_out(plan: Plan) -> rundir.RunDir:
    run = lay_out(plan)
    write_trials(plan, run)
    return run


def test_sweep_and_trials_are_on_disk_and_no_variable_leaks(tmp_path):
    run = _lay_out(_plan(tmp_path / "a", description={"config_file": "digits.py"}))
    assert run.sweep["config_file"] == "digits.py"
    assert run.sweep["trials"][0]["overrides"] == [["optimizer.learning_rate", 0.1]]
    assert "secret" not in run.sweep_path.read_text()
    assert run.trial("0000").status() == "queued"
    assert rundir.read_table(run.path / "trials.parquet")[0]["name"] == "0000"


def test_a_second_time_keeps_terminal_statuses_and_queues_the_rest(tmp_path):
    plan = _plan(tmp_path / "a")
    run = _lay_out(plan)
    rundir.write_status(run.trial("0000"), "running")
    assert _lay_out(plan).trial("0000").status() == "queued"
    rundir.write_status(run.trial("0000"), "failed")
    assert _lay_out(plan).trial("0000").status() == "failed"
    assert _lay_out(_plan(tmp_path / "a", retry_failed=True)).trial("0000").status() == "queued"


def test_another_config_under_the_same_name_is_refused_with_the_difference(tmp_path):
    _lay_out(_plan(tmp_path / "a"))
    with pytest.raises(ConfigError, match=r"optimizer\.learning_rate is 0\.1 there and 0\.2 here"):
        _lay_out(_plan(tmp_path / "a", rate=0.2))


def test_a_relative_run_directory_inside_a_ray_job_is_refused(monkeypatch):
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    with pytest.raises(ConfigError, match=r"--run\.root: 'runs/a' is relative"):
        lay_out(_plan("runs/a"))
