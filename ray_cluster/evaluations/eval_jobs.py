"""Evaluations of a run that exists, on evaluator actors: `kdr eval RUN --actors=N`. Starts Ray only if it has to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from evaluators.sources import Source
from kauldron_core.rundir import Record
from ray_cluster.cluster import environment
from ray_cluster.evaluations.job import EvalJob, refuse_too_many


def evaluate(
    source: Source, job: EvalJob, *, address: str | None = None, on_record: Callable[[Record], None] | None = None
) -> list[Record]:
    """Makes the evaluations of `source` on evaluator actors and returns the records, each with the key `trial`.

    What has a record is not evaluated again. An actor that dies is made anew, and its evaluation is begun again, three
    times at most; then it is recorded as failed. Calling it again after the driver was killed does what is missing.

    Args:
      source: What to evaluate: an `evaluators.EvalPlan`, or an `evaluators.Following`.
      job: How.
      address: `local` (a Ray of our own) or `host:port` of a cluster's head; None takes RAY_ADDRESS, else `local`.
      on_record: Called with each record as it is there.

    Raises:
      ConfigError: If the cluster could never hold so many actors, no Ray answers, or a trial's config can't be built.
      RunFailed: If the actors don't start, or a followed run had no news for too long.
    """
    where = environment.read_address(address)
    if job.resources is None:
        job = replace(job, resources=source.resources() or {"CPU": 1})
    environment.refuse_other_platform(job.env, [job.resources or {}])
    machine = environment.machine_resources() if where == "local" and not environment.is_ray_connected() else None
    if machine is not None:
        refuse_too_many(job, [machine])
    for record in source.missing:
        if on_record is not None:
            on_record(record)
    standing = _standing(source)
    if standing is not None:
        for record in standing.values():
            if on_record is not None:
                on_record(record)
        return source.arrange(standing)
    # Ray reads its settings when it is imported, and it takes seconds: only who has something to do pays for them.
    environment.prepare_driver(where)
    from ray_cluster.evaluations import eval_driver

    return eval_driver.run(source, job, address=where, on_record=on_record)


def _standing(source: Source) -> dict | None:
    """Returns the records of all tasks, None if something is to be done or may come."""
    tasks, is_all = source.look()
    if not is_all:
        return None
    records = {}
    for task in tasks:
        record = source.standing(task)
        if record is None:
            return None
        records[task] = {"trial": task.trial.name, **record}
    return records
