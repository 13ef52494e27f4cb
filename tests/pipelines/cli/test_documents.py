"""Commands that pages, notebooks and the help show: each is taken, with its values, and does what can be tried."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest

import evaluators
from kauldron_core import rundir, train
from pipelines import experiment as experiments
from pipelines.cli import main
from pipelines.cli.app import kdr
from pipelines.cli.commands import LazyGroup, OverrideCommand, sorted_words
from pipelines.cli.words.command import Command, read_command
from tests.pipelines import whole_run
from tests.pipelines.cli.documented import ROOT, Documented, commands

DOCUMENTED = commands()
NEW_EVALS = """
from kauldron_core import konfig
from pipelines.configs import digits

with konfig.imports():
    from kauldron_core import kd


def get_config():
    cfg = digits.get_config()
    cfg.evals = {"once_more": kd.evals.Evaluator(run=kd.evals.StandaloneEveryCheckpoint(), ds=cfg.evals.test.ds)}
    return cfg
"""


def command_of(words: Sequence[str]) -> tuple[click.Context, list[str]]:
    """Returns the command that words name, as the context that has it, and the words that are left."""
    context, rest = click.Context(kdr, info_name="kdr"), list(words)
    while isinstance(context.command, LazyGroup) and rest and not rest[0].startswith("-"):
        command = context.command.get_command(context, rest[0])
        assert command is not None, rest[0]
        context = click.Context(command, parent=context, info_name=rest.pop(0))
    return context, rest


def context_of(words: Sequence[str]) -> click.Context:
    """Returns what Click makes of a command: it has taken its options and their values."""
    context, rest = command_of(words)
    assert not isinstance(context.command, LazyGroup), words
    with context.command.make_context(context.info_name, rest, parent=context.parent) as made:
        return made


@pytest.mark.parametrize("one", DOCUMENTED, ids=lambda one: " ".join(one.words))
def test_documented_commands_are_taken_with_their_values(one: Documented, monkeypatch: pytest.MonkeyPatch) -> None:
    """F40: also in sentences and notebooks; overrides fit the config, axes and the run spec too."""
    monkeypatch.chdir(ROOT)
    if one.is_mention:
        command_of(one.words)
        return
    context = context_of(one.words)
    if context.params.get("words"):  # Of `kdr submit`: a command of its own.
        context = context_of(context.params["words"])
    if isinstance(context.command, OverrideCommand):
        check_overrides(sorted_words(context))


def check_overrides(words: Command) -> None:
    """Applies the overrides of a command to its config; those of a run to the config that runs of the pages have."""
    if words.config is None or words.config.startswith("runs/"):
        words = read_command([whole_run.DIGITS, *(f"--cfg.{path}={text}" for path, text in words.cfg)])
    if not Path(str(words.config)).is_file():
        assert words.config in ("d.py", "RUN"), words.config
        return
    experiment = experiments.read_experiment(words)
    if "num_train_steps" in experiment.config:  # Not that of a pipeline.
        experiments.read_axes(words, experiment)
        experiments.read_spec(words)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of somebody who has followed the README: `runs/demo` is there, and a file with new evaluators."""
    folder = tmp_path_factory.mktemp("place")
    run = whole_run.lay_out(folder / "runs", "demo", *demo_axes(), small=whole_run.SHORT)
    for trial in run.trials():
        train.load_trial(trial).train()
        rundir.write_status(trial, "done", step=whole_run.STEPS)
        rundir.make_folder(trial.logs)
        (trial.logs / "stdout.log").write_text("compiling\n")
    evaluators.evaluate_run(run.path, step="latest")
    rundir.make_folder(run.path / "logs" / "evaluator-eval-0-0")
    for name in ("new.py", "new_evals.py", "today.py"):
        (folder / name).write_text(NEW_EVALS)
    return folder


def demo_axes() -> list[str]:
    return ["--sweep.optimizer.learning_rate=[1e-3, 1e-2]", "--sweep.model.hidden=[32, 128]"]


RUN_AS_THEY_ARE = ("status", "best", "logs", "ls", "eval", "ckpt", "config", "pipeline status")
RUN_SMALL = ("train", "sweep", "submit")


def tried() -> Iterator[Documented]:
    """Yields the commands that can be run here: they start no Ray, remove nothing, and no word stands for another."""
    for one in DOCUMENTED:
        line = " ".join(one.words)
        is_here = not any(part in line for part in ("--actors", "--address=head", "rm ", "RUN", "OTHER", "d.py"))
        is_short = "halving" not in line and "--seeds=40" not in line and "my_" not in line
        if not one.is_mention and is_here and is_short and line.startswith((*RUN_AS_THEY_ARE, *RUN_SMALL)):
            yield one


@pytest.mark.slow
@pytest.mark.parametrize("one", list(tried()), ids=lambda one: " ".join(one.words))
def test_documented_commands_do_what_they_say(
    one: Documented, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """F40: over one small run that is like the one of the README."""
    shutil.copytree(place, tmp_path, dirs_exist_ok=True, copy_function=os.link)
    monkeypatch.chdir(tmp_path)
    words = [*map(as_here, one.words), *added(one)]
    if one.words[0] == "submit":
        monkeypatch.chdir(ROOT)
        words = ["submit", "--dry-run", *one.words[1:]]
    assert main(words) == 0, capsys.readouterr().err


def as_here(word: str) -> str:
    """Returns a word with the places and steps of the small run."""
    word = word.replace("--run.root=/shared/runs", "--run.root=new").replace("/shared/", "")
    word = word.replace("pipelines/configs/", f"{ROOT}/pipelines/configs/")
    small = {
        "--step=500": f"--step={whole_run.STEPS}",
        "--cfg.num_train_steps=2000": f"--cfg.num_train_steps={2 * whole_run.STEPS}",
        "--cfg.model.hidden=64": "--cfg.model.hidden=32",  # A program that is compiled already.
    }
    return small.get(word, word)


def added(one: Documented) -> list[str]:
    """Returns what makes a command short, and keeps it from Ray and MLflow."""
    head, given = one.words[0], {word.partition("=")[0] for word in one.words}
    if head == "eval":
        return ["--no-tracking"]
    if head not in ("train", "sweep"):
        return []
    if "--resume" in given:
        return ["--dry-run"]
    own = {name.replace("--sweep", "--cfg") for name in given}
    small = [word for word in ("--cfg.model.hidden=128", *whole_run.SHORT) if word.partition("=")[0] not in own]
    if head == "train":
        return [*small, "--no-tracking"]
    return [*small, *(["--dry-run"] if "--dry-run" not in given else []), "--pack=off"]
