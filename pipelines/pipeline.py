"""`kdr pipeline run|status FILE`: stages one after the other, each done once. Also `python -m pipelines.pipeline`.

    kdr pipeline run pipelines/configs/digits_pipeline.py
    kdr pipeline status pipelines/configs/digits_pipeline.py

A pipeline is a config: its file's `get_config()` returns a `pipelines.Pipeline`, and `--cfg.PATH=VALUE` changes it.
What is done stands in `ROOT/NAME/stages/STAGE.json`; running it again goes on at the first stage that is not.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from kauldron_core import konfig, rundir
from kauldron_core.errors import ConfigError, unknown_name
from pipelines.cli.commands import LazyGroup, OverrideCommand, sorted_words, typed_command
from pipelines.cli.run import DONE, run
from pipelines.cli.signals import ending_as_on_sigterm
from pipelines.cli.trust import trust_code, trust_options
from pipelines.cli.words.command import Command
from pipelines.experiment import load_named_file
from pipelines.report import make_console, make_table
from pipelines.stage_checks import check_directions
from pipelines.stages import Context, Record, Stage, SweepStage
from pipelines.terminal import echo

COMMANDS = {
    "run": ("pipelines.pipeline:run_command", "Run the stages that are not done."),
    "status": ("pipelines.pipeline:status_command", "Show which stages are done."),
}

EPILOG = """\b
Examples:
  kdr pipeline run pipelines/configs/digits_pipeline.py
  kdr pipeline status pipelines/configs/digits_pipeline.py
