"""`kdr sweep`: every trial of a sweep on Ray, evaluated and recorded. Also `python -m pipelines.sweep`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

import ray_cluster
from pipelines import experiment as experiments
from pipelines import planning
from pipelines.cli.commands import OverrideCommand, sorted_words, typed_command
from pipelines.cli.run import DONE, FAILED, run
from pipelines.report import LiveReport, count, make_console, make_table, print_results
from pipelines.tracking import RecorderProcess
from pipelines.watching import watchers

HELP = """Train and evaluate every trial of a sweep on Ray.

CONFIG is a Python file with get_config(), or a config.json.

\b
  --cfg.PATH=VALUE        one value of the config
  --sweep.PATH=VALUES     an axis: '[1e-3, 1e-2]', 'range(5)', 'loguniform(1e-4, 1e-1)'; several axes multiply
  --sweep.A,B=ROWS        paths that move together: '[(1, 2), (3, 4)]'
  --sweep, --sweep=NAME   the points of sweep() or sweep_NAME() of the config file
  --trials=FILE           one trial a line
  --run.PATH=VALUE        the run: name, root, resources, max_concurrent, max_failures, metric, mode, num_samples, seed
  --args.NAME=VALUE       an argument of get_config()

A run whose name exists goes on: what is done stays, what is missing runs. A trial that was killed, lost its node or
hung is resumed from its last checkpoint, up to run.max_failures times; an exception is retried once, and the same text
twice ends the trial.
"""

EPILOG = """\b
Examples:
  kdr sweep pipelines/configs/digits.py --sweep.optimizer.learning_rate='[1e-3, 1e-2]' --run.name=demo
  kdr sweep pipelines/configs/digits.py --sweep.model.hidden='[32, 128]' --cfg.num_train_steps=200 --dry-run
  kdr sweep pipelines/configs/digits.py --sweep.seed='range(5)' --run.resources="{'CPU': 2}"
"""


@click.command("sweep", cls=OverrideCommand, help=HELP, epilog=EPILOG, context_settings={"max_content_width": 120})
@click.option("--address", help="Ray to join: host:port of its head, or 'local'. Default: RAY_ADDRESS, else local.")
@click.option("--dry-run", is_flag=True, help="Print the trials and start nothing.")
@click.option("--retry-failed", is_flag=True, help="Run the failed trials of an existing run again.")
@click.option("--no-tracking", is_flag=True, help="Do not record in MLflow.")
@click.option("--trust", multiple=True, metavar="PACKAGE", help="Let configs call this package; may be repeated.")
@click.pass_context
def command(
    ctx: click.Context, address: str | None, dry_run: bool, retry_failed: bool, no_tracking: bool, trust: Sequence[str]
) -> int:
    """Prepares everything, then starts it."""
    words, typed = sorted_words(ctx), typed_command(ctx)
    spec = experiments.read_spec(words)
    if dry_run:
        _print_plan(planning.prepare(words, spec, trust=trust, command=typed))
        return DONE
    with watchers(spec, no_tracking=no_tracking) as (report, recorder):
        prepared = planning.prepare(words, spec, trust=trust, command=typed, retry_failed=retry_failed)
        return start(prepared, report=report, recorder=recorder, address=address)


def start(
    prepared: planning.Prepared, *, report: LiveReport, recorder: RecorderProcess | None, address: str | None = None
) -> int:
    """Runs what is missing of a sweep, shows it, and returns the exit status.

    Args:
      prepared: The sweep.
      report: Shows progress.
      recorder: Records in MLflow, if that is wanted.
      address: Where Ray is.
    """
    prepared.write_code()
    report.expect(evaluators=prepared.evaluators, ranking=prepared.ranking)
    report.say(f"{count(len(prepared.plan.trials), 'trial')} in {prepared.plan.run_dir}")
    sidecars = [report, *([recorder] if recorder is not None else [])]
    try:
        results = ray_cluster.run(prepared.plan, address=address, sidecars=sidecars)
    except (KeyboardInterrupt, SystemExit):
        report.say(f"Not everything is done. To go on: {prepared.resume_command}")
        raise
    print_results(
        report.console,
        results,
        view_command=recorder.store.view_command if recorder is not None else None,
        evaluators=prepared.evaluators,
        ranking=prepared.ranking,
    )
    if not results.ok:
        has_failed = any(row.status == "failed" for row in results.rows)
        report.say(f"Not everything is done. To go on: {prepared.resume_command}{' --retry-failed' * has_failed}")
    return DONE if results.ok else FAILED


def _print_plan(prepared: planning.Prepared) -> None:
    """Prints what would run."""
    plan, console = prepared.plan, make_console()
    rows = [
        [trial.name, ", ".join(f"{path}={value!r}" for path, value in trial.overrides), trial.fingerprint]
        for trial in plan.trials
    ]
    console.print(
        make_table([("trial", "left"), ("overrides", "left"), ("identity", "left")], rows, width=console.width)
    )
    resources = ", ".join(f"{amount:g} {name}" for name, amount in plan.sweep.resources.items())
    console.print(f"trials      {len(plan.trials)}, each with {resources}", markup=False, soft_wrap=True)
    console.print(f"evaluators  {', '.join(prepared.evaluators) or 'none'}", markup=False, soft_wrap=True)
    console.print(f"run         {plan.run_dir}", markup=False, soft_wrap=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `kdr sweep` and returns its exit status."""
    return run(command, argv, program="python -m pipelines.sweep")


if __name__ == "__main__":
    sys.exit(main())
