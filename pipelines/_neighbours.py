"""Whether the packages that `pipelines` is built on are those that it came with; imports none of them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_NAMES = ("kauldron_core", "evaluators", "ray_cluster")
_PROGRAMS = ("-m", "kdr")
"""What `sys.argv` begins with while `python -m pipelines.sweep` or `kdr` finds its module."""


def check() -> None:
    """Refuses to go on where a folder on Python's path hides one of them; on the command line that is a mistake (2).

    Raises:
      ImportError: With the file.
    """
    home = Path(__file__).resolve().parents[1]
    for name in _NAMES:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None and Path(spec.origin).resolve().parent != home / name:
            message = (
                f"{spec.origin} hides the package {name!r} that kdr itself is made of. Rename it. Names that are taken:"
                f" pipelines, {', '.join(_NAMES)}."
            )
            if sys.argv and Path(sys.argv[0]).name in _PROGRAMS:
                print(f"error: {message}", file=sys.stderr)
                sys.exit(2)
            raise ImportError(message)
