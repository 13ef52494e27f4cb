"""The command `kdr`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from pipelines.cli.commands import LazyGroup
from pipelines.cli.run import run

COMMANDS = {
    "sweep": ("pipelines.sweep:command", "Train and evaluate every trial of a sweep on Ray."),
    "train": ("pipelines.train:command", "Train one run in this process, without Ray."),
    "eval": ("pipelines.evaluate:command", "Evaluate checkpoints of a run that exists."),
    "status": ("pipelines.operations.status:command", "Show how a run stands, from any terminal."),
    "best": ("pipelines.operations.best:command", "Print the best trial of a run and its train command."),
    "logs": ("pipelines.operations.logs:command", "Print what a trial printed."),
    "stop": ("pipelines.operations.stop:command", "Ask a run, or one trial, to save and end."),
    "ls": ("pipelines.operations.listing:command", "List the runs in a folder."),
    "rm": ("pipelines.operations.remove:command", "Remove a run."),
    "ckpt": ("pipelines.cli.ckpt:ckpt", "List, show, check or remove checkpoints."),
    "config": ("pipelines.cli.config:config", "Show, compare, check or list a config, without running it."),
    "pipeline": ("pipelines.pipeline:pipeline", "Run several stages one after the other."),
    "submit": ("pipelines.submit:command", "Run a command as a job of a cluster."),
    "preflight": ("pipelines.preflight:command", "Look at every node of a cluster."),
    "record": ("pipelines.record:command", "Bring the MLflow records of a run up to date."),
}
"""Each command, where it is, and what it does."""

EPILOG = """\b
Examples:
  kdr sweep pipelines/configs/digits.py --sweep.optimizer.learning_rate='[1e-3, 1e-2]'
  kdr train pipelines/configs/digits.py --cfg.model.hidden=64
  kdr eval runs/demo --step=latest
  kdr COMMAND --help
"""


@click.group(cls=LazyGroup, table=COMMANDS, epilog=EPILOG, context_settings={"max_content_width": 110})
@click.version_option(package_name="kauldron-ray", prog_name="kdr", message="%(prog)s %(version)s")
def kdr() -> None:
    """Declarative JAX experiments: swept and evaluated on Ray, recorded in MLflow."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `kdr` and returns its exit status."""
    return run(kdr, argv, program="kdr")
