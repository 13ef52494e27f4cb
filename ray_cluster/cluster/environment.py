"""The variables of the processes of a sweep: what must stand in the environment before Ray or JAX is imported.

Neither is imported here. Ray reads its authentication mode when it is imported, and JAX its platform, memory and
thread settings when it starts, so all of them are set by whoever starts the process.
"""

from __future__ import annotations

import glob
import math
import os
import secrets
import sys
from collections.abc import Iterable, Mapping

from kauldron_core.errors import ConfigError
from kauldron_core.konfig.trusting.project_path import project_folder
from ray_cluster.spec import FORWARDED_VARIABLES, Plan, Resources

_DRIVER_VARIABLES = {
    # No telemetry, and no merging of log lines that belong to different trials.
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    # The supervisor stays in the driver's folder.
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    # A trial has its metric when it has been evaluated, not with its first report.
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    # RUN holds everything that Tune's own files would repeat.
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000",
    # With its older output `verbose=0` is really silent.
    "RAY_AIR_NEW_OUTPUT": "0",
    # Its handler drops running trials without saving them; ours lets them save.
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
}
_PLATFORM_LISTS = {"cpu": "cpu", "gpu": "cuda,cpu", "tpu": "tpu,cpu"}
_PLATFORMS = {"cpu": "cpu", "gpu": "gpu", "cuda": "gpu", "rocm": "gpu", "tpu": "tpu"}
"""What JAX calls the platforms in `JAX_PLATFORMS`; a plug-in may bring others."""
_MEMORY_SHARE = 0.9
"""Part of a GPU that its trials may fill together; the rest is for the libraries outside XLA's pool."""


def read_address(address: str | None) -> str:
    """Returns where Ray is: `local` (a new one), or `host:port` as given or as in `RAY_ADDRESS`.

    Raises:
      ConfigError: If the address leaves open which cluster is meant, or is not that of a cluster's head.
    """
    where = address or os.environ.get("RAY_ADDRESS") or "local"
    if where == "auto":
        raise ConfigError("--address: 'auto' takes whatever cluster is found; give host:port of its head, or 'local'.")
    if "://" in where:
        scheme = where.partition("://")[0]
        fix = "use `ray job submit`" if scheme in ("http", "https", "ray") else "give host:port of the cluster's head"
        raise ConfigError(f"--address: {where!r} is not the address of a cluster's head; {fix}, or --address=local.")
    return where


def prepare_driver(address: str) -> None:
    """Sets this process's variables for Ray; must come before Ray is imported for the first time.

    Raises:
      ConfigError: If Ray would have to be started here without a token because it was imported too early.
    """
    os.environ.update(_DRIVER_VARIABLES)
    if address != "local" or is_ray_connected():
        return
    # A Ray of our own listens on all interfaces, so it never runs without a token.
    if os.environ.get("RAY_AUTH_MODE") != "token" and "ray" in sys.modules:
        raise ConfigError(
            "ray was imported before RAY_AUTH_MODE=token was set, so a local Ray would be open to the network."
            " Import it later, set the variable first, or start Ray yourself with ray.init(...)."
        )
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    # By default Ray's workers are niced by 15, and whatever else this machine does would starve training.
    os.environ.setdefault("RAY_worker_niceness", "0")


def is_ray_connected() -> bool:
    """Returns whether this process has called `ray.init`; does not import Ray."""
    ray = sys.modules.get("ray")
    return ray is not None and ray.is_initialized()


def is_ray_job() -> bool:
    """Returns whether this process was started by `ray job submit`."""
    return "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ


def machine_resources() -> dict[str, float] | None:
    """Returns the most that a Ray started here could find on this machine; None if that can't be told without it.

    Ray itself may find less (a container's share of the CPUs), and says so when it has started.
    """
    if "RAY_OVERRIDE_RESOURCES" in os.environ:
        return None
    gpus = len(glob.glob("/dev/nvidia[0-9]*"))
    if not gpus and any(map(os.path.exists, ("/dev/kfd", "/dev/dri", "/dev/dxg"))):
        gpus = math.inf  # of a kind that is not counted by files
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    tpus = len(glob.glob("/dev/accel*")) + len(glob.glob("/dev/vfio/[0-9]*"))
    return {"CPU": os.cpu_count() or 1, "GPU": gpus, "TPU": tpus, "memory": memory, "object_store_memory": memory}


