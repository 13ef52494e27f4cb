"""`kdr train`: one run in this process, without Ray, in the same run directory. Also `python -m pipelines.train`."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click

import evaluators
from kauldron_core import konfig, rundir
from kauldron_core.errors import ConfigError
from kauldron_core.machine import machine_fault
from pipelines import experiment as experiments
from pipelines import in_process, planning
from pipelines.cli.commands import OverrideCommand, sorted_words, typed_command
from pipelines.cli.run import DONE, FAILED, PREEMPTED, run
from pipelines.cli.trust import trust_code, trust_options
from pipelines.cli.words.command import Command
from pipelines.donors import check_donor, find_donor
from pipelines.going_on import going_on
from pipelines.mistakes import refuse_if_mistaken
from pipelines.report import LiveReport, print_results
from pipelines.terminal import print_traceback
from pipelines.tracking import RecorderProcess
from pipelines.watching import watchers
from ray_cluster.driver import collect, control, layout
from ray_cluster.driver.sidecars import SidecarThreads
from ray_cluster.workers import inheriting, stopping, trial_logs

_LOOK_EVERY_S = 0.5

HELP = """Train one run in this process, without Ray.

CONFIG is a Python file with get_config(), or a config.json.

\b
  --cfg.PATH=VALUE   one value of the config
  --run.PATH=VALUE   the run: name, root, env, metric, mode, stop ('train/losses/total<=0.01')
  --args.NAME=VALUE  an argument of get_config()

Stand-alone evaluators that are due run at the end. Ctrl-C and SIGTERM save a checkpoint first; a run whose name exists
goes on from its newest one.
"""

EPILOG = """\b
Examples:
  kdr train pipelines/configs/digits.py
  kdr train pipelines/configs/digits.py --cfg.model.hidden=128 --cfg.optimizer.learning_rate=1e-2 --run.name=wide
  kdr train pipelines/configs/digits.py --cfg.model.hidden=128 --cfg.num_train_steps=2000 --run.name=longer \\
      --start-from=runs/demo/trials/3
