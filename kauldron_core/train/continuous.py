"""Evaluation beside a training process that runs elsewhere: each checkpoint as it lands."""

from __future__ import annotations

import collections
import contextlib
import logging
import time
from collections.abc import Iterable, Mapping

from kauldron_core import ckpts, rundir
from kauldron_core.errors import ConfigError, RunFailed, unknown_name
from kauldron_core.evals import Evaluator
from kauldron_core.evaluator_nodes import evaluator_fingerprint, evaluator_nodes
from kauldron_core.forward import AuxiliariesState
from kauldron_core.train.experiment import Experiment

_logger = logging.getLogger(__name__)


def continuous_eval(
    trainer: Experiment, names: str | Iterable[str] | None = None, *, poll_s: float = 1.0, patience_s: float = 3_600.0
) -> dict[str, AuxiliariesState]:
    """Evaluates the checkpoints in the trainer's workdir until training has ended.

    The same as `kdr eval --follow` does for a trial: what is due is kept from removal, each result is recorded once in
    `workdir/evals`, whoever else evaluates there, and what fails is recorded too and does not end the others.

    Args:
      trainer: The experiment.
      names: Which evaluators; None are all stand-alone ones.
      poll_s: Time between two looks at the folder.
      patience_s: How long to wait for the next checkpoint.

    Returns:
      The states of the last evaluation that was made here, by name.

    Raises:
      ConfigError: If there is no such evaluator, or no workdir.
      RunFailed: If no checkpoint came for `patience_s`.
    """
    if trainer.workdir is None:
        raise ConfigError("workdir: unset, there are no checkpoints to evaluate.")
    trial = rundir.TrialDir(trainer.workdir)
    wanted = {evaluator.name: _wanted(trainer, evaluator) for evaluator in _selected(trainer, names)}
    with contextlib.closing(rundir.Backlog(trial, lambda: wanted)) as backlog:
        states = _follow(trainer, trial, backlog, poll_s=poll_s, patience_s=patience_s)
    if trainer.checkpointer is not None:
        trainer.checkpointer.remove_surplus()
    return {name: found[max(found)] for name, found in states.items()}


def _follow(
    trainer: Experiment, trial: rundir.TrialDir, backlog: rundir.Backlog, *, poll_s: float, patience_s: float
) -> Mapping[str, Mapping[int, AuxiliariesState]]:
    """Returns the states of all evaluations that are made here until training has ended, by name and step."""
    states: dict[str, dict[int, AuxiliariesState]] = collections.defaultdict(dict)
    news_s = time.monotonic()
    while True:
        # In this order: a checkpoint that lands between the two looks is seen in the next round.
        is_over = rundir.has_ended(trial)
        due = backlog.look(finished=is_over)
        if is_over and not due:
            return states
        is_news = False
        for name, step in due:
            found = _evaluate(trainer, trial, name, step)
            if found is not None:
                states[name][step], is_news = found, True
                break  # What is due may have changed meanwhile.
        if is_news:
            news_s = time.monotonic()
        elif time.monotonic() - news_s > patience_s:
            raise RunFailed(f"{trial.path}: no new checkpoint for {patience_s:g} s, and training has not ended.")
        else:
            time.sleep(poll_s)


def _wanted(trainer: Experiment, evaluator: Evaluator) -> rundir.Wanted:
    run, keeper = evaluator.run, trainer.checkpointer
    limit = getattr(run, "max_pending", None)
    if limit is None and keeper is not None and keeper.max_to_keep is not None:
        limit = rundir.DEFAULT_MAX_PENDING
    return rundir.Wanted(run, limit, getattr(run, "when_behind", None) == "block")


def _selected(trainer: Experiment, names: str | Iterable[str] | None) -> list[Evaluator]:
    if names is None:
        return [evaluator for evaluator in trainer.evals.values() if evaluator.run.is_standalone]
    names = [names] if isinstance(names, str) else list(names)
    for name in names:
        if name not in trainer.evals:
            raise ConfigError(unknown_name("evaluator", name, trainer.evals))
    return [trainer.evals[name] for name in names]


def _evaluate(trainer: Experiment, trial: rundir.TrialDir, name: str, step: int) -> AuxiliariesState | None:
    """Evaluates a checkpoint and records what came out; returns the states, None if there are none.

    Somebody else may be at it, or it fails, which is recorded too.
    """
    lease = rundir.claim_evaluation(trial, name, step)
    if lease is None:
        return None
    started, result = time.monotonic(), None
    try:
        try:
            state = ckpts.load(trial.checkpoints, trainer.state_specs, step=step).state
            result = trainer.evals[name].evaluate(state)
            found = rundir.outcome(trial, name, step, result)
        except Exception as error:
            # One bad checkpoint must not end the evaluation of the others.
            found = rundir.failure(trial, step, error)
            _logger.warning("evaluator %s at step %d %s: %s", name, step, found["status"], found["error"])
        seconds = time.monotonic() - started
        rundir.record_evaluation(trial, name, step, found, fingerprint=_fingerprint(trainer, name), seconds=seconds)
    finally:
        lease.release(forget=True)
    return None if result is None else result.states


def _fingerprint(trainer: Experiment, name: str) -> str:
    """Returns what identifies the evaluator; nothing where no config says so."""
    cfg = trainer.raw_cfg
    if cfg is None or name not in evaluator_nodes(cfg):
        return ""
    try:
        return evaluator_fingerprint(cfg, name)
    except ConfigError:  # It holds what has no name in a file.
        return ""
