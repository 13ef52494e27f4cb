"""The names a model needs in its annotations, older ones among them: `from kauldron_core.typing import Float`."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

from kauldron_core import ktyping
from kauldron_core.ktyping import *  # noqa: F403
from kauldron_core.ktyping import PRNGKeyLike, ScalarFloat, ScalarInt, Shape, config, decorator, queries
from kauldron_core.ktyping.checkers import checker_for

enable_kd_type_checking = config.enable_kd_type_checking

Schedule = Callable[[ScalarInt], ScalarFloat]
"""From a step to a number."""

Initializer = Callable[[PRNGKeyLike, Sequence[int], Any], Any]
"""From a key, a shape and a dtype to an array."""


def Dim(spec_str: str) -> int:
    """Returns the size of a dimension of the calling function: `Dim("n")` is `dim["n"]`."""
    (size,) = queries.sizes_of(spec_str, sys._getframe(1), "Dim")
    return size


def set_shape(pattern: str, shape: Sequence[int]) -> None:
    """Lets the calling function know that `pattern` stands for these sizes.

    Raises:
      KTypeCheckError: If they do not fit what it knows.
    """
    hint = Shape[pattern]
    where = queries.scope_of(sys._getframe(1), "set_shape")
    decorator.check(where, "the shape", hint, checker_for(hint), tuple(shape))


__all__ = ["Dim", "Initializer", "Schedule", "enable_kd_type_checking", "set_shape"]
__all__ += ktyping.__all__
