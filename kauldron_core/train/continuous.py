"""Evaluation beside a training process that runs elsewhere: each checkpoint as it lands."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kauldron_core import ckpts, rundir
from kauldron_core.errors import ConfigError, RunFailed, unknown_name
from kauldron_core.evals import EvalResult, Evaluator
from kauldron_core.forward import AuxiliariesState

if TYPE_CHECKING:
    from kauldron_core.train.trainer import Trainer


def continuous_eval(
    trainer: Trainer, names: str | Iterable[str] | None = None, *, poll_s: float = 1.0, patience_s: float = 3_600.0
) -> dict[str, AuxiliariesState]:
    """Evaluates the checkpoints in the trainer's workdir until training has ended.

    Results are appended to `workdir/events` under the evaluator's name.

    Args:
      trainer: The experiment.
      names: Which evaluators; None are all stand-alone ones.
      poll_s: Time between two looks at the folder.
      patience_s: How long to wait for the next checkpoint.

    Returns:
      The states of the last evaluation, by name.

    Raises:
      ConfigError: If there is no such evaluator, or no workdir.
      RunFailed: If no checkpoint came for `patience_s`.
    """
    if trainer.workdir is None:
        raise ConfigError("workdir: unset, there are no checkpoints to evaluate.")
    workdir = pathlib.Path(trainer.workdir)
    results: dict[str, dict[int, EvalResult]] = {evaluator.name: {} for evaluator in _selected(trainer, names)}
    last_news = time.monotonic()
    while True:
        # In this order: a checkpoint that lands between the two looks is seen in the next round.
        is_final = _has_ended(workdir)
        steps = ckpts.all_steps(workdir / "checkpoints")
        todo = [(name, step) for name in results for step in trainer.evals[name].run.due_steps(steps, is_final)]
        todo = [(name, step) for name, step in todo if step not in results[name]]
        for name, step in todo:
            results[name][step] = _evaluate(trainer, workdir, trainer.evals[name], step)
            last_news = time.monotonic()
        if is_final:
            return {name: found[max(found)].states for name, found in results.items() if found}
        if time.monotonic() - last_news > patience_s:
            raise RunFailed(f"{workdir}: no new checkpoint for {patience_s:g} s, and training has not ended.")
        time.sleep(poll_s)


def _selected(trainer: Trainer, names: str | Iterable[str] | None) -> list[Evaluator]:
    if names is None:
        return [evaluator for evaluator in trainer.evals.values() if evaluator.run.is_standalone]
    names = [names] if isinstance(names, str) else list(names)
    for name in names:
        if name not in trainer.evals:
            raise ConfigError(unknown_name("evaluator", name, trainer.evals))
    return [trainer.evals[name] for name in names]


def _has_ended(workdir: pathlib.Path) -> bool:
    events = rundir.read_events(workdir / "events")
    return any(event["kind"] == "done" and event.get("status") != "preempted" for event in events)


def _evaluate(trainer: Trainer, workdir: pathlib.Path, evaluator: Evaluator, step: int) -> EvalResult:
    state = ckpts.load(workdir / "checkpoints", trainer.state_specs, step=step).state
    result = evaluator.evaluate(state)
    with rundir.EventWriter(workdir / "events", writer=evaluator.name) as log:
        log.append(
            "evaluated",
            step,
            split=evaluator.name,
            values=result.values,
            num_examples=result.num_examples,
            seconds=result.seconds,
        )
    return result
