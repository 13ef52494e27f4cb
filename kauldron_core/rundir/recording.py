"""Makes the record of an evaluation: what came out, or how it failed, and when."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Mapping
from typing import Any

from kauldron_core import masking
from kauldron_core.rundir import atomic, committed, examples, pending, results
from kauldron_core.rundir.layout import TrialDir
from kauldron_core.rundir.leases import Lease
from kauldron_core.rundir.results import Record

REMOVED = "the checkpoint was removed before it could be evaluated"
"""Why an evaluation was skipped."""

_MAX_ERROR, _MAX_TRACEBACK = 500, 8000


def claim_evaluation(
    trial_dir: str | os.PathLike[str], name: str, step: int, *, ttl_s: float | None = None, again: bool = False
) -> Lease | None:
    """Claims an evaluation that has no record; None if it has one, or while another process is at it.

    Args:
      trial_dir: The trial's folder.
      name: The name that it is recorded under.
      step: The checkpoint's step.
      ttl_s: How long the claim stands without a heartbeat; unset it beats by itself.
      again: Claim it though there is a record.
    """
    if not again and results.read_eval_result(trial_dir, name, step) is not None:
        return None
    path, note = pending.work_path(trial_dir, name, step), f"evaluating {name} at step {step}"
    try:
        lease = Lease.acquire(path, note=note) if ttl_s is None else Lease.acquire(path, ttl_s, note=note)
    except OSError as error:
        error.add_note("A result is written beside its checkpoint: to make new ones, copy the run to where that works.")
        raise
    if lease is None:
        return None
    # Whoever held it before may have just finished.
    if not again and results.read_eval_result(trial_dir, name, step) is not None:
        lease.release(forget=True)
        return None
    return lease.keep_alive() if ttl_s is None else lease


def outcome(
    trial_dir: str | os.PathLike[str], name: str, step: int, result: Any, *, seconds: float | None = None
) -> Record:
    """Record of a finished evaluation. Its rows of examples, if there are any, are written beside it.

    Args:
      trial_dir: The trial's folder.
      name: The name that it is recorded under.
      step: The checkpoint's step.
      result: An `EvalResult`.
      seconds: How long the evaluation took; what the result says where unset.
    """
    rows = getattr(result, "examples", None)
    table = {}
    if rows is not None:
        path = results.result_path(trial_dir, name, step).with_suffix(".parquet")
        examples.write_examples(path, rows)
        table = {"examples": path.name}
    measured_s = float(result.seconds if seconds is None else seconds)
    return {
        "status": "done",
        "values": {key: float(value) for key, value in result.values.items()},
        "num_examples": int(result.num_examples),
        "error": None,
        # An evaluator that was added later is not among those that the run knew of when it began.
        "better": dict(getattr(result, "better", {})),
        "examples_per_s": round(result.num_examples / max(measured_s, 1e-9), 3),
        **table,
    }


def failure(trial_dir: str | os.PathLike[str], step: int, error: Exception) -> Record:
    """Record of a failed evaluation: `skipped` if the checkpoint is gone, else `failed`."""
    if not committed.is_committed(TrialDir(trial_dir).checkpoints, step):
        return {"status": "skipped", "values": {}, "num_examples": 0, "error": REMOVED}
    text = masking.masked(" ".join(str(error).split()))[:_MAX_ERROR]
    return {
        "status": "failed",
        "values": {},
        "num_examples": 0,
        "error": f"{type(error).__name__}: {text}",
        "traceback": masking.masked("".join(traceback.format_exception(error)))[-_MAX_TRACEBACK:],
    }


def record_evaluation(
    trial_dir: str | os.PathLike[str],
    name: str,
    step: int,
    found: Mapping[str, Any],
    *,
    fingerprint: str,
    seconds: float,
    again: bool = False,
) -> Record:
    """Records what was found, and returns the record that stands then. What fails replaces nothing that is done.

    Args:
      trial_dir: The trial's folder.
      name: The name to record under.
      step: The checkpoint's step.
      found: What came out: of `outcome`, or `failure`.
      fingerprint: What identifies the evaluator.
      seconds: How long all of it took.
      again: Replace the record that stands.
    """
    record = {
        "evaluator": name,
        "step": step,
        "fingerprint": fingerprint,
        **found,
        "seconds": round(seconds, 6),
        "saved_ms": int(1000 * committed.saved_at_s(TrialDir(trial_dir).checkpoints, step)),
        "finished_ms": time.time_ns() // 1_000_000,
    }
    previous = results.read_eval_result(trial_dir, name, step)
    if previous is not None and previous.get("status") == "done" and record["status"] != "done":
        return record
    is_first = results.write_eval_result(trial_dir, name, step, record, again=again)
    return record if is_first else results.read_eval_result(trial_dir, name, step) or record


def remove_leftovers(trial_dir: str | os.PathLike[str]) -> None:
    """Removes what killed evaluators have left: claims on what has a record by now, and half-written files."""
    trial = TrialDir(trial_dir)
    for name, step in results.list_eval_results(trial):
        path = pending.work_path(trial, name, step)
        lease = Lease.acquire(path) if path.exists() else None
        if lease is not None:
            lease.release(forget=True)
    atomic.remove_temporaries(trial.evals)
