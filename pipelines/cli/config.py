"""`kdr config show|diff|validate|schema`: what a config says, before anything runs."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import click

from kauldron_core import konfig, rundir, sweeps
from kauldron_core.errors import ConfigError
from kauldron_core.konfig.showing.changes import change_texts, pretty_diff, value_changes
from kauldron_core.konfig.showing.leaves import leaves_of
from kauldron_core.konfig.tree.comparing import Change
from pipelines import experiment as experiments
from pipelines.cli.commands import LazyGroup, OverrideCommand, sorted_words
from pipelines.cli.trust import trust_code, trust_options
from pipelines.cli.words.command import Command
from pipelines.operations import find_folder
from pipelines.report import make_console, make_table
from pipelines.terminal import echo

COMMANDS = {
    "show": ("pipelines.cli.config:show", "Print a config with the overrides applied, and what they changed."),
    "diff": ("pipelines.cli.config:diff", "Compare two configs, or two trials."),
    "validate": ("pipelines.cli.config:validate", "Build the config and trace one training step, on no device."),
    "schema": ("pipelines.cli.config:schema", "List every leaf that can be overridden."),
}

EPILOG = """\b
Examples:
  kdr config show pipelines/configs/digits.py --cfg.model.hidden=32
  kdr config diff runs/demo/trials/0 runs/demo/trials/3
  kdr config validate pipelines/configs/digits.py --sweep.model.hidden='[32, 128]'
  kdr config schema pipelines/configs/digits.py