def keep_driver_on_cpu() -> None:
    """Makes JAX in this process use the CPU alone, so that trials find the accelerators free.

    By JAX's own setting and not by an environment variable, which every actor would inherit. Without effect when JAX
    was not imported (then nothing here will start it) or has started its devices.
    """
    jax = sys.modules.get("jax")
    if jax is not None:
        jax.config.update("jax_platforms", "cpu")


def platform_of(resources: Resources) -> str:
    """Returns the JAX platform that a worker with these resources must find."""
    if resources.get("TPU"):
        return "tpu"
    return "gpu" if resources.get("GPU") else "cpu"


def refuse_other_platform(env: Mapping[str, str | None], owned: Iterable[Resources]) -> None:
    """Refuses variables that ask JAX for another platform than the one that a process must find.

    Args:
      env: Variables of the processes.
      owned: What each kind of them owns.

    Raises:
      ConfigError: With the platform that was asked for, and the one of the resources.
    """
    asked = str(env.get("JAX_PLATFORMS") or "")
    first = asked.partition(",")[0].strip().lower()  # JAX takes the first one.
    for resources in owned:
        platform = platform_of(resources)
        if _PLATFORMS.get(first, platform) != platform:
            shown = ", ".join(f"{name} {amount:g}" for name, amount in resources.items()) or "no resources"
            raise ConfigError(
                f"JAX_PLATFORMS={asked}: a process with {shown} runs on {platform}. Leave the variable out: each"
                " process gets the platform of its resources, such as --run.resources='{\"GPU\": 1}'"
            )


def worker_variables(plan: Plan, resources: Resources) -> dict[str, str]:
    """Returns the `process_variables` of a sweep's process; `sweep.env` wins over them, and `plan.env` over that."""
    return process_variables(resources, python_path=plan.python_path, env={**plan.sweep.env, **plan.env})


def process_variables(
    resources: Resources, *, python_path: Iterable[str] = (), env: Mapping[str, str | None] | None = None
) -> dict[str, str]:
    """Returns the variables of a process that runs JAX with these resources, set before Python starts there.

    Args:
      resources: What it owns: they say its platform and its threads.
      python_path: Folders put on its path beside the working directory.
      env: Variables that win over those and over the driver's forwarded ones; None leaves one out. `PYTHONPATH` is
        added to ours.
    """
    env = _texts(env or {})
    platform = platform_of(resources)
    variables = {
        "JAX_PLATFORMS": _PLATFORM_LISTS[platform],
        # XLA sizes its thread pools by this, also where affinity or cgroups don't limit the process.
        "NPROC": str(max(1, math.ceil(resources.get("CPU", 1)))),
        "PYTHONPATH": _python_path((*env.pop("PYTHONPATH", "").split(os.pathsep), *python_path)),
        "PYTHONUNBUFFERED": "1",
    }
    gpus = resources.get("GPU", 0)
    if 0 < gpus < 1:
        variables["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{_MEMORY_SHARE * gpus:.3f}"
    variables.update({name: os.environ[name] for name in FORWARDED_VARIABLES if name in os.environ})
    return {**variables, **env}


def _python_path(folders: Iterable[str]) -> str:
    """Returns the folders of user code: a console script and a Ray worker lack the working directory."""
    # Ray puts a job's own folder on the path itself, under the name that it has on each node.
    # A run is data: started in one, nothing that lies there may be imported, a `sitecustomize.py` for example.
    working_dir = None if is_ray_job() else project_folder()
    standing = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(dict.fromkeys(path for path in (working_dir, *folders, *standing) if path))


def _texts(variables: Mapping[str, str | None]) -> dict[str, str]:
    return {str(name): str(value) for name, value in variables.items() if value is not None}
