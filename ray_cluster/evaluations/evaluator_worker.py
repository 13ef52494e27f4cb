"""The process that evaluates checkpoints beside training: a plain class, wrapped into an actor by the driver."""

from __future__ import annotations

import os
import pickle
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import evaluators
from kauldron_core import masking
from ray_cluster.workers import jax_process, trial_logs


class EvaluatorWorker:
    """Evaluates one checkpoint at a time, for all trials of a sweep, and keeps compiled programs between them."""

    def __init__(self, settings: jax_process.ProcessSettings, *, log_dir: str | os.PathLike[str]):
        self._settings = settings
        self._log_dir = log_dir
        self._evaluator: Any = None

    def warm(self, example: str | None = None) -> dict[str, Any]:
        """Imports JAX, checks the platform and the run directory, and returns what this process is.

        Args:
          example: The folder of a trial that will be evaluated; its experiment is built, so that its first checkpoint
            need not wait for that.
        """
        started_at = time.monotonic()
        with trial_logs.redirected_output(self._log_dir):
            facts = jax_process.prepare_process(self._settings)
            self._evaluator = evaluators.CheckpointEvaluator(trust=self._settings.trust)
            if example is not None:
                self._build(example)
        return {**facts, "warm_s": time.monotonic() - started_at, "ready_at": time.time()}

    def evaluate(
        self, trial_dir: str, name: str, step: int, *, options: Mapping[str, Any] | None = None, is_strict: bool = False
    ) -> dict[str, Any]:
        """Evaluates one checkpoint and returns its record, which stands in the trial's ledger by then.

        Args:
          trial_dir: The trial's folder.
          name: The evaluator's name.
          step: The checkpoint's step.
          options: Further arguments of `CheckpointEvaluator.evaluate`.
          is_strict: Raise a ConfigError if the evaluation can't begin, and record nothing then.
        """
        options = options or {}
        with trial_logs.redirected_output(self._log_dir):
            if is_strict:
                self._evaluator.check(trial_dir, name, changes=options.get("changes"))
            return self._evaluator.evaluate(trial_dir, name, step, **options)

    def evaluate_pack(
        self,
        trial_dirs: Sequence[str],
        name: str,
        step: int,
        *,
        options: Mapping[str, Any] | None = None,
        is_strict: bool = False,
    ) -> list[dict[str, Any]]:
        """Does the same with the checkpoints of trials of one pack, together, and returns all their records."""
        options = options or {}
        with trial_logs.redirected_output(self._log_dir):
            if is_strict:
                self._evaluator.check(trial_dirs[0], name, changes=options.get("changes"))
            return self._evaluator.evaluate_pack(trial_dirs, name, step, **options)

    def collect_share(
        self,
        trial_dir: str,
        name: str,
        step: int,
        *,
        index: int,
        count: int,
        changes: evaluators.Changes | None = None,
        is_strict: bool = False,
    ) -> bytes:
        """Evaluates one share of the data and returns what came of it, packed: the driver has no JAX to open it."""
        with trial_logs.redirected_output(self._log_dir):
            if is_strict:
                self._evaluator.check(trial_dir, name, changes=changes, shards=count)
            found = self._evaluator.collect_share(trial_dir, name, step, index=index, count=count, changes=changes)
            return pickle.dumps(found)

    def record_shares(
        self, trial_dir: str, name: str, step: int, shares: Sequence[bytes], **options: Any
    ) -> dict[str, Any]:
        """Merges the shares of a checkpoint that is claimed by the driver, and returns the record."""
        with trial_logs.redirected_output(self._log_dir):
            found = [pickle.loads(share) for share in shares]  # By `collect_share` of a process of this job.
            return self._evaluator.record_shares(trial_dir, name, step, found, **options)

    def _build(self, trial_dir: str) -> None:
        import orbax.checkpoint  # noqa: F401 - three seconds that every evaluation needs first

        try:
            self._evaluator.open(trial_dir)
        except Exception:
            # It is told again, and recorded, by the evaluation itself.
            sys.stderr.write(masking.masked(traceback.format_exc()))
