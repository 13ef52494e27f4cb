"""The driver of a sweep: lays out the run directory, starts everything, and returns what came of it."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Sequence
from dataclasses import replace

from kauldron_core import rundir
from ray_cluster import collect, environment, layout, placement, session
from ray_cluster.board import StatusBoard
from ray_cluster.evaluation import Evaluation
from ray_cluster.interrupts import Interrupts
from ray_cluster.jax_process import ProcessSettings
from ray_cluster.phases import Phases
from ray_cluster.results import Results
from ray_cluster.sidecars import SidecarThreads
from ray_cluster.spec import Plan, PlannedTrial, Resources, Sidecar
from ray_cluster.supervisor import SupervisorSettings

_EVALUATOR_NICENESS = 10
_UNFINISHED = ("queued", "running", "preempted")


def run(plan: Plan, *, address: str = "local", sidecars: Sequence[Sidecar] = ()) -> Results:
    """Runs what is missing of a plan and returns the state of all its trials.

    Trials that have ended in the run directory are left alone, unfinished ones go on from their last checkpoint, and
    evaluations that are due are done, also those of earlier trials.

    Args:
      plan: What to run.
      address: `local`, or `host:port` of a Ray cluster's head.
      sidecars: What watches the run.

    Raises:
      ConfigError: If the plan does not fit the run directory or the cluster.
      KeyboardInterrupt: After Ctrl-C, when the running trials have saved.
      SystemExit: Likewise after SIGTERM, with 143.
    """
    environment.keep_driver_on_cpu()
    run_dir = layout.lay_out(plan)
    with run_dir.lock(), Interrupts(run_dir) as interrupts:
        layout.write_trials(plan, run_dir)
        phases = Phases(run_dir)
        board = StatusBoard(run_dir, {trial.name: trial.overrides for trial in plan.trials})
        threads = SidecarThreads(sidecars, run_dir)
        threads.start()
        errors: list[str] = []
        try:
            if _is_anything_missing(plan, run_dir, board):
                _import_tune()
                with session.ray_session(run_dir, address):
                    interrupts.install()
                    phases.end("ray_start")
                    errors = _sweep(plan, run_dir, board, interrupts, phases)
        finally:
            results = collect.collect(plan, run_dir, phases_s=dict(phases.seconds), evaluator_errors=tuple(errors))
            collect.write_table(results, run_dir)
            threads.close(results)
        interrupts.raise_if_requested()
    return replace(results, sidecar_errors=tuple(threads.errors))


def _import_tune() -> None:
    """Imports Tune, which takes two seconds, beside the start of Ray, which mostly waits."""
    threading.Thread(target=importlib.import_module, args=("ray_cluster.tuning",), daemon=True).start()


def _is_anything_missing(plan: Plan, run: rundir.RunDir, board: StatusBoard) -> bool:
    return bool(board.names(*_UNFINISHED)) or bool(collect.pending_evaluations(plan, run))


def _sweep(plan: Plan, run: rundir.RunDir, board: StatusBoard, interrupts: Interrupts, phases: Phases) -> list[str]:
    """Trains and evaluates on the Ray that is connected; returns what kept evaluators from working."""
    nodes = session.node_resources()
    placement.refuse_impossible(plan, nodes)
    token = rundir.write_probe(run)
    session.check_nodes_see(run, token)
    evaluation = Evaluation(run, board)
    try:
        # Before the first trial: a later actor could wait for the whole sweep until a trial leaves it some room.
        for pool in placement.share_when_tight(plan.pools, plan, nodes):
            settings = replace(_settings(plan, run, pool.resources, token), niceness=_EVALUATOR_NICENESS)
            evaluation.place(pool, settings, environment.worker_variables(plan, pool.resources))
        evaluation.start()
        _train(plan, run, board, interrupts, phases, token)
        evaluation.finish(interrupts.is_requested)
        phases.end("last_evaluation")
    finally:
        evaluation.close()
    return evaluation.errors


def _train(
    plan: Plan, run: rundir.RunDir, board: StatusBoard, interrupts: Interrupts, phases: Phases, token: str
) -> None:
    from ray_cluster import tuning  # Being imported by now, see `_import_tune`.

    unfinished = set(board.names(*_UNFINISHED))
    trials = [trial for trial in plan.trials if trial.name in unfinished]
    if not trials:
        return
    watcher = tuning.run_trials(
        {trial.name: _kind(plan, trial) for trial in trials},
        settings={_kind(plan, trial): _supervisor_settings(plan, run, trial, token) for trial in trials},
        board=board,
        storage=run.path / ".tune",
        max_concurrent=plan.sweep.max_concurrent,
        is_stopping=interrupts.is_requested,
        on_broken_setup=interrupts.give_up,
    )
    # A stop can find a trial between two attempts: no process is left that could say how it stands.
    for name in board.names("running"):
        board.set(name, "preempted")
    phases.end("workers_ready", at=watcher.first_ready_at)
    phases.end("training")


def _kind(plan: Plan, trial: PlannedTrial) -> str:
    """Returns a text that is equal for trials which can share a worker."""
    resources = placement.trial_resources(plan.sweep, trial)
    return ",".join(f"{name}={amount:g}" for name, amount in sorted(resources.items()))


def _supervisor_settings(plan: Plan, run: rundir.RunDir, trial: PlannedTrial, token: str) -> SupervisorSettings:
    resources = placement.trial_resources(plan.sweep, trial)
    return SupervisorSettings(
        process=_settings(plan, run, resources, token),
        variables=environment.worker_variables(plan, resources),
        resources=resources,
        max_failures=plan.sweep.max_failures,
    )


def _settings(plan: Plan, run: rundir.RunDir, resources: Resources, token: str) -> ProcessSettings:
    return ProcessSettings(
        run_dir=str(run.path),
        probe=token,
        platform=environment.platform_of(resources),
        trust=plan.trust,
        # Beside the runs, so that the next sweep finds the programs of this one.
        compilation_cache=str(run.path.parent / ".jax_cache"),
    )
