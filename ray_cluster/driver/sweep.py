"""The driver of a sweep: lays out the run directory, starts everything, and returns what came of it."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kauldron_core import rundir
from kauldron_core.errors import ConfigError, RunFailed
from ray_cluster.cluster import environment, placement, session, shipping, slices
from ray_cluster.driver import collect, layout
from ray_cluster.driver.board import StatusBoard
from ray_cluster.driver.ground import Ground, RayGone, RunGone
from ray_cluster.driver.interrupts import Interrupts
from ray_cluster.driver.phases import Phases
from ray_cluster.driver.sidecars import SidecarThreads
from ray_cluster.evaluations.evaluation import Evaluation
from ray_cluster.results import Results
from ray_cluster.searches.made_trials import GrowingTrials
from ray_cluster.spec import Plan, PlannedTrial, Resources, Sidecar
from ray_cluster.workers.jax_process import ProcessSettings
from ray_cluster.workers.supervisor import SupervisorSettings

if TYPE_CHECKING:
    from ray_cluster.driver import tuning

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
      RunFailed: If the run directory has gone. Where the Ray that was started here has, the process ends.
    """
    environment.keep_driver_on_cpu()
    run_dir = layout.lay_out(plan)
    with run_dir.lock(), Interrupts(run_dir, time_budget_s=plan.sweep.time_budget_s) as interrupts:
        layout.write_trials(plan, run_dir)
        sweeping = _Sweeping(plan, run_dir, interrupts)
        threads = SidecarThreads(sidecars, run_dir)
        threads.start()

        def conclude() -> Results:
            results = sweeping.results()
            try:
                if not isinstance(ground.lost, RunGone):
                    collect.write_table(results, run_dir)
            finally:
                threads.close(results)
            return results

        def abandon(loss: RunFailed) -> None:
            interrupts.abandon(loss)
            if isinstance(loss, RayGone):
                session.end_process(loss, conclude)

        ground = Ground(run_dir, abandon)
        try:
            if sweeping.is_anything_missing():
                _import_tune()
                with session.ray_session(run_dir, address, sends=shipping.runtime_env(plan.sweep)), ground:
                    ground.watch_ray(session.watch())
                    interrupts.install()
                    sweeping.phases.end("ray_start")
                    sweeping.run()
        finally:
            results = conclude()
        interrupts.raise_if_requested()
    return replace(results, sidecar_errors=tuple(threads.errors))


def _import_tune() -> None:
    """Imports Tune, which takes two seconds, beside the start of Ray, which mostly waits."""
    threading.Thread(target=importlib.import_module, args=("ray_cluster.driver.tuning",), daemon=True).start()


