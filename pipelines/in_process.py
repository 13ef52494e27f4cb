"""What of a run spec counts for the process that trains by itself: its variables, and not what places trials on Ray."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping

from kauldron_core.errors import ConfigError, listing
from pipelines.terminal import echo

_TAKEN = ("name", "root", "env", "metric", "mode", "stop")
_READ_AT_START = ("JAX_", "XLA_", "LIBTPU_", "TPU_", "NPROC")


@contextlib.contextmanager
def variables(env: Mapping[str, str | None]) -> Iterator[None]:
    """Sets the variables of a run in this process; None leaves one as it is.

    Raises:
      ConfigError: If JAX has been imported already and would not see one.
    """
    texts = {str(name): str(value) for name, value in env.items() if value is not None}
    late = [name for name in texts if name.startswith(_READ_AT_START)] if "jax" in sys.modules else []
    if late:
        raise ConfigError(
            f"--run.env: JAX has started in this process and sees no {listing(late)} any more. Set it before."
        )
    before = {name: os.environ.get(name) for name in texts}
    os.environ.update(texts)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def tell_what_does_not_count(fields: Iterable[str], *, command: str) -> None:
    """Says which fields of a run spec have no effect on a run in this process.

    Args:
      fields: The paths that were given.
      command: The one for which they have.
    """
    names = dict.fromkeys(path.partition(".")[0].partition("[")[0] for path in fields)
    others = [f"--run.{name}" for name in names if name not in _TAKEN]
    if others:
        echo(f"note: one run in this process takes no {listing(others)}. On Ray: {command}", err=True)
