"""`kdr sweep`: every trial of a sweep on Ray, evaluated and recorded. Also `python -m pipelines.sweep`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

import click

import ray_cluster
from kauldron_core import rundir
from kauldron_core.errors import ConfigError
from pipelines import experiment as experiments
from pipelines import extending, planning, sources
from pipelines.cli.commands import OverrideCommand, sorted_words, typed_command
from pipelines.cli.run import DONE, FAILED, run
from pipelines.cli.trust import trust_code, trust_options
from pipelines.cli.words.command import Command
from pipelines.dry_run import print_plan
from pipelines.going_on import going_on
from pipelines.mistakes import refuse_if_mistaken
from pipelines.operations import find_run
from pipelines.packing import with_packs
from pipelines.recorded_command import recorded_command
from pipelines.report import LiveReport, count, make_console, print_results, sources_of
from pipelines.report.tables import repeat_lines
from pipelines.settled import ranking_of_settled, results_if_settled
from pipelines.tracking import RecorderProcess
from pipelines.watching import watchers
from ray_cluster.driver import collect
from ray_cluster.results import Results, find_repeats
from ray_cluster.spec import Sweep

HELP = """Train and evaluate every trial of a sweep on Ray.

CONFIG is a Python file with get_config(), or a config.json.

\b
  --cfg.PATH=VALUE        one value of the config
  --sweep.PATH=VALUES     an axis: '[1e-3, 1e-2]', 'range(5)', 'loguniform(1e-4, 1e-1)'; several axes multiply
  --sweep.A,B=ROWS        paths that move together: '[(1, 2), (3, 4)]'
  --sweep, --sweep=NAME   the points of sweep() or sweep_NAME() of the config file
  --trials=FILE           one trial a line
  --run.PATH=VALUE        the run: name, root, resources, hosts, max_concurrent, pack, max_failures, metric, mode,
                          stop ('train/losses/total<=0.01'), num_samples, seed, seeds, search (optuna),
                          scheduler (asha, median, pbt), hang_timeout_s, time_budget_s, env; on a cluster that is
                          joined working_dir, py_modules, excludes; of a TPU slice accelerator (v6e), topology (4x4)
  --args.NAME=VALUE       an argument of get_config()

A run whose name exists goes on: what is done stays, what is missing runs. A trial that was killed, lost its node or
hung is resumed from its last checkpoint, up to run.max_failures times; an exception is retried once, and the same text
twice ends the trial.
"""

EPILOG = """\b
Examples:
  kdr sweep pipelines/configs/digits.py --sweep.optimizer.learning_rate='[1e-3, 1e-2]' \\
      --sweep.model.hidden='[32, 128]' --run.name=demo
  kdr sweep pipelines/configs/digits.py --sweep.model.hidden='[32, 128]' --seeds=5 --dry-run
  kdr sweep pipelines/configs/digits.py --sweep.model.hidden='[32, 64, 128]' --run.name=demo --extend
  kdr sweep CONFIG.py --sweep.optimizer.learning_rate='loguniform(1e-4, 1e-1)' --run.search=optuna \\
      --run.scheduler=asha --run.num_samples=50 --run.metric=train/losses/total
  kdr sweep --resume=runs/demo --retry-failed
