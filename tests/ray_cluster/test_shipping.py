"""Code that is sent to a cluster: it gets there, and what can't be sent is refused before anything starts."""

import pathlib
import re
import subprocess
import sys

import pytest

import ray_cluster
from kauldron_core.errors import ConfigError
from ray_cluster import Sweep
from ray_cluster.cluster import shipping
from ray_cluster.spec import FORWARDED_VARIABLES
from tests.ray_cluster import tiny

LOOK = """
import sys
import ray_cluster
from kauldron_core import rundir
from ray_cluster import Sweep
from ray_cluster.cluster import environment, shipping

sweep = Sweep(working_dir={folder!r}, py_modules=({package!r},), excludes=("big",))
shipping.check(sweep)
environment.prepare_driver({address!r})
from ray_cluster.cluster import session
import ray

@ray.remote(num_cpus=0)
def look():
    import os, brought
    return sorted(os.listdir()), brought.NAME

with session.ray_session(rundir.RunDir({folder!r}), {address!r}, sends=shipping.runtime_env(sweep)):
    asked = look.options(runtime_env={{"env_vars": {{"PYTHONPATH": "/nowhere"}}}})
    print(ray.get(asked.remote()))
"""


@pytest.fixture
def folder(tmp_path):
    for name in ("code/mine.py", "code/.env", "code/big/data", "other/brought/__init__.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("NAME = 'brought along'")
    return tmp_path / "code"


@pytest.mark.cluster
def test_a_folder_and_a_package_are_sent_and_secrets_stay(folder, ray_session):
    code = LOOK.format(folder=str(folder), package=str(folder.parent / "other" / "brought"), address=ray_session)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.strip() == "(['mine.py'], 'brought along')"


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        (
            {"working_dir": "no/such/folder"},
            "run.working_dir: 'no/such/folder' does not exist; a folder or a .zip file.",
        ),
        ({"working_dir": __file__}, "is neither a folder nor a .zip file."),
        ({"py_modules": (__file__,)}, "run.py_modules: .* is neither a folder nor a .whl file."),
        ({"excludes": "data"}, "run.excludes: nothing is sent that it could leave out."),
    ],
)
def test_what_can_not_be_sent_is_refused_in_one_line(fields, fault):
    plan = tiny.plan("runs/never", tiny.trial(0), **fields)
    with pytest.raises(ConfigError, match=fault) as caught:
        ray_cluster.check(plan, address="10.0.0.1:6379")
    assert "\n" not in str(caught.value)


def test_inside_a_job_the_flag_of_the_job_is_shown(monkeypatch, tmp_path):
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    sweep = Sweep(working_dir=".", py_modules="../mylib")
    with pytest.raises(ConfigError) as caught:
        shipping.check(sweep)
    assert str(caught.value) == (
        "run.working_dir: inside a Ray job the job brings the code. Leave it out here, and submit with:"
        """ ray job submit --working-dir . --runtime-env-json '{"py_modules": ["../mylib"]}'"""
    )


def test_without_anything_to_send_nothing_is_asked_of_ray():
    shipping.check(Sweep())
    assert shipping.runtime_env(Sweep()) == {}


def test_the_guide_lists_the_variables_that_are_handed_on():
    guide = pathlib.Path(__file__).parents[2] / "docs" / "cluster.md"
    (paragraph,) = [text for text in guide.read_text().split("\n\n") if "are handed on from the driver" in text]
    assert set(FORWARDED_VARIABLES) <= set(re.findall(r"`(\w+)`", paragraph))
