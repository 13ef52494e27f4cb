"""Hands the evaluations that are due to the evaluator actors of a sweep."""

from __future__ import annotations

import collections
import functools
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import ray
from ray.exceptions import RayActorError, RayTaskError

from evaluators.backlog import Backlog, RunWatch
from kauldron_core import rundir
from ray_cluster.board import StatusBoard
from ray_cluster.evaluator_worker import EvaluatorWorker
from ray_cluster.jax_process import ProcessSettings
from ray_cluster.placement import actor_options
from ray_cluster.spec import EvalPool

_MAX_TRIES = 3
"""How often an evaluation is begun, and how often a process may fail to start, before it is given up."""
_TICK_S = 0.1
_PATIENCE_S = 10.0
_SCAN_S = 0.25
_logger = logging.getLogger(__name__)


class Work(NamedTuple):
    """One checkpoint for one evaluator."""

    trial: str
    evaluator: str
    step: int


class Actor:
    """One evaluator process and what it is doing; made anew when it dies."""

    def __init__(self, pool: EvalPool, make: Callable[[], Any], *, example: str | None):
        self.pool = pool
        self._make = make
        self._example = example
        self.work: Work | None = None
        self.num_false_starts = 0
        self.start()

    def start(self) -> None:
        """Makes the process; it imports JAX beside whatever else is going on."""
        self._handle = self._make()
        self._pending: ray.ObjectRef | None = self._handle.warm.remote(self._example)
        self.num_false_starts += 1

    def is_free(self) -> bool:
        """Returns whether it waits for work."""
        return self._pending is None

    def evaluate(self, run: rundir.RunDir, work: Work) -> None:
        """Begins an evaluation."""
        self.work = work
        self.num_false_starts = 0
        self._pending = self._handle.evaluate.remote(str(run.trial(work.trial).path), work.evaluator, work.step)

    def take_result(self) -> Any:
        """Returns what came of the last call, or None while it runs; raises what it raised."""
        if self._pending is None or not ray.wait([self._pending], timeout=0)[0]:
            return None
        pending, self._pending = self._pending, None
        return ray.get(pending)

    def wait_until_placed(self) -> None:
        """Returns when the process exists, so that no trial can take its resources."""
        exists = self._handle.__ray_ready__.remote()
        while not ray.wait([exists], timeout=_PATIENCE_S)[0]:
            _logger.warning("waiting for %s, for evaluators of %r", dict(self.pool.resources), self.pool.job_group)

    def end(self) -> None:
        """Ends the process."""
        ray.kill(self._handle)


