"""Records of evaluations that were due and will never be made: left out, or the checkpoint is gone."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping

from kauldron_core.rundir import ledger, pending, recording, results
from kauldron_core.rundir.layout import TrialDir
from kauldron_core.rundir.leases import Lease
from kauldron_core.rundir.results import Record

_logger = logging.getLogger(__name__)


def record_skipped(trial_dir: str | os.PathLike[str], name: str, step: int, why: str) -> bool:
    """Records that an evaluation is left out, and returns True; False where there is a record, which stays.

    Args:
      trial_dir: The trial's folder.
      name: The evaluator's name.
      step: The checkpoint's step.
      why: For a person.
    """
    record: Record = {"status": "skipped", "values": {}, "num_examples": 0, "error": why}
    record["finished_ms"] = time.time_ns() // 1_000_000
    is_new = results.write_eval_result(trial_dir, name, step, record)
    if is_new:
        _logger.warning("%s: evaluator %s at step %d skipped: %s", TrialDir(trial_dir).name, name, step, why)
    return is_new


def record_removed(
    trial_dir: str | os.PathLike[str], wanted: Mapping[str, ledger.Wanted], *, finished: bool
) -> list[tuple[str, int]]:
    """Records as skipped what was due and whose checkpoint is gone; returns the (evaluator name, step) pairs.

    While nobody sees to an evaluator the trainer removes checkpoints that it would have evaluated, and anybody may
    remove them by hand.

    Args:
      trial_dir: The trial's folder.
      wanted: What each of its stand-alone evaluators wants, by name.
      finished: Whether its training has ended.
    """
    gone = [
        (name, step)
        for name, step in ledger.removed(trial_dir, wanted, finished=finished)
        # Who is at work on it says what came of it.
        if not Lease.is_live(pending.work_path(trial_dir, name, step))
    ]
    return [pair for pair in gone if record_skipped(trial_dir, *pair, recording.REMOVED)]
