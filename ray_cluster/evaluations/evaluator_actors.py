"""Evaluator processes: what a sweep has beside its trials, and `kdr eval --actors` for itself."""

from __future__ import annotations

import collections
import functools
import logging
import pathlib
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, NamedTuple

import ray
from ray.exceptions import RayActorError, RayTaskError

from kauldron_core import masking, rundir
from kauldron_core.machine import machine_fault
from ray_cluster.cluster.placement import actor_options
from ray_cluster.evaluations.evaluator_worker import EvaluatorWorker
from ray_cluster.spec import EvalPool
from ray_cluster.workers.jax_process import ProcessSettings

_MAX_TRIES = 3
"""How often a piece of work is begun, and how often a process may fail to start, before it is given up."""
_PATIENCE_S = 10.0
_MAX_SHOWN = 200
_logger = logging.getLogger(__name__)


class Outcome(NamedTuple):
    """How a piece of work ended.

    Attributes:
      work: The piece.
      value: What it gave.
      error: What went wrong, None if nothing did.
      cause: The exception, where the process lives on.
      is_given_up: Whether it was tried often enough.
    """

    work: Any
    value: Any = None
    error: str | None = None
    cause: BaseException | None = None
    is_given_up: bool = False


class Actor:
    """One evaluator process and what it is doing; made anew when it dies."""

    def __init__(self, pool: EvalPool, make: Callable[[], Any], *, example: str | None):
        self.pool = pool
        self._make = make
        self._example = example
        self.work: Any = None
        self.num_false_starts = 0
        self.start()

    def start(self) -> None:
        """Makes the process; it imports JAX beside whatever else is going on."""
        self._handle = self._make()
        self.pending: ray.ObjectRef | None = self._handle.warm.remote(self._example)
        self.num_false_starts += 1

    def is_free(self) -> bool:
        """Returns whether it waits for work."""
        return self.pending is None

    def begin(self, work: Any, call: Callable[[Any], ray.ObjectRef]) -> None:
        """Begins a piece of work, by a call of a method of the worker."""
        self.work = work
        self.num_false_starts = 0
        self.pending = call(self._handle)

    def take_result(self) -> Any:
        """Returns what came of the last call, or None while it runs; raises what it raised."""
        if self.pending is None or not ray.wait([self.pending], timeout=0)[0]:
            return None
        pending, self.pending = self.pending, None
        return ray.get(pending)

    def wait_until_placed(self) -> None:
        """Returns when the process exists, so that no trial can take its resources."""
        exists = self._handle.__ray_ready__.remote()
        while not ray.wait([exists], timeout=_PATIENCE_S)[0]:
            _logger.warning("waiting for %s, for evaluators of %r", dict(self.pool.resources), self.pool.job_group)

    def end(self) -> None:
        """Ends the process."""
        ray.kill(self._handle)


class EvaluatorActors:
    """Processes that take one piece of work each. One that dies is made anew, and what it did is tried again."""

    def __init__(self):
        self._actors: list[Actor] = []
        self._tries: collections.Counter[Hashable] = collections.Counter()
        self._num_refusals = 0
        self.errors: list[str] = []

    def __iter__(self) -> Iterator[Actor]:
        return iter(list(self._actors))

    def __len__(self) -> int:
        return len(self._actors)

    def add_pool(
        self,
        pool: EvalPool,
        settings: ProcessSettings,
        variables: Mapping[str, str],
        *,
        logs: pathlib.Path,
        example: str | None,
    ) -> list[Actor]:
        """Makes the processes of a pool and returns them; they need not exist yet.

        Args:
          pool: How many, and what each owns.
          settings: What every process is told.
          variables: Its environment.
          logs: The folder for a folder of logs for each.
          example: The folder of a trial that will be evaluated.
        """
        options = {**actor_options(pool.resources), "runtime_env": {"env_vars": dict(variables)}}
        worker = ray.remote(EvaluatorWorker).options(**options)
        made = []
        for number in range(pool.num_actors):
            log_dir = logs / f"evaluator-{pool.job_group}-{len(self._actors)}-{number}"
            make = functools.partial(worker.remote, settings, log_dir=log_dir)
            made.append(Actor(pool, make, example=example))
            self._actors.append(made[-1])
        return made

    def running(self) -> set[Any]:
        """Returns the work that somebody is at."""
        return {actor.work for actor in self._actors if actor.work is not None}

    def is_worn_out(self, work: Hashable) -> bool:
        """Returns whether a piece of work was tried often enough."""
        return self._tries[work] >= _MAX_TRIES

    def begin(self, actor: Actor, work: Hashable, call: Callable[[Any], ray.ObjectRef]) -> None:
        """Lets an actor begin a piece of work."""
        self._tries[work] += 1
        actor.begin(work, call)

    def collect(self, timeout_s: float = 0.0) -> list[Outcome]:
        """Returns what has ended since the last call.

        Args:
          timeout_s: How long to wait for the first that ends.

        Raises:
          Exception: What the machine refuses all of them, such as space on a disk that is full.
        """
        pending = [actor.pending for actor in self._actors if actor.pending is not None]
        if pending and timeout_s:
            ray.wait(pending, timeout=timeout_s)
        elif timeout_s:
            time.sleep(timeout_s)
        return [outcome for actor in list(self._actors) if (outcome := self._collect(actor)) is not None]

    def end(self) -> None:
        """Ends all processes."""
        for actor in self._actors:
            actor.end()

    def _collect(self, actor: Actor) -> Outcome | None:
        try:
            value = actor.take_result()
        except RayActorError as error:
            return self._after_failure(actor, f"the evaluator process died: {error}", None)
        except RayTaskError as error:
            return self._after_failure(actor, f"{type(error.cause).__name__}: {error.cause}", error.cause)
        if value is None or actor.work is None:
            return None
        work, actor.work = actor.work, None
        self._num_refusals = 0
        return Outcome(work, value)

    def _after_failure(self, actor: Actor, error: str, cause: BaseException | None) -> Outcome | None:
        self._count_refusals(cause)
        work, actor.work = actor.work, None
        _logger.warning("evaluator, at %s: %s", str(work or "its start")[:_MAX_SHOWN], error.splitlines()[0])
        actor.end()
        if actor.num_false_starts < _MAX_TRIES:
            actor.start()
        else:
            self.errors.append(f"evaluators of job group {actor.pool.job_group!r} don't start: {error}")
            self._actors.remove(actor)
        return None if work is None else Outcome(work, None, error, cause, self.is_worn_out(work))

    def _count_refusals(self, cause: BaseException | None) -> None:
        """Raises what a machine refuses again and again: a process made anew meets the same."""
        fault = machine_fault(cause)
        self._num_refusals = self._num_refusals + 1 if fault is not None and not fault.is_mistake else 0
        if cause is not None and self._num_refusals > len(self._actors):
            raise cause


def record_given_up(trial: rundir.TrialDir, name: str, step: int, error: str) -> rundir.Record:
    """Records an evaluation that has ended its process again and again; no evaluator is left to do so."""
    record = {
        "status": "failed",
        "error": masking.masked(error),
        "values": {},
        "finished_ms": time.time_ns() // 1_000_000,
    }
    rundir.write_eval_result(trial, name, step, record)
    return rundir.read_eval_result(trial, name, step) or record
