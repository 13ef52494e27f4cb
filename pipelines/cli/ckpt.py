"""`kdr ckpt ls|show|verify|export|rm`: the checkpoints of a run or a trial."""

from __future__ import annotations

import dataclasses
import datetime
import time
from collections.abc import Sequence
from pathlib import Path

import click

from kauldron_core import ckpts, rundir
from kauldron_core.errors import ConfigError, DamagedFile, listing
from pipelines.cli import ckpt_facts as facts
from pipelines.cli.commands import LazyGroup
from pipelines.cli.run import DONE, FAILED
from pipelines.cli.trust import trust_code, trust_options
from pipelines.operations import find_one, find_trials
from pipelines.report import count, make_console, make_table, number
from pipelines.report.progress import duration
from pipelines.report.tables import size
from pipelines.terminal import confirm, echo, echo_json

COMMANDS = {
    "ls": ("pipelines.cli.ckpt:ls", "List checkpoints: step, size, age, metrics, why each is kept."),
    "show": ("pipelines.cli.ckpt:show", "Show what is in a checkpoint, array by array."),
    "verify": ("pipelines.cli.ckpt:verify", "Read all of some checkpoints, and report damage."),
    "export": ("pipelines.cli.ckpt_export:export", "Write a checkpoint as a trial of its own."),
    "rm": ("pipelines.cli.ckpt:rm", "Remove checkpoints."),
}

EPILOG = """\b
Examples:
  kdr ckpt ls runs/demo
  kdr ckpt show runs/demo best --trial=3 --metric=test/metrics/accuracy
  kdr ckpt verify runs/demo
  kdr ckpt export runs/demo --trial=3 --to=winner
  kdr ckpt rm runs/demo/trials/0003-learning_rate=0.01 100 200
"""

_SETTINGS = {"max_content_width": 110}
_MAX_METRICS = 3

