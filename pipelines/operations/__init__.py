"""Looks at runs and steers them from any terminal: everything is read from the run directory, without Ray and JAX."""

from pipelines.operations.finding import find_run, find_trial

__all__ = ["find_run", "find_trial"]
