"""`kdr best RUN`: the best trial, its metrics, and the command that trains it again."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import Any

import click

from kauldron_core import konfig, rundir
from kauldron_core.errors import ConfigError, DamagedFile
from kauldron_core.konfig.overrides.places import find_place
from kauldron_core.konfig.showing.printing import pretty
from kauldron_core.rundir import Ranking
from pipelines.cli.run import DONE, run
from pipelines.cli.words.command import read_command
from pipelines.operations.finding import find_run, is_driven, status_of
from pipelines.operations.status import trials_table
from pipelines.recorded_command import recorded_words
from pipelines.report import make_console, number, ranking_of
from pipelines.report.state import SweepState, TrialState

EPILOG = """\b
Examples:
  kdr best demo
  kdr best demo --metric=test/metrics/accuracy --top=5
"""


@click.command("best", epilog=EPILOG, context_settings={"max_content_width": 120})
@click.argument("path", metavar="RUN")
@click.option("--metric", help="Metric that ranks the trials. Default: what ranks them in the run.")
@click.option("--mode", type=click.Choice(["max", "min"]), help="Which end of it is best. Default: the metric says it.")
@click.option("--top", type=click.IntRange(min=1), default=1, show_default=True, help="How many trials to show.")
def command(path: str, metric: str | None, mode: str | None, top: int) -> int:
    """Print the best trial of a run, its metrics and the command that trains it again.

    Trials count by the last value of their metric; the run may still be at work.
    """
    run_dir = find_run(path)
    state = SweepState(run_dir)
    state.poll()
    driven = is_driven(run_dir)
    for trial in state.trials.values():
        trial.status = status_of(trial.status, is_driven=driven)
    ranking = choose(run_dir, state, metric=metric, mode=mode)
    ranked = [one for one in state.ranked(ranking) if not ranking.badness(one.values.get(ranking.metric))[0]][:top]
    if not ranked:
        raise ConfigError(f"{run_dir.path}: no trial has a finite {ranking.metric!r} yet.")
    console = make_console()
    if top > 1:
        console.print(trials_table(ranked, [ranking.metric], width=console.width))
    damages = [f"damaged   {line}" for line in state.damages()]
    for line in [*_lines(run_dir, ranked[0], ranking), *damages]:
        console.print(line, markup=False, soft_wrap=True)
    return DONE


def choose(run_dir: rundir.RunDir, state: SweepState, *, metric: str | None, mode: str | None) -> Ranking:
    """Returns what ranks the trials of a run.

    Raises:
      ConfigError: If no trial has the metric, or nothing says which end of it is best.
    """
    if not state.metric_names:
        raise ConfigError(f"{run_dir.path}: no trial has a metric yet.")
    found = ranking_of(run_dir, state.metric_names, directions=state.directions, metric=metric, mode=mode)
    if found is None:
        raise ConfigError(f"{run_dir.path}: nothing ranks its trials. Say by what: --metric=NAME.")
    return found


def train_command(run_dir: rundir.RunDir, trial: rundir.TrialDir) -> str:
    """Returns the `kdr train` command that trains a trial again: the sweep's own, its point instead of the axes."""
    sweep = run_dir.readable_sweep
    words = read_command((recorded_words(run_dir) or ((), []))[1], program="kdr train")
    paths = next(
        (dict(row.get("overrides") or ()) for row in sweep.get("trials") or () if row["name"] == trial.name), {}
    )
    config = konfig.load(trial.config_path)
    parts = ["kdr", "train", words.config or str(trial.config_path)]
    if words.config is not None:
        parts += [f"--args.{name}={text}" for name, text in words.args.items()]
        parts += [f"--cfg.{path}={text}" for path, text in words.cfg if path not in paths]
        parts += [f"--cfg.{path}={_text(_listed(trial, config, path, value))}" for path, value in paths.items()]
    return shlex.join(parts)


def _listed(trial: rundir.TrialDir, config: konfig.ConfigDict, path: str, value: Any) -> Any:
    """Returns what the config of a trial has at a path, with its type, which the list of the run does not know.

    Raises:
      DamagedFile: If it has nothing there, or something else than what is listed.
    """
    try:
        found = find_place(config, path).slot.current
    except ConfigError:
        found = None
    is_simple = isinstance(value, str | int | float | bool | None)
    if (found is None and value is not None) or (is_simple and found != value):
        raise DamagedFile(f"{trial.config_path}: damaged, {path} is not {value!r} there, as the run lists it.")
    return found


def _text(value: Any) -> str:
    """Returns a value as an override text that gives it back."""
    return " ".join(pretty(value).split()) if isinstance(value, konfig.ConfigDict) else repr(value)


def _lines(run_dir: rundir.RunDir, best: TrialState, ranking: Ranking) -> list[str]:
    trial = run_dir.trial(best.name)
    is_named = ranking.reason not in ("evaluator", "training")
    hint = "" if is_named else "; nobody said by which metric, another: --metric=NAME"
    lines = [f"trial     {best.name} ({best.status} at step {best.step})"]
    lines += [f"by        {ranking.metric} {number(best.values[ranking.metric])}, {ranking.direction}{hint}"]
    lines += [f"          {name} {number(best.values[name])}" for name in sorted(best.values) if name != ranking.metric]
    return [*lines, f"folder    {trial.path}", f"train     {_train_command_or_why_not(run_dir, trial)}"]


def _train_command_or_why_not(run_dir: rundir.RunDir, trial: rundir.TrialDir) -> str:
    try:
        return train_command(run_dir, trial)
    except ValueError as error:  # A file of the trial or of the run is damaged; its numbers are shown all the same.
        return f"can't be told: {error}"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `kdr best` and returns its exit status."""
    return run(command, argv, program="kdr best")


if __name__ == "__main__":
    sys.exit(main())
