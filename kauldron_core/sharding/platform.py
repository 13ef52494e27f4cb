"""The platform on which JAX runs, and what is said where the one asked for is not there."""

from __future__ import annotations

import glob
import os

import jax

from kauldron_core.errors import ConfigError

_DEVICE_FILES = {"gpu": ("/dev/nvidia[0-9]*", "/dev/kfd"), "tpu": ("/dev/accel*", "/dev/vfio/[0-9]*")}


def default_platform() -> str:
    """Returns the platform on which JAX runs: `cpu`, `gpu`, `tpu`; starts its devices.

    Raises:
      ConfigError: If the one asked for is not there; with those whose devices this machine has.
    """
    try:
        return jax.default_backend()
    except (RuntimeError, AssertionError) as error:  # JAX asserts that some platform it knows was asked for.
        asked = jax.config.jax_platforms or ""  # pyright: ignore[reportAttributeAccessIssue]
        reason = f" ({str(error).strip().splitlines()[0].rstrip('.')})" if str(error).strip() else ""
        raise ConfigError(
            f"JAX_PLATFORMS={asked}: JAX finds no such platform on {os.uname().nodename}{reason}. Devices here:"
            f" {', '.join(_devices())}. Leave JAX_PLATFORMS unset, set JAX_PLATFORMS=cpu, or install JAX for {asked}."
        ) from error


def check_platform() -> None:
    """Refuses a platform that was asked for by `JAX_PLATFORMS` and is not there; else JAX starts when it is needed.

    Raises:
      ConfigError: As `default_platform`.
    """
    if jax.config.jax_platforms:  # pyright: ignore[reportAttributeAccessIssue]
        default_platform()


def _devices() -> list[str]:
    found = [name for name, patterns in _DEVICE_FILES.items() if any(glob.glob(pattern) for pattern in patterns)]
    return ["cpu", *found]
