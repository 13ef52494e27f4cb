"""Starts a local Ray, or joins the one at an address; never one that happens to be found."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import pathlib
import shutil
import signal
import socket
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import ray
from ray._private import services, worker
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from kauldron_core import rundir
from kauldron_core.errors import ConfigError, RunFailed
from ray_cluster.cluster import environment
from ray_cluster.spec import Resources

TOKEN_FILE = ".ray_token"
_TEMP_ROOT = "/tmp"
"""Ray's sockets lie below; their paths may have 107 characters, so a longer TMPDIR would not do."""

_TEMP_PREFIX = "kdr-"
_IN_USE = ".in-use"
_OBJECT_STORE_BYTES = 256 * 1024**2
_NEEDED = ("gcs_server", "raylet")
_KNOCK_EVERY_S, _SILENCE_S = 2.0, 40.0
"""A joined cluster's control service may be restarted; after a minute without it Ray ends this process, in pages."""

_LEAST_MISSES = 3
"""Knocks that nobody has answered: a process that was suspended looks once after a long time."""

_ANSWER_S = 15.0
"""A node that does not see the run directory says so after ten; one that is gone says nothing."""


@contextlib.contextmanager
def ray_session(run: rundir.RunDir, address: str, *, sends: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Connects this process to Ray while the block runs.

    A Ray that the caller has connected to already is used as it is and left running.

    Args:
      run: The run directory; gets `.ray_token` (mode 0600) for other terminals while a local Ray runs.
      address: `local` or `host:port`, see `environment.read_address`.
      sends: The code that a joined cluster gets, see `shipping.runtime_env`.
    """
    try:
        if environment.is_ray_connected():
            yield
        elif address == "local":
            with _local_ray(run):
                yield
        else:
            _join(address, sends)
            try:
                yield
            finally:
                ray.shutdown()
    except SystemExit as ended:
        # Until ours is in its place Ray has a handler of SIGTERM, which exits with its number.
        raise SystemExit(128 + signal.SIGTERM if ended.code == signal.SIGTERM else ended.code) from ended


@contextlib.contextmanager
def _local_ray(run: rundir.RunDir) -> Iterator[None]:
    _remove_leftovers()
    # Only its owner may look into it; Ray opens the folder that it is given to everybody.
    private = tempfile.mkdtemp(prefix=_TEMP_PREFIX, dir=_TEMP_ROOT)
    token_path = run.path / TOKEN_FILE
    in_use = _mark_in_use(private)
    try:
        _write_private(token_path, os.environ["RAY_AUTH_TOKEN"])
        # JAX warns of a fork; each of these becomes another program at once.
        warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning)
        with _own_process_group():
            ray.init(
                address="local",
                include_dashboard=False,
                dashboard_host="127.0.0.1",
                log_to_driver=False,
                configure_logging=False,
                object_store_memory=_OBJECT_STORE_BYTES,
                _temp_dir=os.path.join(private, "ray"),
            )
        yield
    finally:
        ray.shutdown()
        token_path.unlink(missing_ok=True)
        shutil.rmtree(private, ignore_errors=True)
        os.close(in_use)


@contextlib.contextmanager
def _own_process_group() -> Iterator[None]:
    """Starts Ray's processes in groups of their own while the block runs.

    Whoever ends a job sends SIGTERM to its whole process group. Ray's processes would end at once, and the trials with
    them, before they have saved; so only this process gets it, and ends Ray when it is done.
    """
    kind = getattr(services, "ConsolePopen", None)
    if kind is None:  # another version of Ray; then a second signal ends what is left
        yield
        return

    class Popen(kind):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **{"process_group": 0, **kwargs})

    services.ConsolePopen = Popen  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        services.ConsolePopen = kind


def _mark_in_use(folder: str) -> int:
    """Returns a descriptor; as long as this process has it open, `folder` is not a leftover."""
    path = os.path.join(folder, f"{_IN_USE}.new")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    # Visible only once it is locked.
    os.rename(path, os.path.join(folder, _IN_USE))
    return descriptor


def _remove_leftovers() -> None:
    """Removes the folders of drivers that were killed: the system has given their locks back."""
    for path in glob.glob(f"{_TEMP_ROOT}/{_TEMP_PREFIX}*/{_IN_USE}"):
        # Just being removed by another driver.
        with contextlib.suppress(OSError), open(path, "rb+") as mark:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
            folder = os.path.dirname(path)
            if os.lstat(folder).st_uid == os.geteuid() and not os.path.islink(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _join(address: str, sends: Mapping[str, Any] | None) -> None:
    _knock(address)
    try:
        ray.init(address=address, log_to_driver=False, configure_logging=False, runtime_env=dict(sends or {}) or None)
    except ConnectionError as error:
        raise ConfigError(f"--address: no Ray answers at {address!r}: {str(error).splitlines()[0]}") from error
    except (RuntimeError, ValueError) as error:
        if not sends:
            raise
        # It is packed and sent now; Ray has a limit on its size.
        first = (str(error) or type(error).__name__).splitlines()[0]
        raise ConfigError(f"run.working_dir, run.py_modules: can't be sent: {first}") from error


def _knock(address: str) -> None:
    """Raises a `ConfigError` where nothing listens: Ray would go on trying for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        return  # Ray says what it makes of it.
    try:
        _connect(address, timeout_s=_ANSWER_S)
    except OSError as error:
        raise ConfigError(f"--address: no Ray answers at {address!r}: {error.strerror or error}.") from error


def _connect(address: str, *, timeout_s: float) -> None:
    """Raises an `OSError` where nothing answers."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s).close()


def watch() -> Callable[[], str | None]:
    """Returns what says which part of the Ray that is connected has gone that nothing goes on without; None: none."""
    node: Any = worker._global_node
    if node is not None and node.all_processes:
        return lost_process
    return Listener(ray.get_runtime_context().gcs_address).lost


class Listener:
    """Something at an address that has to answer a knock now and then, such as the control service of a cluster.

    Args:
      address: `host:port`.
      knock_every_s: How often it is knocked at; a knock waits as long at most.
      silence_s: For how long none may be answered.
    """

    def __init__(self, address: str, *, knock_every_s: float = _KNOCK_EVERY_S, silence_s: float = _SILENCE_S):
        self._address = address
        self._knock_every_s = knock_every_s
        self._silence_s = silence_s
        self._heard_at = self._knock_at = time.monotonic()
        self._num_misses = 0

    def lost(self) -> str | None:
        """Returns what it is once it has been silent for so long; to be called again and again."""
        if time.monotonic() < self._knock_at:
            return None
        self._num_misses += 1
        with contextlib.suppress(OSError):
            _connect(self._address, timeout_s=self._knock_every_s)
            self._heard_at, self._num_misses = time.monotonic(), 0
        self._knock_at = time.monotonic() + self._knock_every_s
        is_silent = self._knock_at - self._heard_at > self._silence_s and self._num_misses >= _LEAST_MISSES
        return f"control service at {self._address}" if is_silent else None


def lost_process() -> str | None:
    """Returns which process has ended that the Ray that was started here can't do without; None while it has all."""
    node: Any = worker._global_node
    dead = [] if node is None else [kind for kind, _ in node.dead_processes()]
    return next((kind for kind in dead if kind in _NEEDED), None)


def kill_own_ray() -> None:
    """Ends what is left of a Ray that has lost a process, without asking it; its folder stays for the next driver."""
    node: Any = worker._global_node
    if node is None or not node.all_processes:
        return
    leaders = [info.process.pid for infos in node.all_processes.values() for info in infos]
    node.kill_all_processes(check_alive=False, allow_graceful=False)
    for leader in leaders:  # Agents and workers of a killed raylet end themselves late, or never.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(leader, signal.SIGKILL)


def end_process(loss: RunFailed, conclude: Callable[[], object]) -> None:
    """Says what is lost and ends this process, from any thread.

    The main one may wait for an answer of Ray that never comes, where no signal reaches it; after a minute Ray would
    end the process itself, and say why in pages.
    """
    try:
        kill_own_ray()
        conclude()
    finally:
        sys.stdout.flush()
        os.write(2, f"error: {loss}\n".encode())
        os._exit(1)


def node_resources() -> list[Resources]:
    """Returns the total resources of each living node."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def check_nodes_see(run: rundir.RunDir, token: str) -> None:
    """Returns if every node sees the run directory; one node alone shares the driver's file system anyway.

    Raises:
      RunFailed: With the name of a node that does not, or does not answer.
    """
    nodes = [node for node in ray.nodes() if node["Alive"]]
    if len(nodes) < 2:
        return
    looks = {
        _look.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote(
            str(run.path), token
        ): node["NodeManagerHostname"]
        for node in nodes
    }
    _, silent = ray.wait(list(looks), num_returns=len(looks), timeout=_ANSWER_S)
    if silent:
        raise RunFailed(f"{run.path}: node {looks[silent[0]]} did not answer whether it sees the run directory.")
    ray.get(list(looks))


@ray.remote(num_cpus=0, max_retries=0)
def _look(run_dir: str, token: str) -> None:
    rundir.check_probe(run_dir, token)


def _write_private(path: pathlib.Path, text: str) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)
