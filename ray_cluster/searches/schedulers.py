"""What schedulers of Tune are given where the run spec says nothing; read without Ray."""

from __future__ import annotations

from typing import Any

from ray_cluster.searches.named_calls import read_call
from ray_cluster.spec import PACK_RULES, TUNE_SCHEDULERS

AT = "--run.scheduler"


def read_scheduler(text: str, *, num_steps: int, save_every: int) -> tuple[str, dict[str, Any]]:
    """Returns the name and all arguments of the scheduler that a run spec names.

    Args:
      text: `asha`, `median`, `hyperband`, `pbt`, with arguments or without, or a dotted name with arguments.
      num_steps: Steps of a trial, for the defaults of time limits.
      save_every: Steps between checkpoints, for the default interval of population based training.
    """
    name, arguments = read_call(text, at=AT, known=(*TUNE_SCHEDULERS, *PACK_RULES))
    defaults: dict[str, Any] = {}
    match name:
        case "asha":
            # One step more than there are: a trial that makes all its steps ends by itself.
            defaults = {"max_t": num_steps + 1, "grace_period": max(1, num_steps // 16)}
        case "median":
            defaults = {"grace_period": max(1, num_steps // 10), "min_samples_required": 3}
        case "hyperband":
            defaults = {"max_t": num_steps + 1}
        case "pbt":
            defaults = {"perturbation_interval": save_every, "log_config": False, "require_attrs": False}
        case _:
            return name, arguments
    return name, {"time_attr": "step", **defaults, **arguments}