class _Sweeping:
    """One sweep of one driver: what it knows while it runs, and the order of things on the Ray that is connected."""

    def __init__(self, plan: Plan, run: rundir.RunDir, interrupts: Interrupts):
        self.plan = plan
        self._run = run
        self._interrupts = interrupts
        self.phases = Phases(run)
        self._board = StatusBoard(run, {trial.name: trial.overrides for trial in plan.trials})
        self._errors: list[str] = []
        self._max_concurrent = plan.sweep.max_concurrent

    def is_anything_missing(self) -> bool:
        """Returns whether any trial has to be made, or to run, or anything is to be evaluated."""
        is_unfinished = bool(self._board.names(*_UNFINISHED))
        return self._lacks_points() or is_unfinished or bool(collect.pending_evaluations(self.plan, self._run))

    def _lacks_points(self) -> bool:
        """Returns whether a search has to make more trials."""
        return self.plan.sweep.search is not None and len(self.plan.trials) < self.plan.sweep.num_samples

    def results(self) -> Results:
        """Returns how all trials stand."""
        phases = dict(self.phases.seconds)
        return collect.collect(self.plan, self._run, phases_s=phases, evaluator_errors=tuple(self._errors))

    def run(self) -> None:
        """Trains and evaluates."""
        nodes = session.node_resources()
        sweep = self.plan.sweep
        if sweep.tpu_slice is not None:
            # Each trial asks for its slice itself: more trials than slices would only wait for each other.
            num_slices = slices.count(sweep.tpu_slice)
            self._max_concurrent = min(num_slices, sweep.max_concurrent or num_slices)
        placement.refuse_impossible(self.plan, nodes)
        token = rundir.write_probe(self._run)
        session.check_nodes_see(self._run, token)
        evaluation = Evaluation(self._run, self._board)
        try:
            # Before the first trial: a later actor could wait for the whole sweep until a trial leaves it some room.
            for pool in placement.share_when_tight(self.plan.pools, self.plan, nodes):
                settings = replace(self._process(pool.resources, token), niceness=_EVALUATOR_NICENESS)
                evaluation.place(pool, settings, environment.worker_variables(self.plan, pool.resources))
            evaluation.start()
            self._train(token)
            evaluation.finish(self._interrupts.is_requested)
            self.phases.end("last_evaluation")
        finally:
            evaluation.close()
            self._errors = evaluation.errors

    def _train(self, token: str) -> None:

        unfinished = set(self._board.names(*_UNFINISHED))
        trials = [trial for trial in self.plan.trials if trial.name in unfinished]
        if not trials and not self._lacks_points():
            return
        kinds = {self._kind(trial.resources): self._supervisor(trial.resources, token) for trial in trials}
        kinds.setdefault(self._kind(None), self._supervisor(None, token))
        growing, adaptive = None, None
        if self.plan.sweep.is_adaptive:
            growing, adaptive = self._adaptive(kinds, unfinished)
        try:
            watcher = self._run_trials(self._jobs(trials, kinds), kinds, adaptive)
            if self.plan.sweep.pack_rule is not None:
                for name, error in watcher.broken.items():  # Alone there is nothing to compare them with.
                    self._board.set(name, "failed", error=error)
            elif watcher.broken and not self._interrupts.is_requested():
                alone = [self._told(trial, kinds) for trial in trials if trial.name in watcher.broken]
                self._run_trials(alone, kinds)
        finally:
            if growing is not None:
                self.plan = replace(self.plan, trials=tuple(growing.trials))
        # A stop can find a trial between two attempts: no process is left that could say how it stands.
        for name in self._board.names("running"):
            self._board.set(name, "preempted")
        self.phases.end("workers_ready", at=watcher.first_ready_at)
        self.phases.end("training")

    def _run_trials(
        self,
        jobs: Sequence[Mapping[str, Any]],
        kinds: Mapping[str, SupervisorSettings],
        adaptive: tuning.Adaptive | None = None,
    ) -> tuning.Watcher:
        from ray_cluster.driver import tuning  # Being imported by now, see `_import_tune`.

        return tuning.run_trials(
            jobs,
            settings=kinds,
            board=self._board,
            storage=self._run.path / ".tune",
            max_concurrent=self._max_concurrent,
            is_stopping=self._interrupts.is_requested,
            on_broken_setup=self._interrupts.give_up,
            adaptive=adaptive,
        )

    def _jobs(self, trials: Sequence[PlannedTrial], kinds: Mapping[str, SupervisorSettings]) -> list[dict[str, Any]]:
        """Returns what the supervisors are told: of the packs with trials that have not ended, then of the others."""
        from ray_cluster.driver import tuning

        unfinished = {trial.name for trial in trials}
        packs = [pack for pack in self.plan.packs if not unfinished.isdisjoint(pack.trials)]
        packed = {name for pack in packs for name in pack.trials}
        told = [tuning.describe(pack.name, self._kind(None), kinds, members=pack.trials) for pack in packs]
        return [*told, *(self._told(trial, kinds) for trial in trials if trial.name not in packed)]

    def _adaptive(
        self, kinds: Mapping[str, SupervisorSettings], unfinished: set[str]
    ) -> tuple[GrowingTrials | None, tuning.Adaptive]:
        """Returns the searcher and scheduler of the run, and where the searcher's trials come to be."""
        from ray_cluster.driver import tuning
        from ray_cluster.searches import searching

        sweep, search = self.plan.sweep, self.plan.search
        if search is None or sweep.metric is None or self.plan.ranking is None:
            raise ConfigError("plan: a search or scheduler needs `Plan.search` and a metric.")
        mode = self.plan.ranking.mode
        adaptive = tuning.Adaptive(metric=sweep.metric, mode=mode)
        if sweep.scheduler is not None:
            scheduler = searching.make_scheduler(
                sweep.scheduler, search.space, num_steps=search.num_steps, save_every=search.save_every
            )
            adaptive = replace(adaptive, scheduler=scheduler)
        if sweep.search is None:
            return None, adaptive
        growing = GrowingTrials(
            self.plan,
            search,
            run=self._run,
            board=self._board,
            unfinished=unfinished,
            describe=lambda trial: self._told(trial, kinds),
        )
        maker = searching.make_trials_with(self.plan, growing, self.results().rows)
        return growing, replace(adaptive, search_alg=maker, num_samples=growing.num_missing)

    def _told(self, trial: PlannedTrial, kinds: Mapping[str, SupervisorSettings]) -> dict[str, Any]:
        """Returns what the supervisor of a trial is told."""
        from ray_cluster.driver import tuning

        told = tuning.describe(trial.name, self._kind(trial.resources), kinds)
        search = self.plan.search
        if search is None or not self.plan.sweep.is_population:
            return told
        return {**told, "values": search.space.raw(trial.overrides)}

    def _kind(self, resources: Resources | None) -> str:
        """Returns a text that is equal for trials which can share a worker."""
        pairs = sorted((self.plan.sweep.resources if resources is None else resources).items())
        return ",".join(f"{name}={amount:g}" for name, amount in pairs)

    def _supervisor(self, own: Resources | None, token: str) -> SupervisorSettings:
        resources = dict(self.plan.sweep.resources if own is None else own)
        sweep, is_adaptive = self.plan.sweep, self.plan.sweep.is_adaptive
        is_population = sweep.is_population
        return SupervisorSettings(
            process=self._process(resources, token),
            variables=environment.worker_variables(self.plan, resources),
            resources=resources,
            hosts=sweep.hosts,
            tpu_slice=sweep.tpu_slice,
            max_failures=sweep.max_failures,
            hang_timeout_s=sweep.hang_timeout_s,
            report_on="saved" if is_population else "record" if is_adaptive else "time",
            metric=sweep.metric if is_adaptive else None,
            space=self.plan.search.space if is_population and self.plan.search else None,
        )

    def _process(self, resources: Resources, token: str) -> ProcessSettings:
        return ProcessSettings(
            run_dir=str(self._run.path),
            probe=token,
            platform=environment.platform_of(resources),
            trust=self.plan.trust,
            code=str(self._run.code),
            secrets=tuple(self.plan.sweep.env),
            stop=self.plan.sweep.stop_rules,
        )
