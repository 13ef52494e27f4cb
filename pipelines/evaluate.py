"""`kdr eval`: checkpoints of a run that exists. Also `python -m pipelines.evaluate`."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import evaluators
from kauldron_core import konfig, rundir, sweeps
from kauldron_core.errors import ConfigError, listing
from pipelines.cli.commands import OverrideCommand, sorted_words
from pipelines.cli.run import DONE, FAILED, run
from pipelines.cli.signals import ending_as_on_sigterm
from pipelines.cli.trust import trust_code, trust_options
from pipelines.operations import find_folder, find_run
from pipelines.report import make_console, make_table, number
from pipelines.terminal import echo
from pipelines.tracking import RecorderProcess, Store
from ray_cluster.driver import layout
from ray_cluster.evaluations import eval_jobs
from ray_cluster.evaluations.job import EvalJob, shared_folder

if TYPE_CHECKING:
    from rich.console import Console

_PATIENCE_S = 3600.0

HELP = """Evaluate checkpoints of a run that exists.

RUN is a run directory (all its trials) or the folder of one trial. What has a result already is not evaluated again.

\b
  --cfg.PATH=VALUE  a changed setting, such as --cfg.evals.test.num_batches=2; needs --as
"""

EPILOG = """\b
Examples:
  kdr eval runs/demo --step=latest
  kdr eval runs/demo/trials/0003-learning_rate=0.01-hidden=128 --step=all --evals=test
  kdr eval runs/demo --step=500 --evals=test --cfg.evals.test.num_batches=2 --as=test-short
  kdr eval runs/demo --step=best --metric=test/metrics/accuracy --evals=new_evals.py
  kdr eval runs/demo --follow
  kdr eval runs/demo --step=all --actors=2
  kdr eval runs/demo --evals=big --shards=8 --actors=8 --address=head:6379
