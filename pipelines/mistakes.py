"""A mistake in the config that shows only at the first step: told as one, and the run's name is free again."""

from __future__ import annotations

import evaluators
from kauldron_core import rundir
from kauldron_core.errors import ConfigError
from pipelines.operations.remove import remove
from ray_cluster.results import Results, TrialResult

_KIND = "ConfigError: "


def refuse_if_mistaken(results: Results, *, was_there: bool) -> None:
    """Raises the mistake that kept every trial of a run from its first step.

    Where one trial has come further, or has failed over something else, its mistakes are results of the other trials.

    Args:
      results: What came of the run.
      was_there: Whether there was such a run before; one that was made for nothing but the mistake is removed.

    Raises:
      ConfigError: That of the first trial.
    """
    run = rundir.RunDir(results.run_dir)
    if not results.rows or not all(_is_mistaken(run, row) for row in results.rows):
        return
    if not was_there:
        remove(run)
    first = results.rows[0]
    where = f"trial {first.name}: " if len(results.rows) > 1 else ""
    raise ConfigError(f"{where}{str(first.error).removeprefix(_KIND)}")


def _is_mistaken(run: rundir.RunDir, row: TrialResult) -> bool:
    has_begun = row.step > 0 or evaluators.committed_steps(run.trial(row.name).checkpoints)
    return row.status == "failed" and str(row.error).startswith(_KIND) and not has_begun