"""


@click.group("config", cls=LazyGroup, table=COMMANDS, epilog=EPILOG, context_settings={"max_content_width": 110})
def config() -> None:
    """Look at a config without running it."""


class TwoConfigs(OverrideCommand):
    """A command that takes one config or two."""

    word = "CONFIG [CONFIG]"
    max_words = 2


@click.command("show", cls=OverrideCommand)
@click.option(
    "--format",
    "form",
    type=click.Choice(["python", "json"]),
    default="python",
    show_default=True,
    help="What to print.",
)
@click.option("--trial", metavar="NUMBER", type=int, help="The config of one trial of the sweep.")
@trust_options
@click.pass_context
def show(ctx: click.Context, form: str, trial: int | None, trust: Sequence[str], trust_run: bool) -> None:
    """Print a config with the overrides applied; lines that they changed say what was there."""
    words = _trusted_words(ctx, trust, trust_run)
    base, cfg = _before_and_after(words)
    if trial is not None:
        cfg = _trial(words, trial).config(cfg)
    if form == "json":
        # The marks go to standard error, so that what is printed stays JSON.
        echo(konfig.to_json(cfg, indent=2))
        for change in value_changes(base, cfg):
            echo(f"changed: {_line(change)}", err=True)
        return
    for line in pretty_diff(cfg, base).splitlines():
        is_marked = "  # was " in line or "  # new" in line or line.startswith("# removed")
        echo(line, colour="yellow" if is_marked else None)


@click.command("diff", cls=TwoConfigs)
@trust_options
@click.pass_context
def diff(ctx: click.Context, trust: Sequence[str], trust_run: bool) -> None:
    """Compare two configs, or two trials of runs; with one word, the config and what the overrides make of it.

    Each word is a config file, a JSON file or the folder of a trial. Overrides change the last one.
    """
    words = _trusted_words(ctx, trust, trust_run)
    if words.words:
        base = _read(_required(words.config), {})
        cfg = _overridden(_read(words.words[0], words.args), words)
    else:
        base, cfg = _before_and_after(words)
    changes = value_changes(base.config if isinstance(base, sweeps.ConfigFile) else base, cfg)
    if not changes:
        echo("no difference")
    console = make_console()
    if changes and console.is_terminal:
        rows = [change_texts(change) for change in changes]
        console.print(make_table([("path", "left"), ("first", "left"), ("second", "left")], rows))
        return
    for change in changes:
        echo(_line(change))


@click.command("validate", cls=OverrideCommand)
@trust_options
@click.pass_context
def validate(ctx: click.Context, trust: Sequence[str], trust_run: bool) -> None:
    """Build the config, or a sweep's trials of different structure, and trace one training step of each.

    Nothing is computed and no device is used: shapes, types and names are checked, in seconds.
    """
    from pipelines.cli import config_check  # brings JAX with it

    words = _trusted_words(ctx, trust, trust_run)
    config_check.keep_off_devices()
    experiment = experiments.read_experiment(words)
    spec = experiments.read_spec(words)
    trials = experiments.read_trials(words, experiment, spec)
    built = experiments.check_trials(experiment, trials)
    for name, trainer in built.items():
        report = config_check.trace_step(trainer, label=name if len(trials) > 1 else "")
        echo(f"{name if len(trials) > 1 else words.config}: {report}")
    if len(trials) > 1:
        echo(f"{len(trials)} trials are valid; {len(built)} of different structure or value were built and traced")


@click.command("schema", cls=OverrideCommand)
@click.option("--all", "show_all", is_flag=True, help="List arguments that the config leaves at their defaults, too.")
@trust_options
@click.pass_context
def schema(ctx: click.Context, show_all: bool, trust: Sequence[str], trust_run: bool) -> None:
    """List every leaf that can be overridden, with its type, its value and the line that documents it.

    Off a terminal the columns are separated by tabs.
    """
    words = _trusted_words(ctx, trust, trust_run)
    _, cfg = _before_and_after(words)
    leaves = [leaf for leaf in leaves_of(cfg) if leaf.is_set or show_all]
    rows = [[leaf.path, leaf.type, leaf.value, leaf.doc] for leaf in leaves]
    console = make_console()
    if not console.is_terminal:
        for row in rows:
            echo("\t".join(row))
        return
    console.print(make_table([(name, "left") for name in ("path", "type", "value", "documentation")], rows))


def _trusted_words(ctx: click.Context, trust: Sequence[str], trust_run: bool) -> Command:
    """Returns the sorted words of the command, after what its options trust is trusted."""
    words = sorted_words(ctx)
    for place in (words.config, *words.words):
        trust_code(place, trust=trust, trust_run=trust_run)
    return words


def _required(config_path: str | None) -> str:
    if config_path is None:
        raise ConfigError("the config file is missing. Example: pipelines/configs/digits.py")
    return config_path


def _before_and_after(words: Command) -> tuple[konfig.ConfigDict, konfig.ConfigDict]:
    """Returns the config that the command names, without and with its overrides."""
    file = _read(_required(words.config), words.args)
    base = copy.deepcopy(file.config)
    return base, _overridden(file, words)


def _overridden(file: sweeps.ConfigFile, words: Command) -> konfig.ConfigDict:
    konfig.apply_overrides(
        file.config, [f"{path}={text}" for path, text in words.cfg], aliases=file.aliases, read_axis=sweeps.parse_axis
    )
    return file.config


def _read(path: str, args: Any) -> sweeps.ConfigFile:
    """Returns the config in a file, or that of a trial's folder."""
    if not rundir.local_path(path, at="CONFIG").is_file() and find_folder(path).is_dir():
        trial = rundir.find_one_trial(find_folder(path))
        if not trial.exists():
            raise ConfigError(f"{path}: this folder is no trial, it has no {trial.config_path.name}.")
        path = str(trial.config_path)
    return sweeps.load_config_file(path, args)


def _trial(words: Command, number: int) -> sweeps.Trial:
    experiment = experiments.read_experiment(words)
    trials = experiments.read_trials(words, experiment, experiments.read_spec(words))
    if not 0 <= number < len(trials):
        raise ConfigError(f"--trial={number}: the sweep has {len(trials)} trials (0 to {len(trials) - 1}).")
    return trials[number]


def _line(change: Change) -> str:
    path, old, new = change_texts(change)
    return f"{path}: {old} -> {new}"
