"""Whether another process could load and build a config: asked before a sweep starts, not in its actors."""

from __future__ import annotations

import sys
from typing import Any

from kauldron_core import paths
from kauldron_core.errors import ConfigError
from kauldron_core.konfig.calls.targets import display, find_target, split
from kauldron_core.konfig.json.encoding import encode
from kauldron_core.konfig.tree.nodes import name_of
from kauldron_core.konfig.tree.walking import walk
from kauldron_core.konfig.trusting.rules import UntrustedError, check_name


def check_loadable(cfg: Any) -> None:
    """Refuses a config that a process which trusts the same as this one could not load from a file and resolve.

    Raises:
      UntrustedError: When a name in it is not trusted.
      ConfigError: When something in it cannot be saved, or lives in `__main__`.
    """
    encode(cfg, references=True)
    for path, node in walk(cfg, operands=True):
        name = name_of(node)
        if name is not None:
            _check(str(name), paths.join("cfg", *path))


def _check(name: str, at: str) -> None:
    module, attributes = split(name)
    if module == "__main__":
        shown = display(name)
        raise ConfigError(
            f"{at}: {shown} is known to this process only; move it into a module and import it from there"
        )
    try:
        check_name(module, attributes)
        if module in sys.modules:
            find_target(name, trusted=False)
    except UntrustedError as error:
        raise UntrustedError(f"{at}: {error}") from None
