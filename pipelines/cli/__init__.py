"""The command line: `kdr sweep`, `kdr train`, `kdr eval`."""

from pipelines.cli.app import main

__all__ = ["main"]