"""


class EvalCommand(OverrideCommand):
    """The command whose word is a run."""

    word = "RUN"
    roots = ("cfg",)


@click.command("eval", cls=EvalCommand, help=HELP, epilog=EPILOG, context_settings={"max_content_width": 120})
@click.option("--step", show_default="latest", help="latest, best, all, due, or the number of a step.")
@click.option("--metric", metavar="NAME", help="What --step=best goes by, test/metrics/accuracy. Default: the run's.")
@click.option("--mode", type=click.Choice(["max", "min"]), help="Which end of it is best. Default: the metric says it.")
@click.option("--follow", is_flag=True, help="Evaluate checkpoints as they land, until training has ended.")
@click.option("--order", show_default="oldest", help="With --follow: oldest, newest, or latest only.")
@click.option("--patience-s", type=float, show_default="3600", help="With --follow: how long to wait for news.")
@click.option(
    "--evals",
    metavar="FILE_OR_NAMES",
    help="Evaluators, with commas, or a config file with others. Default: the stand-alone ones, else all.",
)
@click.option("--shards", default=1, show_default=True, help="Evaluate so many shares of the data and merge them.")
@click.option("--actors", type=int, metavar="N", help="Evaluate in N processes on Ray. Default: in this process.")
@click.option("--address", help="Ray to join for that: host:port of its head. Default: RAY_ADDRESS, else a new one.")
@click.option("--again", is_flag=True, help="Evaluate what has a result, too; the old result is kept aside.")
@click.option("--as", "as_name", metavar="NAME", help="Record under this name.")
@click.option("--no-tracking", is_flag=True, help="Do not record in MLflow.")
@trust_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    no_tracking: bool,
    trust: Sequence[str],
    trust_run: bool,
    actors: int | None,
    address: str | None,
    shards: int,
    **options: Any,
) -> int:
    """Evaluates, shows each result as it is there, and prints a table."""
    words = sorted_words(ctx)
    if words.config is None:
        raise ConfigError("the run is missing. Example: kdr eval runs/demo")
    path, console = find_folder(rundir.local_path(words.config, at="RUN")), make_console()
    if not path.exists():
        find_run(words.config)  # Says which runs there are.
    run_dir = _run_of(path)
    rundir.refuse_links(run_dir or path)
    trust_code(path, trust=trust, trust_run=trust_run)
    overrides = [f"{where}={text}" for where, text in words.cfg]
    variables = own_variables(run_dir)
    run_on_actors = _on_actors(path, actors, address, evals=options["evals"], shards=shards, env=variables)
    if run_on_actors is None:
        from kauldron_core import sharding  # JAX, which a mistake in the words needs not wait for

        sharding.check_platform()
    source = _source(path, overrides, **options)
    if isinstance(source, evaluators.EvalPlan) and source.chosen_by:
        console.print(f"best by {source.chosen_by}", markup=False, soft_wrap=True)

    def tell(record: rundir.Record) -> None:
        console.print(_line(record), markup=False, soft_wrap=True)

    recorder = None if no_tracking or run_dir is None else _start_recorder(run_dir, console)
    try:
        with ending_as_on_sigterm(), rundir.in_use(run_dir or path):
            if run_on_actors is not None:
                records = run_on_actors(source, on_record=tell)
            else:
                records = evaluators.evaluate_source(source, shards=shards, on_record=tell)
    finally:
        if isinstance(source, evaluators.Following):
            source.close()
        if recorder is not None:
            recorder.close()
    _print(console, records)
    return DONE if all(record["status"] == "done" for record in records) else FAILED


def own_variables(run: rundir.RunDir | None) -> dict[str, str]:
    """Returns the variables of this process that a run was made with, and says which of them are not set here.

    A run keeps their names alone (`--run.env`), so what they are is this process's own.
    """
    names = layout.variables_of(run) if run is not None else ()
    missing = [name for name in names if name not in os.environ]
    if missing:
        echo(
            f"note: the run was made with {listing(missing)} (--run.env), not set here; where it matters to the"
            f" numbers: {missing[0]}=VALUE kdr eval ...",
            err=True,
        )
    return {name: os.environ[name] for name in names if name in os.environ}


def _on_actors(
    path: Path,
    num_actors: int | None,
    address: str | None,
    *,
    evals: str | None,
    shards: int,
    env: Mapping[str, str],
) -> Callable[..., list[rundir.Record]] | None:
    """Returns what makes evaluations on Ray, None if they are made in this process."""
    if num_actors is None and address is None:
        return None
    folder = shared_folder(path)
    file = _file_of(evals)
    if file is not None:
        imported = sweeps.load_config_file(file).imported
        if imported is not None and imported.is_copied:
            imported.copy_to(folder.code)  # From where the actors import it.
            konfig.trust(imported.module.__name__)  # The user has named this file.
    trusted = konfig.trusted_packages()
    job = EvalJob(run_dir=str(folder.path), num_actors=num_actors, shards=shards, trust=trusted, env=env)
    return functools.partial(eval_jobs.evaluate, job=job, address=address)


def _source(
    path: Path,
    overrides: Sequence[str],
    *,
    step: str | None,
    metric: str | None,
    mode: Any,
    follow: bool,
    order: Any,
    patience_s: float | None,
    evals: str | None,
    again: bool,
    as_name: str | None,
) -> evaluators.EvalPlan | evaluators.Following:
    """Returns the evaluations that the options describe."""
    file = _file_of(evals)
    names = [name.strip() for name in evals.split(",")] if evals and not file else None
    if not follow:
        if step != "best" and (metric or mode):
            raise ConfigError(f"--{'metric' if metric else 'mode'}: says what --step=best goes by. Add --step=best.")
        if order is not None or patience_s is not None:
            flag = "--patience-s" if order is None else "--order"
            raise ConfigError(f"{flag}: says how --follow goes about it. Add --follow.")
        return evaluators.plan_run(
            path,
            step=step or "latest",
            metric=metric,
            mode=mode,
            names=names,
            evals=file,
            again=again,
            as_name=as_name,
            overrides=overrides,
        )
    given = {
        "--again": again,
        "--as": as_name,
        "--cfg": overrides,
        f"--evals={file}": file,
        f"--step={step}": step,
        "--metric": metric,
        "--mode": mode,
    }
    for flag, value in given.items():
        if value:
            raise ConfigError(f"--follow: it evaluates the experiment as it is, so it doesn't go with {flag}.")
    patience_s = _PATIENCE_S if patience_s is None else patience_s
    return evaluators.Following(path, names=names, order=order or "oldest", patience_s=patience_s)


def _file_of(evals: str | None) -> str | None:
    """Returns the config file that `--evals` names, if it names one."""
    return evals if evals and evals.partition(":")[0].endswith((".py", ".json")) else None


def _run_of(path: Path) -> rundir.RunDir | None:
    """Returns the run directory that a path is or lies in."""
    run_dir = rundir.RunDir(path)
    return run_dir if run_dir.exists() else rundir.TrialDir(path).run()


def _start_recorder(run_dir: rundir.RunDir, console: Console) -> RecorderProcess | None:
    """Starts to record beside the evaluations. The driver of the run may be at work, so it is left alone."""
    if not run_dir.exists():
        return None
    fault = rundir.try_writing(run_dir.path)
    reason = f"{run_dir.path}: {fault.strerror}" if fault is not None else run_dir.damage()
    if reason is not None:
        console.print(f"not recorded in MLflow: {reason}", markup=False, soft_wrap=True)
        return None
    recorder = RecorderProcess(
        Store.at(run_dir.path.absolute().parent),
        warn=lambda line: console.print(line, markup=False, soft_wrap=True),
        is_driver=False,
    )
    recorder.start(run_dir)
    return recorder


def _line(record: dict[str, Any]) -> str:
    values = ", ".join(f"{name} {number(value)}" for name, value in (record.get("values") or {}).items())
    outcome = values or f"{record['status']}: {record.get('error')}"
    return f"{record['trial']}  {record['evaluator']} at step {record['step']}: {outcome}"


def _print(console: Console, records: Sequence[dict[str, Any]]) -> None:
    names = list(dict.fromkeys(name for record in records for name in record.get("values") or {}))
    columns = [("trial", "left"), ("evaluator", "left"), ("step", "right"), ("status", "left"), ("examples", "right")]
    rows = [
        [
            record["trial"],
            record["evaluator"],
            str(record["step"]),
            record["status"],
            str(record.get("num_examples", "-")),
            *(number((record.get("values") or {}).get(name)) for name in names),
        ]
        for record in records
    ]
    console.print(make_table([*columns, *((name, "right") for name in names)], rows, width=console.width))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `kdr eval` and returns its exit status."""
    return run(command, argv, program="python -m pipelines.evaluate")


if __name__ == "__main__":
    sys.exit(main())
