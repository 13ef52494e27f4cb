"""`kdr ckpt export`: one checkpoint as a folder that needs nothing of the run it comes from."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

import click

from kauldron_core import ckpts, rundir
from kauldron_core.errors import ConfigError
from kauldron_core.konfig.trusting.code_copies import copy_code
from pipelines.cli import ckpt_facts as facts
from pipelines.cli.ckpt import metric_option, mode_option, place_argument, trial_option
from pipelines.cli.run import DONE
from pipelines.cli.trust import trust_code, trust_options
from pipelines.operations import find_one
from pipelines.report.tables import size
from pipelines.terminal import echo


@click.command("export", context_settings={"max_content_width": 110})
@place_argument
@click.argument("step", default="latest")
@trial_option
@metric_option
@mode_option
@click.option("--to", "target", metavar="FOLDER", required=True, help="The new folder.")
@trust_options
def export(
    place: str,
    step: str,
    trial: str | None,
    metric: str | None,
    mode: str | None,
    target: str,
    trust: Sequence[str],
    trust_run: bool,
) -> int:
    """Write one checkpoint and its config into a folder of their own: STEP is a number, latest or best.

    The folder is a trial that `kdr eval` and `kd.load_run` take. The arrays are copied, also those of a trial that was
    trained in a pack, whose own checkpoints only point to them.
    """
    trust_code(place, trust=trust, trust_run=trust_run)
    folder = find_one(place, trial)
    number = facts.parse_step(step, folder, metric=metric, mode=mode)
    path = rundir.local_path(target, at="--to")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ConfigError(f"--to={target}: is there already. Name a new folder.")
    if not folder.exists():
        raise ConfigError(f"{folder.path}: holds no config.json, which says what the arrays are.")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--to={target}: can't be made: {error.strerror}.") from error
    from kauldron_core import sharding  # JAX, which a mistake needs not wait for
    from kauldron_core.train import load_trial

    sharding.check_platform()
    trainer = load_trial(folder)
    found = ckpts.load(folder.checkpoints, trainer.state_specs, step=number)
    config_json = folder.config_path.read_text(encoding="utf-8")
    made = rundir.TrialDir(path).create(config_json)
    copy_code(config_json, path / "code")
    keeper = replace(trainer.checkpointer or ckpts.Checkpointer(), workdir=os.path.abspath(made))
    keeper.save(found.state, found.data_state, step=number)
    keeper.close()
    echo(f"exported {folder.name} step {number} to {path}, {size(facts.num_bytes(made.checkpoints))}")
    return DONE
