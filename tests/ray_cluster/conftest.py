"""One Ray for all cluster tests of a session, and a look at what they leave behind."""

import contextlib
import os
import re
import time

import psutil
import pytest

from kauldron_core import rundir
from ray_cluster.cluster import environment

# Ray reads its authentication mode when it is imported, so this stands before any test module is.
environment.prepare_driver("local")

# What Ray calls their processes; Tune wraps the supervisor's class.
HOST_WORKER, SUPERVISOR, EVALUATOR = _ACTORS = ("ray::HostWorker", "ray::_Inner", "ray::EvaluatorWorker")


@pytest.fixture(scope="session")
def ray_session(tmp_path_factory):
    """A local Ray with two CPUs; gives its address."""
    from ray_cluster.cluster import session

    run = rundir.RunDir(tmp_path_factory.mktemp("ray"))
    with session.ray_session(run, "local"):
        import ray

        yield ray.get_runtime_context().gcs_address


@pytest.fixture(scope="session")
def root(tmp_path_factory):
    """The folder of all runs."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def run_dir(root, request):
    """A path for this test's run directory."""
    # Orbax takes the brackets of a test's id for a pattern and then saves nothing that can be read.
    return root / re.sub(r"\W", "-", request.node.name)


def actor_processes(*names: str) -> list[psutil.Process]:
    """Returns the actor processes of ours, or of these names, among this process's children."""
    found = []
    for child in psutil.Process(os.getpid()).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if child.cmdline() and child.cmdline()[0].startswith(names or _ACTORS):
                found.append(child)
    return found


@pytest.fixture
def no_leaks():
    """Fails a test that leaves actor processes running."""
    yield
    deadline = time.monotonic() + 20
    while (left := actor_processes()) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not left
