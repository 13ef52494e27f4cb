"""The training loop, and the one that only evaluates."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from typing import Any, TypeVar

from kauldron_core.errors import ConfigError
from kauldron_core.forward import TrainState
from kauldron_core.train import consistency
from kauldron_core.train.experiment import Experiment
from kauldron_core.train.loop.events import Done, Evaluated, Event
from kauldron_core.train.loop.interrupts import StopRequest, catching_signals
from kauldron_core.train.loop.memory import explained
from kauldron_core.train.loop.progress import Progress, ignored
from kauldron_core.train.loop.session import Diverged, Session, Until

_T = TypeVar("_T")


def iter_train(
    trainer: Experiment,
    *,
    stop: threading.Event | None = None,
    until: Until | None = None,
    settle: bool = False,
    progress: Progress = ignored,
) -> Generator[Event, None, TrainState]:
    """Makes the updates that are missing; yields events and returns the final state.

    What happens at a step happens in the order: update, training metrics, evaluations, checkpoint, `Settled`. So a
    checkpoint is only there when everything before it has been recorded, and whoever decides at a step has its values.
    """
    consistency.check_hosts(trainer)
    with (
        explained(),
        catching_signals(StopRequest(stop)) as request,
        Session(trainer, request, progress, until=until, settle=settle) as session,
    ):
        state, step = session.restore_or_init()
        try:
            yield from session.evaluate(state, step)
            yield from session.settle(step)
            while not session.is_over(step) and not request:
                batches, outputs = session.next_call(step)
                state, report = trainer.trainstep.run(state, batches, outputs, size=trainer.steps_per_call)
                step += len(batches)
                session.call_done(state, step)
                yield from session.log(step, report)
                if session.is_due(step):
                    yield from session.evaluate(state, step)
                    yield from session.save(state, step)
                yield from session.settle(step)
            yield from session.finish(state, step)
        except Diverged as diverged:
            yield from session.give_up(step, diverged)
        if request.signal == signal.SIGINT:
            raise KeyboardInterrupt
        return state


def iter_eval(trainer: Experiment, *, stop: threading.Event | None = None) -> Generator[Event, None, TrainState]:
    """Evaluates the newest checkpoint with each evaluator; yields events and returns the state."""
    if trainer.checkpointer is None:
        raise ConfigError("checkpointer: None, so there is no checkpoint to evaluate.")
    state = trainer.checkpointer.load(trainer.state_specs).state
    step = int(state.step)
    for name, evaluator in trainer.evals.items():
        result = evaluator.evaluate(state, stop=stop)
        yield Evaluated(step, name, result.values, result.num_examples, result.seconds)
    yield Done(step=step, status="done")
    return state


def drain(events: Generator[Any, None, _T]) -> _T:
    """Returns what `events` end with."""
    while True:
        try:
            next(events)
        except StopIteration as end:
            return end.value
