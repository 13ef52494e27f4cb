"""A cache of functions of one argument, which some targets and annotations cannot be a key of."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

_R = TypeVar("_R")


def cached(function: Callable[[Any], _R]) -> Callable[[Any], _R]:
    """Returns `function` with its last results kept; an argument that cannot be hashed is computed each time."""
    stored = functools.lru_cache(maxsize=4096)(function)

    @functools.wraps(function)
    def look_up(argument: Any) -> _R:
        try:
            return stored(argument)
        except TypeError:
            return function(argument)

    return look_up
