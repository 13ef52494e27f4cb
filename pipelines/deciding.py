"""Looks before anything starts whether a metric is measured where somebody decides by it."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kauldron_core.errors import ConfigError
from ray_cluster.searches.schedulers import AT, read_scheduler
from ray_cluster.spec import Sweep

_TRAIN = "train"
_MAX_EXCHANGES = 1000
_MAX_LOOKED_AT = 1_000_000


def check_decisions(spec: Sweep, trainers: Mapping[str, Any]) -> None:
    """Refuses stop rules, searchers and schedulers whose metric has no value of the steps at which they decide.

    Args:
      spec: The run spec.
      trainers: The experiments by trial name; how long one trains has to be known, or it is not looked at.

    Raises:
      ConfigError: With an interval that fits.
    """
    for trainer in trainers.values():
        counts = [count for count in (trainer.num_train_steps, trainer.stop_after_steps) if count]
        if not counts:
            continue
        steps = min(counts)
        for rule in spec.stop_rules:
            _refuse_unmeasured(rule.metric, trainer, 1, steps, at=f"--run.stop={rule}", who="the rule")
        if spec.is_adaptive and spec.metric is not None:
            _check_adaptive(spec, spec.metric, trainer, steps)


def _check_adaptive(spec: Sweep, metric: str, trainer: Any, steps: int) -> None:
    at = f"--run.metric={metric}"
    if spec.scheduler is None:
        if not any(_is_measured(metric, trainer, step, steps) for step in _few(range(steps, -1, -1))):
            raise ConfigError(f"{at}: is measured at no step of a trial, so {spec.search} has nothing to choose by.")
        return
    save_every = getattr(trainer.checkpointer, "save_interval_steps", None)
    name, arguments = read_scheduler(spec.scheduler, num_steps=steps, save_every=save_every or max(1, steps // 10))
    if not spec.is_population:
        first = max(1, math.ceil(arguments.get("grace_period", 1)))
        _refuse_unmeasured(metric, trainer, first, steps, at=at, who=spec.scheduler)
        return
    if trainer.checkpointer is None:
        raise ConfigError(f"{AT}={spec.scheduler}: passes checkpoints on, and cfg.checkpointer is None.")
    if save_every is None:
        return  # When it saves depends on the time.
    exchanges = list(_exchanges(int(arguments["perturbation_interval"]), save_every, steps))
    if not exchanges:
        raise ConfigError(
            f"{AT}={spec.scheduler}: there is no checkpoint before the last step, {steps}, at which trials could"
            f" exchange states. It fits: --cfg.checkpointer.save_interval_steps={max(1, steps // 10)}"
        )
    missing = next((step for step in exchanges if not _is_measured(metric, trainer, step, steps)), None)
    if missing is not None:
        fitting = _with_interval(metric, functools.reduce(math.gcd, exchanges))
        raise ConfigError(f"{at}: is not measured at step {missing}, where {name} exchanges states. It fits: {fitting}")


def _exchanges(interval: int, save_every: int, steps: int) -> Iterator[int]:
    """Yields the checkpoints at which trials exchange states."""
    last = 0
    for number, step in enumerate(range(save_every, steps, save_every)):
        if number < _MAX_EXCHANGES and step - last >= interval:
            yield step
            last = step


def _refuse_unmeasured(metric: str, trainer: Any, first: int, steps: int, *, at: str, who: str) -> None:
    """Refuses a metric that is measured at no step from `first` to the one before the last."""
    if any(_is_measured(metric, trainer, step, steps) for step in _few(range(first, steps))):
        return
    if first >= steps:
        raise ConfigError(f"{at}: there is no step before the last one, {steps}, at which {who} could decide.")
    raise ConfigError(
        f"{at}: is measured at no step from {first} to {steps - 1}, where {who} could decide. An interval of {first} to"
        f" {steps - 1} steps fits: {_with_interval(metric, first)}"
    )


def _is_measured(metric: str, trainer: Any, step: int, steps: int) -> bool:
    source = metric.partition("/")[0]
    if source != _TRAIN:
        # What no evaluator measures is refused elsewhere.
        return source not in trainer.evals or trainer.evals[source].run.should_run(step, step == steps)
    return step > 0 and trainer.outputs_at(step, last_step=steps).metrics


def _with_interval(metric: str, steps: int) -> str:
    source = metric.partition("/")[0]
    if source == _TRAIN:
        return f"--cfg.log_metrics_every={steps}"
    return f"--cfg.evals.{source}.run='kd.evals.EveryNSteps({steps})'"


def _few(steps: Iterable[int]) -> Iterator[int]:
    return (step for _, step in zip(range(_MAX_LOOKED_AT), steps, strict=False))
