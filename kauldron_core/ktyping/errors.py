"""What goes wrong with annotations: a value that does not fit, a dimension that is not there, a caller without any."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class KTypeCheckError(TypeError):
    """A value does not fit its annotation.

    Attributes:
      scope: What was known of the call: a `ShapeScope`, or None.
    """

    def __init__(self, message: str, scope: Any = None):
        super().__init__(message)
        self.scope = scope


TypeCheckError = KTypeCheckError


class NoActiveScopeError(RuntimeError):
    """The calling function is not under `typechecked`."""


class DimensionError(KeyError, ValueError):
    """A dimension has no size here."""

    def __str__(self) -> str:
        # A KeyError prints its argument as a literal.
        return str(self.args[0])


class AmbiguousDimensionError(DimensionError):
    """A dimension could still have several sizes.

    Args:
      name: The dimension as it was asked for.
      candidates: The sizes it could have; a tuple is a run of axes.
    """

    def __init__(self, name: str, candidates: Iterable[Any]):
        self.name, self.candidates = name, tuple(candidates)
        super().__init__(f"dimension {name!r} is not decided: it could be {either(self.candidates)}")


def either(values: Iterable[Any]) -> str:
    """Returns sizes as `2 or (2 3)`."""
    return " or ".join(sorted(text_of_sizes(value) for value in values))


def text_of_sizes(sizes: Any) -> str:
    """Returns a size, or those of a run of axes in brackets."""
    return f"({' '.join(map(str, sizes))})" if isinstance(sizes, tuple) else str(sizes)