class Evaluation:
    """The evaluator actors of a sweep and a thread that keeps them busy, oldest checkpoint first."""

    def __init__(self, run: rundir.RunDir, board: StatusBoard):
        self._run = run
        self._board = board
        self._actors: list[Actor] = []
        self._queue: dict[Work, None] = {}
        self._tries: collections.Counter[Work] = collections.Counter()
        self._settled: set[str] = set()
        self._backlogs: dict[str, Backlog] = {}
        self._watch: RunWatch | None = None
        self._is_training_over = threading.Event()
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="evaluation", daemon=True)
        self.errors: list[str] = []

    def place(self, pool: EvalPool, settings: ProcessSettings, variables: Mapping[str, str]) -> None:
        """Makes the actors of a pool; returns when what they reserve is theirs."""
        unfinished = self._board.names(*(set(rundir.STATUSES) - rundir.TERMINAL))
        example = str(self._run.trial(unfinished[0]).path) if unfinished else None
        options = {**actor_options(pool.resources), "runtime_env": {"env_vars": dict(variables)}}
        for number in range(pool.num_actors):
            log_dir = self._run.path / "logs" / f"evaluator-{pool.job_group}-{len(self._actors)}-{number}"
            worker = ray.remote(EvaluatorWorker).options(**options)
            make = functools.partial(worker.remote, settings, log_dir=log_dir)
            actor = Actor(pool, make, example=example)
            self._actors.append(actor)
            if pool.resources:
                actor.wait_until_placed()

    def start(self) -> None:
        """Begins to hand out work. From here on no trial removes a checkpoint that waits for these evaluators."""
        served = {name for actor in self._actors for name in actor.pool.evaluators}
        self._watch = RunWatch(self._run, sorted(served))
        self._thread.start()

    def finish(self, is_interrupted: Callable[[], bool]) -> None:
        """Returns when all that is due is done; call it after the last trial has ended."""
        # A trial that a scheduler ended may have saved its last checkpoint after that.
        self._settled.clear()
        self._is_training_over.set()
        while self._thread.is_alive() and not is_interrupted():
            self._thread.join(timeout=0.2)

    def close(self) -> None:
        """Ends the thread and the actors; an unfinished evaluation leaves no record."""
        self._is_closing.set()
        if self._thread.is_alive():
            self._thread.join()
        for actor in self._actors:
            actor.end()
        for claim in (*self._backlogs.values(), self._watch):
            if claim is not None:
                claim.close()

    def _serve(self) -> None:
        try:
            self._serve_until_settled()
        except Exception as error:
            # Training must go on; what was not evaluated is told at the end.
            _logger.exception("evaluations are handed out no more")
            self.errors.append(f"{type(error).__name__}: {error}")

    def _serve_until_settled(self) -> None:
        scanned_at = -_SCAN_S
        while not self._is_closing.wait(_TICK_S):
            if self._watch is not None:
                self._watch.check()
            for actor in list(self._actors):
                self._collect(actor)
            is_last_look = self._is_training_over.is_set()
            if is_last_look or time.monotonic() - scanned_at >= _SCAN_S:
                self._scan()
                scanned_at = time.monotonic()
            self._hand_out()
            if is_last_look and not self._queue and all(actor.work is None for actor in self._actors):
                return

    def _scan(self) -> None:
        """Queues what has become due since the last look."""
        busy = {actor.work for actor in self._actors}
        served = {name for actor in self._actors for name in actor.pool.evaluators}
        self._queue = {work: None for work in self._queue if work.evaluator in served}
        for name in self._board.names("running", "preempted", *rundir.TERMINAL):
            if name in self._settled:
                continue
            is_finished = self._board.status(name) in rundir.TERMINAL
            if name not in self._backlogs:
                self._backlogs[name] = Backlog(self._run.trial(name), run_watch=self._watch)
            due = self._backlogs[name].look(finished=is_finished)
            work = [Work(name, evaluator, step) for evaluator, step in due if evaluator in served]
            self._queue.update({item: None for item in work if item not in busy and self._tries[item] < _MAX_TRIES})
            if is_finished and not work:
                self._settled.add(name)
                self._backlogs.pop(name).close()

    def _hand_out(self) -> None:
        for actor in self._actors:
            if actor.is_free():
                work = next((work for work in self._queue if work.evaluator in actor.pool.evaluators), None)
                if work is not None:
                    del self._queue[work]
                    self._tries[work] += 1
                    actor.evaluate(self._run, work)

    def _collect(self, actor: Actor) -> None:
        try:
            if actor.take_result() is not None:
                actor.work = None
        except RayActorError as error:
            self._after_failure(actor, f"the evaluator process died: {error}")
        except RayTaskError as error:
            self._after_failure(actor, f"{type(error.cause).__name__}: {error.cause}")

    def _after_failure(self, actor: Actor, error: str) -> None:
        work, actor.work = actor.work, None
        _logger.warning("evaluator, at %s: %s", work or "its start", error.splitlines()[0])
        actor.end()
        if work is not None and self._tries[work] >= _MAX_TRIES:
            self._give_up(work, error)
        if actor.num_false_starts < _MAX_TRIES:
            actor.start()
        else:
            self.errors.append(f"evaluators of job group {actor.pool.job_group!r} don't start: {error}")
            self._actors.remove(actor)

    def _give_up(self, work: Work, error: str) -> None:
        """Records an evaluation that has ended its process again and again; no evaluator is left to do so."""
        record = {"status": "failed", "error": error, "values": {}, "finished_ms": time.time_ns() // 1_000_000}
        rundir.write_eval_result(self._run.trial(work.trial).path, work.evaluator, work.step, record)
