"""The training loop, and nothing else."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from typing import TYPE_CHECKING

from kauldron_core.forward import TrainState
from kauldron_core.train.events import Event
from kauldron_core.train.interrupts import StopRequest, catching_signals
from kauldron_core.train.memory import explained
from kauldron_core.train.progress import Progress, ignored
from kauldron_core.train.session import Diverged, Session

if TYPE_CHECKING:
    from kauldron_core.train.trainer import Trainer


def iter_train(
    trainer: Trainer, *, stop: threading.Event | None = None, progress: Progress = ignored
) -> Generator[Event, None, TrainState]:
    """Makes the updates that are missing; yields events and returns the final state.

    What happens at a step happens in the order: update, training metrics, evaluations, checkpoint. So a checkpoint
    is only there when everything before it has been recorded.
    """
    with explained(), catching_signals(StopRequest(stop)) as request, Session(trainer, request, progress) as session:
        state, step = session.restore_or_init()
        try:
            yield from session.evaluate(state, step)
            while step < session.last_step and not request:
                batches, outputs = session.next_call(step)
                state, report = trainer.trainstep.run(state, batches, outputs, size=trainer.steps_per_call)
                step += len(batches)
                session.call_done(state, step, len(batches))
                yield from session.log(step, report)
                if session.is_due(step):
                    yield from session.evaluate(state, step)
                    yield from session.save(state, step)
            yield from session.finish(state, step)
        except Diverged as diverged:
            yield from session.give_up(step, diverged)
        if request.signal == signal.SIGINT:
            raise KeyboardInterrupt
        return state