trial_option = click.option(
    "--trial", metavar="NAME", help="Which trial of a run: its name, its number, or a part of it."
)
metric_option = click.option(
    "--metric", metavar="NAME", help="What best goes by, test/metrics/accuracy. Default: the run's."
)
mode_option = click.option(
    "--mode", type=click.Choice(["max", "min"]), help="Which end of it is best. Default: the metric says it."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
place_argument = click.argument("place", metavar="RUN_OR_TRIAL")


@click.group("ckpt", cls=LazyGroup, table=COMMANDS, epilog=EPILOG, context_settings=_SETTINGS)
def ckpt() -> None:
    """Look at the checkpoints of a run, check them, remove some."""


@click.command("ls", context_settings=_SETTINGS)
@place_argument
@trial_option
@json_option
@trust_options
def ls(place: str, trial: str | None, as_json: bool, trust: Sequence[str], trust_run: bool) -> int:
    """List the checkpoints of a run or a trial, oldest first.

    The last column says why each is kept; `-` goes with the next save.
    """
    trust_code(place, trust=trust, trust_run=trust_run)
    trials = find_trials(place, trial)
    found: dict[str, list[facts.Entry]] = {}
    for one in list(trials):
        try:
            found[one.name] = facts.entries(one)
        except DamagedFile as error:
            if len(trials) == 1:
                raise
            trials.remove(one)
            echo(str(error), err=True)
    if as_json:
        echo_json({name: [dataclasses.asdict(entry) for entry in one] for name, one in found.items()})
        return DONE
    console = make_console()
    for one in trials:
        _print_list(one, found[one.name])
        for path in facts.others(one):
            echo(f"no checkpoint: {path.name}, {size(facts.num_bytes(path))}")
    total = sum(entry.num_bytes for one in found.values() for entry in one)
    console.print(f"{count(sum(map(len, found.values())), 'checkpoint')}, {size(total)}")
    return DONE


@click.command("show", context_settings=_SETTINGS)
@place_argument
@click.argument("step", default="latest")
@trial_option
@metric_option
@mode_option
@json_option
@trust_options
def show(
    place: str,
    step: str,
    trial: str | None,
    metric: str | None,
    mode: str | None,
    as_json: bool,
    trust: Sequence[str],
    trust_run: bool,
) -> int:
    """Show what is in one checkpoint: STEP is a number, latest or best."""
    trust_code(place, trust=trust, trust_run=trust_run)
    folder = find_one(place, trial)
    chosen = facts.parse_step(step, folder, metric=metric, mode=mode)
    path = ckpts.step_path(folder.checkpoints, chosen)
    metadata = ckpts.read_metadata(path)
    if "state" not in metadata:
        raise ConfigError(f"{path}: damaged, its metadata can't be read.")
    measured = facts.metrics(chosen, metadata, rundir.read_eval_results(folder))
    if as_json:
        echo_json({"path": str(path), "num_bytes": facts.num_bytes(Path(path)), **metadata, "metrics": measured})
        return DONE
    rows = facts.arrays(metadata)
    console = make_console()
    table = [(place, text, size(num_bytes)) for place, text, num_bytes in rows]
    console.print(make_table([("array", "left"), ("type", "left"), ("size", "right")], table))
    parts = ", ".join(f"{part} {size(num_bytes)}" for part, num_bytes in facts.sums(rows).items())
    saved_at = datetime.datetime.fromtimestamp(metadata.get("saved_at") or 0).isoformat(" ", "seconds")
    echo(f"{path}\nsaved {saved_at} at step {metadata.get('step')}, {size(facts.num_bytes(Path(path)))} on disk")
    echo(f"in memory: {parts}")
    for name, value in measured.items():
        echo(f"{name}: {number(value)}")
    return DONE


@click.command("verify", context_settings=_SETTINGS)
@place_argument
@click.argument("steps", nargs=-1, metavar="[STEP]...")
@trial_option
def verify(place: str, steps: Sequence[str], trial: str | None) -> int:
    """Read all of the checkpoints (of one trial: of some steps), and report damage.

    Exits with 1 if there is any. Changes nothing: a trainer that meets damage sets it aside by itself.
    """
    trials = [find_one(place, trial)] if steps and steps != ("all",) else find_trials(place, trial)
    num_checked = num_damaged = 0
    for one in trials:
        for step in _steps(one, steps):
            path = ckpts.step_path(one.checkpoints, step)
            problems = ckpts.verify(path)
            if not path.exists():
                echo(f"{one.name} step {step}: removed meanwhile")
                continue
            num_checked += 1
            num_damaged += bool(problems)
            echo(f"{one.name} step {step}: {'damaged' if problems else 'whole'}")
            for problem in problems:
                echo(f"  {problem}")
    echo(f"{count(num_checked, 'checkpoint')} read, {num_damaged} damaged")
    return FAILED if num_damaged else DONE


@click.command("rm", context_settings=_SETTINGS)
@place_argument
@click.argument("steps", nargs=-1, required=True, metavar="STEP...")
@trial_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@trust_options
def rm(place: str, steps: Sequence[str], trial: str | None, yes: bool, trust: Sequence[str], trust_run: bool) -> int:
    """Remove checkpoints of a trial. Asks first.

    The latest of an unfinished trial stays, and so does what was not written for this trial.
    """
    trust_code(place, trust=trust, trust_run=trust_run)
    folder = find_one(place, trial)
    rundir.refuse_links(folder.run() or folder)
    chosen = sorted({facts.parse_step(step, folder) for step in steps})
    latest = ckpts.latest_step(folder.checkpoints)
    if latest in chosen and folder.status() not in rundir.TERMINAL:
        raise ConfigError(
            f"STEP: {latest} is the latest checkpoint, and the trial is {folder.status()}: it goes on from there. "
            "Leave it out, or remove the run."
        )
    total = sum(facts.num_bytes(Path(ckpts.step_path(folder.checkpoints, step))) for step in chosen)
    what = f"{count(len(chosen), 'checkpoint')} of {folder.name} ({listing(map(str, chosen))}), {size(total)}"
    if not yes and not confirm(f"Remove {what}?"):
        echo("nothing was removed")
        return DONE
    facts.checkpointer_of(folder).remove(chosen)
    echo(f"removed {what}")
    return DONE


def _steps(trial: rundir.TrialDir, steps: Sequence[str]) -> list[int]:
    if not steps or steps == ("all",):
        return ckpts.all_steps(trial.checkpoints)
    return [facts.parse_step(step, trial) for step in steps]


def _print_list(trial: rundir.TrialDir, found: list[facts.Entry]) -> None:
    columns = [("step", "right"), ("size", "right"), ("age", "right"), ("metrics", "left"), ("kept", "left")]
    rows = [
        (
            str(entry.step),
            size(entry.num_bytes),
            "-" if entry.saved_at is None else duration(max(time.time() - entry.saved_at, 0)),
            _metrics(entry.metrics),
            ", ".join(entry.kept) or "-",
        )
        for entry in found
    ]
    make_console().print(make_table(columns, rows, title=f"{trial.name} ({trial.status()})"))


def _metrics(values: dict[str, float]) -> str:
    shown = [f"{name} {number(value)}" for name, value in list(values.items())[:_MAX_METRICS]]
    more = [f"and {len(values) - _MAX_METRICS} more"] if len(values) > _MAX_METRICS else []
    return ", ".join([*shown, *more]) or "-"
