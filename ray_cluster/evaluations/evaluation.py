"""Hands the evaluations that are due to the evaluator actors of a sweep."""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from evaluators import Backlog, RunWatch, remove_surplus
from kauldron_core import rundir
from kauldron_core.machine import machine_fault
from ray_cluster.driver.board import StatusBoard
from ray_cluster.evaluations.evaluator_actors import EvaluatorActors, record_given_up
from ray_cluster.spec import EvalPool
from ray_cluster.workers.jax_process import ProcessSettings

_TICK_S = 0.1
_SCAN_S = 0.25
_logger = logging.getLogger(__name__)


class Work(NamedTuple):
    """One checkpoint for one evaluator."""

    trial: str
    evaluator: str
    step: int


class Evaluation:
    """The evaluator actors of a sweep and a thread that keeps them busy, oldest checkpoint first."""

    def __init__(self, run: rundir.RunDir, board: StatusBoard):
        self._run = run
        self._board = board
        self._actors = EvaluatorActors()
        # What waits, with the checkpoint of its pack: those that have the same one are evaluated together.
        self._queue: dict[Work, str | None] = {}
        self._growing: set[tuple[str | None, str]] = set()
        self._apart: set[Work] = set()
        self._settled: set[str] = set()
        self._backlogs: dict[str, Backlog] = {}
        self._watch: RunWatch | None = None
        self._is_training_over = threading.Event()
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="evaluation", daemon=True)
        self._errors: list[str] = []

    @property
    def errors(self) -> list[str]:
        """What keeps evaluations from being made."""
        return self._errors + self._actors.errors

    def place(self, pool: EvalPool, settings: ProcessSettings, variables: Mapping[str, str]) -> None:
        """Makes the actors of a pool; returns when what they reserve is theirs."""
        unfinished = self._board.names(*(set(rundir.STATUSES) - rundir.TERMINAL))
        example = str(self._run.trial(unfinished[0]).path) if unfinished else None
        for actor in self._actors.add_pool(pool, settings, variables, logs=self._run.path / "logs", example=example):
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
        self._actors.end()
        for claim in (*self._backlogs.values(), self._watch):
            if claim is not None:
                claim.close()

    def _serve(self) -> None:
        try:
            self._serve_until_settled()
        except Exception as error:
            # Training must go on; what was not evaluated is told at the end.
            self._errors.append(f"{type(error).__name__}: {error}")
            if not self._run.exists():
                return  # That is what the sweep ends with.
            fault = machine_fault(error)
            if fault is None:
                _logger.exception("evaluations are handed out no more")
            else:
                _logger.warning("evaluations are handed out no more: %s", fault)

    def _serve_until_settled(self) -> None:
        scanned_at = -_SCAN_S
        while not self._is_closing.wait(_TICK_S):
            if self._watch is not None:
                self._watch.check()
            for outcome in self._actors.collect():
                if outcome.error is not None and len(outcome.work) > 1:
                    self._apart.update(outcome.work)
                elif outcome.is_given_up:
                    ((trial, name, step),) = outcome.work
                    record_given_up(self._run.trial(trial), name, step, outcome.error or "")
            is_last_look = self._is_training_over.is_set()
            if is_last_look or time.monotonic() - scanned_at >= _SCAN_S:
                self._scan()
                scanned_at = time.monotonic()
            self._hand_out()
            if is_last_look and not self._queue and not self._actors.running():
                return

    def _scan(self) -> None:
        """Queues what has become due since the last look."""
        busy = {work for together in self._actors.running() for work in together}
        served = {name for actor in self._actors for name in actor.pool.evaluators}
        self._queue = {work: pack for work, pack in self._queue.items() if work.evaluator in served}
        self._growing = set()
        for name in self._board.names("running", "preempted", *rundir.TERMINAL):
            if name in self._settled:
                continue
            is_finished = self._board.status(name) in rundir.TERMINAL
            if name not in self._backlogs:
                self._backlogs[name] = Backlog(self._run.trial(name), run_watch=self._watch)
            due = self._backlogs[name].look(finished=is_finished)
            work = [Work(name, evaluator, step) for evaluator, step in due if evaluator in served]
            for item in work:
                if item not in self._queue and item not in busy and not self._actors.is_worn_out((item,)):
                    self._add(item)
            if is_finished and not work:
                self._settled.add(name)
                self._backlogs.pop(name).close()
                self._remove_surplus(name)

    def _remove_surplus(self, name: str) -> None:
        try:
            remove_surplus(self._run.trial(name))
        except Exception:  # It takes room only; the evaluations of others go on.
            _logger.exception("%s: checkpoints that are too many stay", name)

    def _add(self, work: Work) -> None:
        """Queues a piece of work."""
        pack = None if work in self._apart else rundir.pack_of(self._run.trial(work.trial).checkpoints, work.step)
        self._queue[work] = pack
        if pack is not None:
            # More of its trials may be about to follow.
            self._growing.add((pack, work.evaluator))

    def _hand_out(self) -> None:
        for actor in self._actors:
            if actor.is_free() and (together := self._next(actor.pool.evaluators)):
                for work in together:
                    del self._queue[work]
                self._actors.begin(actor, together, functools.partial(self._call, together))

    def _next(self, names: Collection[str]) -> tuple[Work, ...]:
        """Returns the oldest work for evaluators of some names, and all that can be done together with it."""
        for work, pack in self._queue.items():
            if work.evaluator not in names or (pack, work.evaluator) in self._growing:
                continue
            if pack is None:
                return (work,)
            return tuple(one for one, its in self._queue.items() if its == pack and one.evaluator == work.evaluator)
        return ()

    def _call(self, together: tuple[Work, ...], worker: Any) -> Any:
        _, name, step = together[0]
        paths = [str(self._run.trial(work.trial).path) for work in together]
        if len(paths) == 1:
            return worker.evaluate.remote(*paths, name, step)
        return worker.evaluate_pack.remote(paths, name, step)
