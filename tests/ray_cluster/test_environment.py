"""What actors find in their environment, and which addresses are taken."""

import contextlib
import os

import pytest

from kauldron_core.errors import ConfigError
from ray_cluster import Plan, PlannedTrial, Sweep
from ray_cluster.cluster.environment import platform_of, read_address, refuse_other_platform, worker_variables

TRIAL = PlannedTrial(name="0000", index=0, fingerprint="a", config_json="{}")


def _plan(**fields) -> Plan:
    return Plan(run_dir="runs/a", trials=(TRIAL,), **{"sweep": Sweep(), **fields})


def test_without_an_address_ray_is_started_locally(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert read_address(None) == "local"
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert read_address(None) == "10.0.0.1:6379"
    assert read_address("local") == "local"


@pytest.mark.parametrize("address", ["auto", "http://127.0.0.1:8265", "ray://head:10001"])
def test_an_address_that_is_not_a_head_is_refused_in_one_line(address):
    with pytest.raises(ConfigError, match="--address: ") as caught:
        read_address(address)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("resources", "platform", "expected"),
    [
        ({"CPU": 1}, "cpu", {"JAX_PLATFORMS": "cpu", "NPROC": "1"}),
        ({"CPU": 2.5}, "cpu", {"NPROC": "3"}),
        ({"GPU": 1}, "gpu", {"JAX_PLATFORMS": "cuda,cpu"}),
        ({"GPU": 0.5}, "gpu", {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.450"}),
        ({"TPU": 4}, "tpu", {"JAX_PLATFORMS": "tpu,cpu"}),
        ({}, "cpu", {"JAX_PLATFORMS": "cpu", "NPROC": "1"}),
    ],
)
def test_platform_threads_and_memory_follow_the_resources(resources, platform, expected):
    """G02, G04: platform threads and memory follow the resources."""
    variables = worker_variables(_plan(), resources)
    assert platform_of(resources) == platform
    assert expected.items() <= variables.items()
    assert ("XLA_PYTHON_CLIENT_MEM_FRACTION" in variables) == (0 < resources.get("GPU", 0) < 1)


@pytest.mark.parametrize(
    ("asked", "resources", "is_fine"),
    [
        ("cuda", {"CPU": 1}, False),
        ("cuda,cpu", {}, False),
        ("cpu", {"GPU": 1}, False),
        ("cpu", {"CPU": 1}, True),
        ("cuda", {"GPU": 0.5}, True),
        ("some_plug_in", {"CPU": 1}, True),
        ("", {"CPU": 1}, True),
        (None, {"GPU": 1}, True),
    ],
)
def test_another_platform_than_that_of_the_resources_is_refused(asked, resources, is_fine):
    """F29: JAX would find it missing in every process, one after the other."""
    with contextlib.nullcontext() if is_fine else pytest.raises(ConfigError, match="JAX_PLATFORMS="):
        refuse_other_platform({"JAX_PLATFORMS": asked}, [resources])


def test_the_working_directory_comes_first_on_the_path(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    variables = worker_variables(_plan(python_path=("/code",)), {"CPU": 1})
    assert variables["PYTHONPATH"].split(os.pathsep) == [str(tmp_path), "/code", "/elsewhere"]
    variables = worker_variables(_plan(sweep=Sweep(env={"PYTHONPATH": "/more"})), {"CPU": 1})
    assert variables["PYTHONPATH"].split(os.pathsep) == [str(tmp_path), "/more", "/elsewhere"]


def test_variables_are_forwarded_by_list_and_the_run_spec_wins(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/tmp/x")
    monkeypatch.setenv("MY_SECRET", "no")
    variables = worker_variables(_plan(sweep=Sweep(env={"NPROC": "2", "MINE": "a"}), env={"MINE": "b"}), {"CPU": 1})
    assert variables["XLA_FLAGS"] == "--xla_dump_to=/tmp/x"
    assert "MY_SECRET" not in variables
    assert (variables["NPROC"], variables["MINE"]) == ("2", "b")
