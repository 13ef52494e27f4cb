"""The process that evaluates checkpoints beside training: a plain class, wrapped into an actor by the driver."""

from __future__ import annotations

import os
import time
import traceback
from typing import Any

import evaluators
from ray_cluster import jax_process, trial_logs


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

    def evaluate(self, trial_dir: str, name: str, step: int) -> dict[str, Any]:
        """Evaluates one checkpoint and returns its record, which stands in the trial's ledger by then."""
        with trial_logs.redirected_output(self._log_dir):
            return self._evaluator.evaluate(trial_dir, name, step)

    def _build(self, trial_dir: str) -> None:
        import orbax.checkpoint  # noqa: F401 - three seconds that every evaluation needs first

        try:
            self._evaluator.open(trial_dir)
        except Exception:
            # It is told again, and recorded, by the evaluation itself.
            traceback.print_exc()