"""


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """Stages in the order in which they run.

    Attributes:
      name: Name of its folder under `root`.
      stages: By name, see `pipelines.stages`.
      root: Folder of all runs.
    """

    name: str
    stages: Mapping[str, Stage] = field(default_factory=dict)
    root: str = "runs"

    def __post_init__(self) -> None:
        rundir.refuse_address(self.root, at="root")
        rundir.check_name(self.name, kind="pipeline", at="name")
        done: list[str] = []
        for name, stage in self.stages.items():
            rundir.check_name(name, kind="stage", at=f"stages.{name}")
            for needed in stage.needs:
                if needed not in done:
                    raise ConfigError(unknown_name("stage", needed, done, at=f"stages.{name}.of"))
            done.append(name)

    @property
    def folder(self) -> Path:
        """Where its runs and records lie."""
        return rundir.local_path(self.root, at="root").absolute() / self.name

    def record(self, stage: str) -> Record | None:
        """Returns what a stage has left, None if it is not done.

        Raises:
          DamagedFile: If its file can't be read.
        """
        try:
            return rundir.read_json(self.folder / "stages" / f"{stage}.json", rundir.formats.STAGE)
        except FileNotFoundError:
            return None


def run_stages(
    pipeline: Pipeline, identities: Mapping[str, str], *, address: str | None, tracking: bool, trust_run: bool = False
) -> None:
    """Runs the stages that are not done.

    Args:
      pipeline: The pipeline.
      identities: A text for each stage that differs when its config does.
      address: Ray to join.
      tracking: Whether to record in MLflow.
      trust_run: Whether stages may call the code that the runs of those before them keep.

    Raises:
      ConfigError: If a stage that is done has another config now, or nothing says which end of a metric is best.
      RunFailed: If a stage could not be done.
    """
    console, records = make_console(), {}
    waiting = {name: stage for name, stage in pipeline.stages.items() if pipeline.record(name) is None}
    check_directions(waiting, pipeline.stages)
    for name, stage in pipeline.stages.items():
        standing = pipeline.record(name)
        if standing is not None and standing["identity"] != identities[name]:
            raise ConfigError(
                f"stages.{name}: was done with another config. Choose another name, or remove"
                f" {pipeline.folder / 'stages' / name}.json and what came after it to run it again."
            )
        if standing is None:
            console.print(f"stage {name}", markup=False, soft_wrap=True)
            began_at = time.time()
            context = Context(
                pipeline.folder,
                name,
                records,
                address=address,
                tracking=tracking,
                config_files=tuple(one.config for one in pipeline.stages.values() if isinstance(one, SweepStage)),
                trust_run=trust_run,
            )
            outcome = stage.run(context)
            standing = {"identity": identities[name], "seconds": round(time.time() - began_at, 1), **outcome}
            rundir.make_folder(pipeline.folder / "stages")
            rundir.write_json(pipeline.folder / "stages" / f"{name}.json", standing)
        records[name] = standing
        console.print(f"stage {name}: {_outcome(standing)}", markup=False, soft_wrap=True)


@click.group("pipeline", cls=LazyGroup, table=COMMANDS, epilog=EPILOG, context_settings={"max_content_width": 110})
def pipeline() -> None:
    """Run several stages one after the other: a sweep, the best of it again for longer, an evaluation, a report."""


class PipelineCommand(OverrideCommand):
    """The command whose word is a pipeline."""

    word = "FILE"
    roots = ("cfg", "args")


@click.command("run", cls=PipelineCommand, context_settings={"max_content_width": 120})
@click.option("--address", help="Ray to join: host:port of its head, or 'local'. Default: RAY_ADDRESS, else local.")
@click.option("--no-tracking", is_flag=True, help="Do not record in MLflow.")
@trust_options
@click.pass_context
def run_command(
    ctx: click.Context, address: str | None, no_tracking: bool, trust: Sequence[str], trust_run: bool
) -> int:
    """Run the stages of a pipeline that are not done.

    FILE is a Python file whose get_config() returns a pipelines.Pipeline.
    """
    trust_code(None, trust=trust)
    read, identities = _read(sorted_words(ctx))
    try:
        with ending_as_on_sigterm():
            run_stages(read, identities, address=address, tracking=not no_tracking, trust_run=trust_run)
    except BaseException:
        echo(f"Not everything is done. To go on: {typed_command(ctx)}", err=True)
        raise
    return DONE


@click.command("status", cls=PipelineCommand, context_settings={"max_content_width": 120})
@trust_options
@click.pass_context
def status_command(ctx: click.Context, trust: Sequence[str], trust_run: bool) -> int:
    """Show which stages of a pipeline are done, and what they left."""
    trust_code(None, trust=trust)
    read, identities = _read(sorted_words(ctx))
    rows = [[name, *_status(read, name, identities[name])] for name in read.stages]
    console = make_console()
    columns = [("stage", "left"), ("status", "left"), ("seconds", "right"), ("outcome", "left")]
    console.print(make_table(columns, rows, width=console.width))
    console.print(f"folder    {read.folder}", markup=False, soft_wrap=True)
    return DONE


def _status(read: Pipeline, name: str, identity: str) -> list[str]:
    standing = read.record(name)
    if standing is None:
        begun = rundir.RunDir(read.folder / name)
        return ["begun" if begun.exists() else "waiting", "-", f"kdr status {begun.path}" if begun.exists() else ""]
    status = "done" if standing["identity"] == identity else "done otherwise"
    return [status, str(standing["seconds"]), _outcome(standing)]


def _outcome(standing: Record) -> str:
    if "chosen" in standing:
        chosen = ", ".join(f"{row['trial']} ({row['value']:.4g})" for row in standing["chosen"])
        return f"{chosen} by {standing.get('metric', '?')}, {standing.get('direction', 'as its mode says')}"
    if "best" in standing:
        return f"best {standing['best']['point']}: {standing['best']['mean']:.4g}"
    return f"{len(standing['results'])} evaluations" if "results" in standing else f"run {standing['run']}"


def _read(words: Command) -> tuple[Pipeline, dict[str, str]]:
    """Returns the pipeline that the words describe, and what tells a changed stage."""
    if words.config is None:
        raise ConfigError("the pipeline is missing. Example: kdr pipeline run pipelines/configs/digits_pipeline.py")
    file = load_named_file(words.config, words.args)
    konfig.apply_overrides(file.config, [f"{path}={text}" for path, text in words.cfg], aliases=file.aliases)
    found: Any = konfig.resolve(file.config)
    if not isinstance(found, Pipeline):
        raise ConfigError(f"{words.config}: describes a {type(found).__name__}; a pipelines.Pipeline is needed.")
    return found, {name: konfig.fingerprint(file.config.stages[name]) for name in found.stages}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `kdr pipeline` and returns its exit status."""
    return run(pipeline, argv, program="kdr pipeline")


if __name__ == "__main__":
    sys.exit(main())
