"""What a process that runs JAX for a sweep checks and sets before its first program."""

from __future__ import annotations

import hashlib
import os
import pathlib
import platform as machine
from dataclasses import dataclass
from typing import Any

from kauldron_core import konfig, rundir
from kauldron_core.errors import RunFailed


@dataclass(frozen=True, kw_only=True)
class ProcessSettings:
    """What the driver tells every process that runs JAX.

    Attributes:
      run_dir: The run directory.
      probe: Token that the driver wrote there, see `rundir.check_probe`; None skips the check.
      platform: The platform that JAX must find: `cpu`, `gpu` or `tpu`.
      trust: Packages whose names configs may call, beside the built-in list.
      compilation_cache: Folder of compiled programs that outlive the process; None keeps none.
      niceness: Added to the process's own; 10 lets training go first.
    """

    run_dir: str
    probe: str | None = None
    platform: str = "cpu"
    trust: tuple[str, ...] = ()
    compilation_cache: str | None = None
    niceness: int = 0


def prepare_process(settings: ProcessSettings) -> dict[str, Any]:
    """Imports JAX, makes this process ready for trials of the run and returns what it is.

    Raises:
      RunFailed: If this node does not see the run directory, or JAX runs on another platform than the one asked for.
    """
    os.nice(settings.niceness)
    if settings.probe is not None:
        rundir.check_probe(settings.run_dir, settings.probe)
    konfig.trust(*settings.trust)
    import jax  # Two seconds, and only after the variables of this process stand.

    _use_compilation_cache(jax, settings)
    found = _default_platform(jax, settings.platform)
    if found != settings.platform:
        raise RunFailed(
            f"node {os.uname().nodename}: a {settings.platform} process was asked for and JAX runs on {found}."
            f" JAX_PLATFORMS is {os.environ.get('JAX_PLATFORMS')!r}."
        )
    return {"pid": os.getpid(), "node": os.uname().nodename, "platform": found, "num_devices": jax.local_device_count()}


def _default_platform(jax: Any, asked: str) -> str:
    try:
        return jax.default_backend()
    except RuntimeError as error:
        raise RunFailed(f"node {os.uname().nodename}: JAX can't start on {asked}: {error}") from error


def _use_compilation_cache(jax: Any, settings: ProcessSettings) -> None:
    if settings.compilation_cache is None:
        return
    folder = pathlib.Path(settings.compilation_cache) / _machine_kind(settings.platform)
    jax.config.update("jax_compilation_cache_dir", os.fspath(folder))
    # Small programs too: a sweep's trials are many and short, and a restarted one must not compile again.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def _machine_kind(platform: str) -> str:
    """Returns a name that differs where a compiled CPU program of one node could not run on another."""
    if platform != "cpu":
        return platform
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return f"cpu-{machine.machine()}"
    features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"cpu-{machine.machine()}-{hashlib.sha256(features.encode()).hexdigest()[:12]}"
