"""What a process that runs JAX for a sweep checks and sets before its first program."""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kauldron_core import konfig, masking, rundir
from kauldron_core.errors import ConfigError, RunFailed
from kauldron_core.konfig.trusting.code_copies import add_code_folder
from ray_cluster.workers.program_cache import use_program_cache
from ray_cluster.workers.stopping import StopRule

_TPU_DEVICES = ("/dev/accel[0-9]*", "/dev/vfio/[0-9]*")


@dataclass(frozen=True, kw_only=True)
class Seat:
    """The place of a process among those that train one trial together.

    Attributes:
      rank: Number of the process; 0 writes what is written once.
      num_processes: How many there are.
      timeout_s: How long they wait for each other at the start.
    """

    rank: int
    num_processes: int
    timeout_s: int = 120


@dataclass(frozen=True, kw_only=True)
class ProcessSettings:
    """What the driver tells every process that runs JAX.

    Attributes:
      run_dir: The run directory.
      probe: Token that the driver wrote there, see `rundir.check_probe`; None skips the check.
      probe_dir: Where it wrote the token instead.
      platform: The platform that JAX must find: `cpu`, `gpu` or `tpu`.
      trust: Packages whose names configs may call, beside the built-in list.
      code: Folder with the run's copies of config files, of which those are imported that `trust` names.
      secrets: Names of the variables whose values show in no error.
      niceness: Added to the process's own; 10 lets training go first.
      stop: What ends a trial before its last step.
    """

    run_dir: str
    probe: str | None = None
    probe_dir: str | None = None
    platform: str = "cpu"
    trust: tuple[str, ...] = ()
    code: str | None = None
    secrets: tuple[str, ...] = ()
    niceness: int = 0
    stop: tuple[StopRule, ...] = ()


def free_address() -> str:
    """Returns `host:port` of this machine, as the others of a group reach it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: it only tells which address would be used
            host = probe.getsockname()[0]
        except OSError:
            host = "127.0.0.1"
    with socket.socket() as listener:
        listener.bind((host, 0))
        return f"{host}:{listener.getsockname()[1]}"


def join_group(seat: Seat, address: str, nodes: Sequence[str]) -> None:
    """Makes this process one of a `jax.distributed` job; must come before JAX has devices.

    Args:
      seat: Its place.
      address: Where the first process listens.
      nodes: Host names of all of them.

    Raises:
      RunFailed: If they don't find each other in time, or could not.
    """
    if address.startswith("127.") and len(set(nodes)) > 1:
        raise RunFailed(
            f"node {nodes[0]}: its own address is {address}, where the other hosts of the trial can't reach it."
            " Let its name resolve to an address of its network."
        )
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(
            address,
            num_processes=seat.num_processes,
            process_id=seat.rank,
            # Otherwise it listens on all interfaces.
            coordinator_bind_address=address,
            cluster_detection_method="deactivate",
            initialization_timeout=seat.timeout_s,
        )
    except RuntimeError as error:
        raise RunFailed(
            f"node {os.uname().nodename}: process {seat.rank} of {seat.num_processes} did not find the others at"
            f" {address} within {seat.timeout_s} s: {str(error).splitlines()[0]}"
        ) from error


def prepare_process(settings: ProcessSettings, join: Callable[[], None] | None = None) -> dict[str, Any]:
    """Imports JAX, makes this process ready for trials of the run and returns what it is.

    Args:
      settings: What the driver says.
      join: Called before JAX has devices.

    Raises:
      RunFailed: If this node does not see the run directory, or JAX runs on another platform than the one asked for.
    """
    os.nice(settings.niceness)
    if settings.probe is not None:
        rundir.check_probe(settings.probe_dir or settings.run_dir, settings.probe)
    rundir.begin_use(settings.run_dir)
    masking.keep_secret(*(os.environ.get(name, "") for name in settings.secrets))
    konfig.trust(*settings.trust)
    if settings.code is not None:
        add_code_folder(settings.code)
    import jax  # Two seconds, and only after the variables of this process stand.

    use_program_cache(jax, settings.platform)
    if join is not None:
        join()
    found = _default_platform(settings.platform)
    if found != settings.platform:
        raise RunFailed(
            f"node {os.uname().nodename}: a {settings.platform} process was asked for and JAX runs on {found}."
            f" JAX_PLATFORMS is {os.environ.get('JAX_PLATFORMS')!r}."
        )
    return {"pid": os.getpid(), "node": os.uname().nodename, "platform": found, "num_devices": jax.local_device_count()}


def _default_platform(asked: str) -> str:
    from kauldron_core.sharding import default_platform  # brings JAX with it

    try:
        return default_platform()
    except ConfigError as error:
        # A TPU belongs to one process. Who has it is told and left alone, and so is the lock that it holds.
        pids = holders(_TPU_DEVICES) if asked == "tpu" else []
        held = f"{error.__cause__}. Held by process {', '.join(map(str, pids))} on this node." if pids else ""
        raise RunFailed(f"node {os.uname().nodename}: JAX can't start on {asked}: {held or error}") from error


def holders(patterns: Sequence[str]) -> list[int]:
    """Returns the other processes of this node that have one of these files open, as far as this user may see them."""
    found: set[int] = set()
    for link in glob.iglob("/proc/[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # it has closed it meanwhile, or is somebody else's
            target = os.readlink(link)
            if any(fnmatch.fnmatch(target, pattern) for pattern in patterns):
                found.add(int(link.split("/")[2]))
    return sorted(found - {os.getpid()})
