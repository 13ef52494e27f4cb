"""Where records go, and making a store."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from kauldron_core.errors import ConfigError
from pipelines.tracking import Store


def test_the_default_is_a_file_beside_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store.at("runs", environ={})
    assert store.uri == f"sqlite:///{tmp_path}/runs/mlflow.db"
    assert store.artifact_folder == tmp_path / "runs" / "mlartifacts"


@pytest.mark.parametrize(
    ("given", "uri", "artifacts"),
    [
        ("http://127.0.0.1:5000", "http://127.0.0.1:5000", False),
        ("sqlite:////abs/x.db", "sqlite:////abs/x.db", True),
        ("sqlite:///here.db", "sqlite:///{cwd}/here.db", True),
    ],
)
def test_the_address_in_the_environment_is_honoured(
    given: str, uri: str, artifacts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L16: the address in the environment is honoured."""
    monkeypatch.chdir(tmp_path)
    store = Store.at(tmp_path / "runs", environ={"MLFLOW_TRACKING_URI": given})
    assert store.uri == uri.format(cwd=tmp_path)
    assert (store.artifact_folder is not None) == artifacts
    assert store.environment["MLFLOW_TRACKING_URI"] == store.uri
    assert store.environment["MLFLOW_DISABLE_TELEMETRY"] == "true"


def test_an_address_without_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="names no file"):
        Store.at(tmp_path, environ={"MLFLOW_TRACKING_URI": "sqlite:///"})


def test_the_command_to_look_at_the_records_is_exact_and_local(tmp_path: Path) -> None:
    folder = tmp_path / "with a space"
    *variables, program, command, option, uri, host, address = shlex.split(Store.at(folder, environ={}).view_command)[
        :8
    ]
    assert variables == ["MLFLOW_DISABLE_TELEMETRY=true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false"]
    assert (Path(program).name, command, option) == ("mlflow", "ui", "--backend-store-uri")
    assert (uri, host, address) == (f"sqlite:///{folder}/mlflow.db", "--host", "127.0.0.1")
    assert Store.at(folder, environ={"MLFLOW_TRACKING_URI": "http://host:5000"}).view_command == "http://host:5000"


@pytest.mark.process
@pytest.mark.slow
def test_processes_that_make_the_same_store_at_once_all_succeed(tmp_path: Path) -> None:
    code = f"from pipelines.tracking import Store; Store.at({str(tmp_path / 'runs')!r}, environ={{}}).open()"
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    children = [subprocess.Popen([sys.executable, "-c", code], env=environment) for _ in range(3)]
    assert [child.wait(100) for child in children] == [0, 0, 0]
