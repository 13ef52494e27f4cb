"""Looks at runs and steers them from any terminal: everything is read from the run directory, without Ray and JAX."""

from pipelines.operations.finding import find_folder, find_one, find_run, find_trials

__all__ = ["find_folder", "find_one", "find_run", "find_trials"]