"""


@click.command("sweep", cls=OverrideCommand, help=HELP, epilog=EPILOG, context_settings={"max_content_width": 120})
@click.option("--address", help="Ray to join: host:port of its head, or 'local'. Default: RAY_ADDRESS, else local.")
@click.option("--dry-run", is_flag=True, help="Print the trials and start nothing.")
@click.option("--resume", metavar="RUN", help="Go on with a run from what its folder says; takes no CONFIG and axes.")
@click.option("--retry-failed", is_flag=True, help="Run trials of an existing run again that failed or were stopped.")
@click.option("--extend", is_flag=True, help="Add the points that an existing run lacks to it.")
@click.option("--seeds", metavar="N", type=click.IntRange(min=1), help="Run each point with N seeds, and group them.")
@click.option("--pack", metavar="auto|off|N", help="Train trials that differ only in numbers in one program.")
@click.option("--strict", is_flag=True, help="Exit with 1 when a trial has diverged.")
@click.option("--no-tracking", is_flag=True, help="Do not record in MLflow.")
@trust_options
@click.pass_context
def command(
    ctx: click.Context,
    address: str | None,
    dry_run: bool,
    resume: str | None,
    retry_failed: bool,
    extend: bool,
    seeds: int | None,
    pack: str | None,
    strict: bool,
    no_tracking: bool,
    trust: Sequence[str],
    trust_run: bool,
) -> int:
    """Prepares everything, then starts it."""
    words = sorted_words(ctx)
    if pack is not None:
        words = replace(words, run=(*words.run, ("pack", pack)))
    trust_code(resume if resume is not None else words.config, trust=trust, trust_run=trust_run)
    spec = _read_spec(words, resume=resume, seeds=seeds)
    if resume is not None and extend:
        _refuse_nothing_to_add(find_run(resume), spec)

    def prepare() -> planning.Prepared:
        if resume is not None:
            run_dir = find_run(resume)
            return planning.resume(run_dir, changes=words.run, retry_failed=retry_failed)
        typed = typed_command(ctx)
        return planning.prepare(words, spec, command=typed, retry_failed=retry_failed, extend=extend)

    if dry_run:
        prepared = with_packs(prepare(), address=address)
        ray_cluster.check(prepared.plan, address=address)
        print_plan(make_console(), prepared, address=address)
        return DONE
    if resume is not None and not retry_failed:
        settled = results_if_settled(find_run(resume), spec)
        if settled is not None:
            with watchers(spec, no_tracking=no_tracking) as (report, recorder):
                return _show_settled(settled, spec, report=report, recorder=recorder, strict=strict)
    with watchers(spec, no_tracking=no_tracking) as (report, recorder):
        return start(prepare(), report=report, recorder=recorder, address=address, strict=strict)


def _read_spec(words: Command, *, resume: str | None, seeds: int | None) -> Sweep:
    """Returns the run spec of the command, or that of the run that goes on.

    Raises:
      ConfigError: If words are given that belong to a new sweep.
    """
    if resume is None:
        spec = experiments.read_spec(words)
        return spec if seeds is None else replace(spec, seeds=seeds)
    if words.config is not None or words.cfg or words.sweep or words.sweeps or words.trials or words.args or seeds:
        raise ConfigError(
            f"--resume={resume}: a run goes on with the config and the points that it has. Leave the others out, or"
            " repeat the command with its --run.name and --extend to add points."
        )
    return sources.read_spec(find_run(resume), words.run)


def _refuse_nothing_to_add(run: rundir.RunDir, spec: Sweep) -> None:
    """Refuses to extend a run by what it alone says, unless more samples of its axes are asked for."""
    if not extending.is_larger(run, spec):
        raise ConfigError(
            f"--extend: --resume={run.path} names no points to add. Leave it out, give more samples"
            " (--run.num_samples=N), or repeat the command that made the run with other axes and --extend:"
            f" {recorded_command(run)}"
        )


def start(
    prepared: planning.Prepared,
    *,
    report: LiveReport,
    recorder: RecorderProcess | None,
    address: str | None = None,
    strict: bool = False,
) -> int:
    """Runs what is missing of a sweep, shows it, and returns the exit status.

    Args:
      prepared: The sweep.
      report: Shows progress.
      recorder: Records in MLflow, if that is wanted.
      address: Where Ray is.
      strict: Whether a trial that diverged is a failure.
    """
    ray_cluster.check(prepared.plan, address=address)
    run_dir = rundir.RunDir(prepared.plan.run_dir)
    was_there = run_dir.exists()
    prepared = with_packs(prepared, address=address)
    with going_on(run_dir, command=prepared.resume_command):
        prepared.write_sources()
    if was_there and not prepared.plan.retry_failed:
        settled = results_if_settled(run_dir, prepared.plan.sweep)
        if settled is not None:
            return _show_settled(settled, prepared.plan.sweep, report=report, recorder=recorder, strict=strict)
    resources = ", ".join(f"{name} {amount:g}" for name, amount in prepared.plan.sweep.resources.items())
    report.expect(ranking=prepared.ranking, resources=resources)
    if prepared.plan.packs:
        report.say("\n".join(["packs", *(f"  {note}" for note in prepared.pack_notes)]))
    search = prepared.plan.sweep.search
    chosen = f", of {prepared.plan.sweep.num_samples} that {search} chooses," if search is not None else ""
    report.say(f"{count(len(prepared.plan.trials), 'trial')}{chosen} in {prepared.plan.run_dir}")
    for line in repeat_lines(find_repeats(prepared.plan.trials)):
        report.say(line)
    sidecars = [report, *([recorder] if recorder is not None else [])]
    try:
        with going_on(run_dir, command=prepared.resume_command):
            results = ray_cluster.run(prepared.plan, address=address, sidecars=sidecars)
    except (KeyboardInterrupt, SystemExit):
        report.say(f"Not everything is done. To go on: {prepared.resume_command}")
        raise
    refuse_if_mistaken(results, was_there=was_there)
    return _conclude(
        results,
        report=report,
        recorder=recorder,
        evaluators=prepared.evaluators,
        ranking=prepared.ranking,
        resume_command=prepared.resume_command,
        strict=strict,
    )


def _show_settled(
    results: Results, spec: Sweep, *, report: LiveReport, recorder: RecorderProcess | None, strict: bool
) -> int:
    """Shows a run in which nothing is missing; what a killed driver had still to write and to record is made up for."""
    run_dir = rundir.RunDir(results.run_dir)
    rundir.refuse_links(run_dir)
    collect.write_table(results, run_dir)
    if recorder is not None:
        recorder.start(run_dir)
        recorder.close(results)
    return _conclude(
        results,
        report=report,
        recorder=recorder,
        evaluators=tuple(sources_of(results.metric_names)),
        ranking=ranking_of_settled(results, spec),
        resume_command=f"kdr sweep --resume={results.run_dir}",
        strict=strict,
    )


def _conclude(
    results: Results,
    *,
    report: LiveReport,
    recorder: RecorderProcess | None,
    evaluators: tuple[str, ...],
    ranking: rundir.Ranking | None,
    resume_command: str,
    strict: bool,
) -> int:
    """Prints what came of a sweep, and returns the exit status."""
    view_command = recorder.store.view_command if recorder is not None else None
    print_results(report.console, results, view_command=view_command, evaluators=evaluators, ranking=ranking)
    for error in results.evaluator_errors:
        report.say(f"{count(len(results.pending_evaluations), 'evaluation')} not made: {' '.join(error.split())}")
    if not results.ok:
        has_failed = any(row.status == "failed" for row in results.rows)
        report.say(f"Not everything is done. To go on: {resume_command}{' --retry-failed' * has_failed}")
    has_diverged = strict and any(row.status == "diverged" for row in results.rows)
    return DONE if results.ok and not has_diverged else FAILED


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `kdr sweep` and returns its exit status."""
    return run(command, argv, program="python -m pipelines.sweep")


if __name__ == "__main__":
    sys.exit(main())
