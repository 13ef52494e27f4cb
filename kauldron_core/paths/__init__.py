"""Reads and prints the `a.b[0]['x.y']` paths that configs, overrides and keys share. Loads neither JAX nor NumPy."""

from kauldron_core.paths.grammar import DOUBLE_STAR, STAR, Part, PathSyntaxError, Wildcard, parse
from kauldron_core.paths.printer import format, join

__all__ = ["DOUBLE_STAR", "STAR", "Part", "PathSyntaxError", "Wildcard", "format", "join", "parse"]