"""


class TrainCommand(OverrideCommand):
    """The command that takes no axes."""

    roots = ("cfg", "run", "args")

    def check_roots(self, ctx: click.Context, command: Command) -> None:
        """Refuses axes with the command that takes them."""
        if command.sweep or command.sweeps or command.trials:
            raise ConfigError(f"{ctx.command_path} runs one trial. For several: {_on_ray(ctx)}")


@click.command("train", cls=TrainCommand, help=HELP, epilog=EPILOG, context_settings={"max_content_width": 120})
@click.option("--start-from", metavar="RUN_OR_TRIAL", help="Go on from the newest checkpoint of another run.")
@click.option("--no-tracking", is_flag=True, help="Do not record in MLflow.")
@trust_options
@click.pass_context
def command(
    ctx: click.Context, start_from: str | None, no_tracking: bool, trust: Sequence[str], trust_run: bool
) -> int:
    """Prepares everything, then trains."""
    words = sorted_words(ctx)
    trust_code(words.config, trust=trust, trust_run=trust_run)
    spec = experiments.read_spec(words)
    in_process.tell_what_does_not_count([path for path, _ in words.run], command=_on_ray(ctx))
    donor = find_donor(start_from) if start_from is not None else None
    with in_process.variables(spec.env):
        from kauldron_core import sharding  # JAX: a mistake in the words needs not wait for it, its variables stand now

        sharding.check_platform()
        with watchers(spec, no_tracking=no_tracking) as (report, recorder):
            prepared = planning.prepare(
                words, spec, command=typed_command(ctx), retry_failed=True, may_use_accelerators=True
            )
            return start(prepared, report=report, recorder=recorder, donor=donor)


def _on_ray(ctx: click.Context) -> str:
    """Returns the command as it was typed, for Ray."""
    return typed_command(ctx).replace("train", "sweep", 1)


def start(
    prepared: planning.Prepared,
    *,
    report: LiveReport,
    recorder: RecorderProcess | None,
    donor: rundir.TrialDir | None = None,
) -> int:
    """Trains and evaluates what is missing of a run with one trial, and returns the exit status.

    Args:
      prepared: The run.
      report: Shows progress.
      recorder: Records in MLflow, if that is wanted.
      donor: Whose checkpoint to begin with; a run that has one of its own goes on with that.
    """
    plan = prepared.plan
    run_dir = rundir.RunDir(plan.run_dir)
    was_there = run_dir.exists()
    if donor is not None:
        name = plan.trials[0].name
        check_donor(donor, run_dir.trial(name), prepared.trainers[name])
    report.expect(ranking=prepared.ranking)
    report.say(f"run {plan.run_dir}")
    with going_on(run_dir, command=prepared.resume_command), _laid_out(prepared).lock():
        layout.write_trials(plan, run_dir)
        if donor is not None:
            inheriting.begin_from(donor, run_dir.trial(plan.trials[0].name))
        threads = SidecarThreads([report, *([recorder] if recorder is not None else [])], run_dir)
        threads.start()
        try:
            trial = run_dir.trial(plan.trials[0].name)
            with trial_logs.copied_output(trial.logs):
                status = _train_and_evaluate(trial, plan.sweep.stop_rules)
        except KeyboardInterrupt:
            report.say(f"Stopped before the end. To go on: {prepared.resume_command}")
            raise
        finally:
            results = collect.collect(plan, run_dir)
            try:
                collect.write_table(results, run_dir)
            finally:
                threads.close(results)
    refuse_if_mistaken(results, was_there=was_there)
    print_results(
        report.console,
        results,
        view_command=recorder.store.view_command if recorder is not None else None,
        evaluators=prepared.evaluators,
        ranking=prepared.ranking,
    )
    if status == "preempted":
        report.say(f"Stopped before the end. To go on: {prepared.resume_command}")
        return PREEMPTED
    is_done = status == "done" or any(rule.has_ended(results.rows[0].reason) for rule in plan.sweep.stop_rules)
    return DONE if is_done and results.ok else FAILED


def _laid_out(prepared: planning.Prepared) -> rundir.RunDir:
    """Returns the run directory, made with what the run can go on from."""
    prepared.write_sources()
    return layout.lay_out(prepared.plan)


def _train_and_evaluate(trial: rundir.TrialDir, rules: Sequence[stopping.StopRule]) -> str:
    """Trains a trial to its end, if it has not got there, then evaluates what is due; returns its status."""
    if trial.status() not in rundir.TERMINAL:
        _train(trial, rules)
    if trial.status() in ("done", "stopped", "diverged"):
        evaluators.evaluate_run(trial.path, step="due", trust=konfig.trusted_packages())
        evaluators.remove_surplus(trial)
    return trial.status()


def _train(trial: rundir.TrialDir, rules: Sequence[stopping.StopRule]) -> None:
    """Trains, and keeps the status file up to date whatever happens."""
    from kauldron_core.train import Saved, load_trial  # JAX

    rundir.write_status(trial, "running")
    last: Any = None
    try:
        with _stop_on_request(trial) as stop, _keeping_what_is_due(trial) as look:
            for event in load_trial(trial).iter_train(stop=stop, until=stopping.until(rules)):
                last = event
                if isinstance(event, Saved):
                    look()
        _write_ending(trial, last)
    except KeyboardInterrupt:  # it has saved by now
        rundir.write_status(trial, "preempted")
        raise
    except (Exception, SystemExit) as error:  # `exit(1)` in the user's code is a failure, too
        fault = machine_fault(error)
        is_of_run = fault is not None and (not fault.is_mistake or str((trial.run() or trial).path) in fault.text)
        with contextlib.suppress(*([OSError] if is_of_run else [])):  # A full disk takes no status, either.
            rundir.write_status(trial, "failed", error=f"{type(error).__name__}: {error}")
        if is_of_run:
            raise
        if not isinstance(error, ConfigError):  # A mistake of the user's says all there is in its own line.
            print_traceback(error)


@contextlib.contextmanager
def _keeping_what_is_due(trial: rundir.TrialDir) -> Iterator[Callable[[], object]]:
    """Keeps the checkpoints that are evaluated after training; yields what to call when there is a new one."""
    watch = evaluators.RunWatch((trial.run() or trial).path, evaluators.standalone_strategies(trial))
    backlog = evaluators.Backlog(trial, run_watch=watch)
    try:
        yield lambda: backlog.look(finished=False)
    finally:
        backlog.close()
        watch.close()


def _write_ending(trial: rundir.TrialDir, last: Any) -> None:
    """Writes how training ended, and why where it did not make all its steps."""
    status, reason = getattr(last, "status", "failed"), getattr(last, "reason", "")
    asked = control.stop_reason(trial.run() or trial.path, trial.name)
    if status == "preempted" and asked:
        status, reason = "stopped", asked
    fields: dict[str, Any] = {"reason": reason} if reason else {}
    rundir.write_status(trial, status, **fields)


@contextlib.contextmanager
def _stop_on_request(trial: rundir.TrialDir) -> Iterator[threading.Event]:
    """Yields an event that is set when somebody says `kdr stop`."""
    run_dir, stop, is_over = trial.run() or trial.path, threading.Event(), threading.Event()

    def watch() -> None:
        while not is_over.wait(_LOOK_EVERY_S):
            if control.is_stop_requested(run_dir) or control.stop_reason(run_dir, trial.name):
                stop.set()
                return

    threading.Thread(target=watch, name="control", daemon=True).start()
    try:
        yield stop
    finally:
        is_over.set()


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `kdr train` and returns its exit status."""
    return run(command, argv, program="python -m pipelines.train")


if __name__ == "__main__":
    sys.exit(main())
