"""Hands the evaluations of a job to its actors, whole or in shares, until all of them have a record."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import logging
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NamedTuple

from evaluators.sources import Source, Task
from kauldron_core import rundir
from kauldron_core.errors import ConfigError, RunFailed
from kauldron_core.rundir import Record
from ray_cluster.cluster import environment, session
from ray_cluster.driver.ground import Ground, RayGone
from ray_cluster.evaluations.evaluator_actors import EvaluatorActors, Outcome, record_given_up
from ray_cluster.evaluations.job import EvalJob, count_actors, refuse_too_many, shared_folder
from ray_cluster.spec import EvalPool
from ray_cluster.workers.jax_process import ProcessSettings

_TICK_S = 0.1
_SCAN_S = 0.5
_PATIENCE_S = 60.0
_logger = logging.getLogger(__name__)


def run(source: Source, job: EvalJob, *, address: str, on_record: Callable[[Record], None] | None) -> list[Record]:
    """Makes the evaluations of `source`; see `eval_jobs.evaluate`."""
    environment.keep_driver_on_cpu()
    # Not in the run directory, whose own driver may keep its token there.
    with (
        tempfile.TemporaryDirectory() as private,
        session.ray_session(rundir.RunDir(private), address),
        rundir.in_use(shared_folder(job.run_dir).path),
        _watch(job, private) as ground,
        _exit_on_sigterm(),
        contextlib.closing(_Evaluating(source, job, on_record, ground)) as evaluating,
    ):
        evaluating.place()
        return source.arrange(evaluating.finish())


def _watch(job: EvalJob, private: str) -> Ground:
    """Returns what looks after the run directory and Ray; without the latter no call returns, so the process ends."""

    def on_loss(loss: RunFailed) -> None:
        if isinstance(loss, RayGone):
            session.end_process(loss, functools.partial(shutil.rmtree, private, ignore_errors=True))

    ground = Ground(shared_folder(job.run_dir), on_loss, command=("kdr", "eval", "{}"))
    ground.watch_ray(session.watch())
    return ground


class _Piece(NamedTuple):
    """What one call of an actor does: a whole evaluation, a share of one, or the merge of all its shares.

    `others` are evaluated together with `task`, whole: the same step of other trials of its pack.
    """

    task: Task
    share: int | None = None
    is_merge: bool = False
    others: tuple[Task, ...] = ()

    @property
    def tasks(self) -> tuple[Task, ...]:
        return (self.task, *self.others)


@dataclasses.dataclass
class _Split:
    """An evaluation that is claimed here, whose shares go to several actors."""

    lease: rundir.Lease
    waiting: collections.deque[_Piece]
    shares: dict[int, bytes] = dataclasses.field(default_factory=dict)
    started_s: float = dataclasses.field(default_factory=time.monotonic)


class _Evaluating:
    """One job while it runs."""

    def __init__(self, source: Source, job: EvalJob, on_record: Callable[[Record], None] | None, ground: Ground):
        self._source = source
        self._ground = ground
        self._job = job
        self._on_record = on_record
        self._run = shared_folder(job.run_dir)
        self._name = f"job-{os.getpid()}"
        # A probe of its own: the run's driver may be at work, and start processes that look for what it wrote.
        self._probe = rundir.RunDir(self._run.path / ".leases" / self._name)
        self._actors = EvaluatorActors()
        self._records: dict[Task, Record] = {}
        self._queue: dict[Task, None] = {}
        self._split: dict[Task, _Split] = {}
        self._apart: set[Task] = set()

    def place(self) -> None:
        """Makes the actors.

        Raises:
          ConfigError: If the nodes could never hold them.
          RunFailed: If a node does not see the run directory.
        """
        nodes, resources = session.node_resources(), self._job.resources or {}
        refuse_too_many(self._job, nodes)
        token = rundir.write_probe(self._probe)
        session.check_nodes_see(self._probe, token)
        tasks, is_all = self._source.look()
        settings = ProcessSettings(
            run_dir=str(self._run.path),
            probe=token,
            probe_dir=str(self._probe.path),
            platform=environment.platform_of(resources),
            trust=self._job.trust,
            code=str(self._run.code),
            secrets=tuple(self._job.env),
        )
        pool = EvalPool(
            evaluators=(),
            job_group=self._name,
            resources=resources,
            num_actors=count_actors(self._job, nodes, num_tasks=len(tasks) if is_all else None),
        )
        variables = environment.process_variables(resources, python_path=self._job.python_path, env=self._job.env)
        self._actors.add_pool(pool, settings, variables, logs=self._run.path / "logs", example=None)

    def finish(self) -> dict[Task, Record]:
        """Returns the records when all of them are there.

        Raises:
          ConfigError: If a trial's config can't be built.
          RunFailed: If no actor starts, the source has no news for too long, or the run directory is gone.
        """
        scanned_s, is_over = -_SCAN_S, False
        started_s: float | None = time.monotonic()
        while True:
            for outcome in self._actors.collect(_TICK_S):
                self._take(outcome)
            if self._ground.lost is not None:
                raise self._ground.lost
            if not self._actors:
                raise RunFailed(self._actors.errors[0])
            if not is_over and time.monotonic() - scanned_s >= _SCAN_S:
                is_over = self._scan()
                scanned_s = time.monotonic()
            self._hand_out()
            if self._actors.running():
                started_s = None
            elif started_s is not None and self._queue and time.monotonic() - started_s > _PATIENCE_S:
                _logger.warning("waiting for %s for an evaluator: the cluster is busy", dict(self._job.resources or {}))
                started_s = time.monotonic()
            if is_over and not self._queue and not self._split and not self._actors.running():
                return self._records

    def close(self) -> None:
        """Ends the actors and gives the claims back; an unfinished evaluation leaves no record."""
        self._actors.end()
        while self._split:
            self._split.popitem()[1].lease.release(forget=True)
        for trial in {task.trial for task in self._records}:
            rundir.remove_leftovers(trial)
        with contextlib.suppress(OSError):
            rundir.remove(self._probe, inside=self._run)

    def _scan(self) -> bool:
        """Queues what has become due, and returns whether nothing will follow."""
        tasks, is_over = self._source.look()
        at_work = (
            {task for piece in self._actors.running() for task in piece.tasks}
            | self._split.keys()
            | self._records.keys()
        )
        self._queue = {task: None for task in tasks if task not in at_work}
        return is_over

    def _hand_out(self) -> None:
        for actor in self._actors:
            if not actor.is_free():
                continue
            piece = self._next()
            if piece is None:
                return
            self._actors.begin(actor, piece, functools.partial(self._call, piece))

    def _next(self) -> _Piece | None:
        for split in self._split.values():
            if split.waiting:
                return split.waiting.popleft()
        for task in list(self._queue):
            standing = self._source.standing(task)
            if standing is not None:
                self._finish(task, standing)
            elif self._job.shards > 1:
                if (split := self._claim(task)) is not None:
                    return split.waiting.popleft()
            elif not rundir.Lease.is_live(self._work_path(task)):
                piece = _Piece(task, others=self._others(task))
                for one in piece.tasks:
                    del self._queue[one]
                return piece
            # Else another process is at it, and its record will stand.
        return None

    def _others(self, task: Task) -> tuple[Task, ...]:
        """Returns what can be evaluated together with a task: the same of other trials of its pack."""
        pack = None if task in self._apart else rundir.pack_of(task.trial.checkpoints, task.step)
        if pack is None:
            return ()
        alike = [one for one in self._queue if one != task and (one.name, one.step) == (task.name, task.step)]
        return tuple(
            one
            for one in alike
            if one not in self._apart
            and rundir.pack_of(one.trial.checkpoints, one.step) == pack
            and self._source.standing(one) is None
            and not rundir.Lease.is_live(self._work_path(one))
        )

    def _claim(self, task: Task) -> _Split | None:
        """Claims an evaluation whose shares are handed out from here."""
        lease = rundir.Lease.acquire(self._work_path(task), note=f"evaluating {task.name} at step {task.step}")
        if lease is None:
            return None
        if (standing := self._source.standing(task)) is not None:
            # Whoever held the lease before has just finished.
            lease.release(forget=True)
            self._finish(task, standing)
            return None
        self._queue.pop(task, None)
        pieces = collections.deque(_Piece(task, share) for share in range(self._job.shards))
        self._split[task] = _Split(lease.keep_alive(), pieces)
        return self._split[task]

    def _call(self, piece: _Piece, worker: Any) -> Any:
        task, options = piece.task, self._source.options()
        where = (str(task.trial.path.absolute()), task.name, task.step)
        if piece.is_merge:
            split = self._split[task]
            shares = [split.shares[index] for index in range(self._job.shards)]
            seconds = time.monotonic() - split.started_s
            return worker.record_shares.remote(*where, shares, seconds=seconds, **options)
        if piece.share is not None:
            share = {"index": piece.share, "count": self._job.shards, "changes": options.get("changes")}
            return worker.collect_share.remote(*where, **share, is_strict=self._source.is_strict)
        if piece.others:
            folders = [str(one.trial.path.absolute()) for one in piece.tasks]
            return worker.evaluate_pack.remote(folders, *where[1:], options=options, is_strict=self._source.is_strict)
        return worker.evaluate.remote(*where, options=options, is_strict=self._source.is_strict)

    def _take(self, outcome: Outcome) -> None:
        piece: _Piece = outcome.work
        if isinstance(outcome.cause, ConfigError):
            raise outcome.cause
        if outcome.error is not None:
            self._after_failure(piece, outcome)
        elif piece.others:
            for task, record in zip(piece.tasks, outcome.value, strict=True):
                self._finish(task, record)
        elif piece.share is None or piece.is_merge:
            self._finish(piece.task, outcome.value)
        else:
            self._keep_share(piece.task, piece.share, outcome.value)

    def _keep_share(self, task: Task, number: int, share: bytes) -> None:
        split = self._split.get(task)
        if split is None:  # Another share of it was given up meanwhile.
            return
        split.shares[number] = share
        if len(split.shares) == self._job.shards:
            split.waiting.append(_Piece(task, is_merge=True))

    def _after_failure(self, piece: _Piece, outcome: Outcome) -> None:
        if piece.others:
            self._apart.update(piece.tasks)
            self._queue = {**dict.fromkeys(piece.tasks), **self._queue}
        elif outcome.is_given_up:
            name = self._source.options().get("as_name") or piece.task.name
            record = record_given_up(piece.task.trial, name, piece.task.step, outcome.error or "")
            self._finish(piece.task, record)
        elif piece.task in self._split:
            self._split[piece.task].waiting.appendleft(piece)
        elif piece.task not in self._records:
            self._queue = {piece.task: None, **self._queue}

    def _finish(self, task: Task, record: Record) -> None:
        self._queue.pop(task, None)
        split = self._split.pop(task, None)
        if split is not None:
            split.lease.release(forget=True)
        if task in self._records:  # Two shares of it were given up.
            return
        self._records[task] = {"trial": task.trial.name, **record}
        if self._on_record is not None:
            self._on_record(self._records[task])

    def _work_path(self, task: Task) -> Any:
        return rundir.work_path(task.trial, self._source.options().get("as_name") or task.name, task.step)


@contextlib.contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """Makes SIGTERM end the block in order, with 143. Ray has put a handler of its own there."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    standing = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, standing)
