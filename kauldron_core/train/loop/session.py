"""What a training process holds open while it trains, and what it does between two steps."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Self

import jax

from kauldron_core import rundir
from kauldron_core.errors import ConfigError
from kauldron_core.evals import EvaluationStopped, Evaluator
from kauldron_core.forward import TrainState
from kauldron_core.losses import named_losses
from kauldron_core.train.experiment import Experiment
from kauldron_core.train.loop import writer as writer_lib
from kauldron_core.train.loop.events import Done, Evaluated, Event, Logged, Saved, Settled
from kauldron_core.train.loop.interrupts import StopRequest
from kauldron_core.train.loop.progress import Progress
from kauldron_core.train.loop.reports import Diverged, LateReports
from kauldron_core.train.loop.speed import Speed
from kauldron_core.train.loop.watchdog import Watchdog
from kauldron_core.train.step.program import Outputs, StepReport, is_sound

Until = Callable[[Logged | Evaluated], str | None]
"""Is shown each record of metrics and returns why training ends with its step; None where it goes on."""


class Session:
    """The open parts of one `iter_train`: data iterator, event log, checkpointer.

    Args:
      trainer: The experiment.
      request: The wish to stop.
      progress: Is told after each call how far the training is.
      until: Decides where training ends before its last step. Every record is then waited for: what it decides must
        not depend on how fast the device was.
      settle: Whether others decide, after each step with a record; every record is waited for then, too.
    """

    def __init__(
        self,
        trainer: Experiment,
        request: StopRequest,
        progress: Progress,
        *,
        until: Until | None = None,
        settle: bool = False,
    ):
        self.last_step = trainer.last_step
        self._trainer = trainer
        self._request = request
        self._progress = progress
        self._until = until
        self._settles = settle
        self._measured: dict[str, float] = {}
        self._end_reason = ""
        self._inline = trainer.inline_evals
        loss_names = sorted(dict(named_losses(trainer.train_losses)))
        spec = trainer.train_ds.element_spec
        self._speed = Speed(batch_size=_batch_size(spec), flops=lambda: trainer.trainstep.flops(spec))
        folder = None if trainer.workdir is None else pathlib.Path(trainer.workdir) / "summaries"
        self._reports = LateReports(loss_names, on_nonfinite=trainer.on_nonfinite, speed=self._speed, summaries=folder)
        self._checkpointer = None if trainer.workdir is None else trainer.checkpointer
        self._profile = None if trainer.profiler is None else trainer.profiler.open()
        self._saved_step = 0
        self._program = Outputs(), False
        self._evaluated_before: set[tuple[str, int]] = set()
        self._evaluation_was_cut = False
        self._watchdog: Watchdog | None = None

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opened:
            self._data = iter(self._trainer.train_ds)
            opened.callback(_close, self._data)
            self._log = self._trainer.writer.open()
            opened.callback(_close, self._log)
            opened.callback(_close, self._checkpointer)
            opened.callback(_close, self._profile)
            setup = self._trainer.setup
            if setup.watchdog_factor is not None:
                watchdog = Watchdog(factor=setup.watchdog_factor, min_s=setup.watchdog_min_s)
                self._watchdog = opened.enter_context(watchdog)
            self._opened = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._opened.close()

    def restore_or_init(self) -> tuple[TrainState, int]:
        """Returns the newest state and its step; a new one where there is no checkpoint."""
        step = 0
        left_aside = self._checkpointer.left_aside() if self._checkpointer is not None else []
        if self._checkpointer is not None and self._checkpointer.latest_step is not None:
            found = self._checkpointer.load(self._trainer.state_specs)
            left_aside = self._checkpointer.left_aside(found.damaged_steps)
            for damaged in found.damaged_steps:
                self._checkpointer.set_aside(damaged)
            self._data.set_state(found.data_state)
            state, step = found.state, found.step
        else:
            state = self._trainer.init_state()
        self._saved_step = step
        if self._log is not None and (step or self._log.attempt > 1):
            # -1: what an earlier attempt did before its first checkpoint happens again, step 0 included.
            self._log.append(rundir.RESUMED_FROM, step or -1, **({"left_aside": left_aside} if left_aside else {}))
        if step and self._inline:
            self._evaluated_before = _evaluations(self._trainer.workdir)
        if step and (self._until is not None or self._settles):
            # It may have been killed between the checkpoint of a step and what was decided there.
            for record in _records_at(step, self._trainer.workdir):
                self._decide(record)
        return state, step

    def is_over(self, step: int) -> bool:
        """Returns whether `step` is the last one, or was made the last one."""
        return step >= self.last_step or bool(self._end_reason)

    def next_call(self, step: int) -> tuple[list[Any], Outputs]:
        """Returns the batches of the call after `step`, and what its last update computes besides the state.

        Raises:
          ConfigError: If the data ends early.
        """
        if self._watchdog is not None:
            self._watchdog.tick()
        self._speed.call_begins()
        end = self._trainer.end_of_call(step, last_step=self.last_step, is_cut_at=self._is_cut_at)
        try:
            batches = [next(self._data) for _ in range(step, end)]
        except StopIteration:
            raise ConfigError(
                f"train_ds: the data ended before the {self.last_step} steps that were asked for (num_train_steps). "
                "Give it more epochs, or ask for fewer steps."
            ) from None
        self._speed.data_is_there()
        if self._profile is not None:
            self._profile.before(step + 1)
        outputs = self._trainer.outputs_at(end, last_step=self.last_step)
        self._program = outputs, len(batches) > 1
        return batches, outputs

    def _is_cut_at(self, step: int) -> bool:
        saves = self._checkpointer is not None and self._checkpointer.should_save(step)
        return saves or any(evaluator.run.should_run(step, False) for evaluator in self._inline)

    def call_done(self, state: TrainState, step: int) -> None:
        """Takes note of a call that was handed to the device."""
        self._speed.call_ended(self._program)
        self._progress(step, self._reports.last_loss)
        if self._profile is not None:
            self._profile.after(step, state)

    def log(self, step: int, report: StepReport | None) -> Iterator[Event]:
        """Takes the report of a step, and yields what is known by now. Waits only if this step may be made the last."""
        if report is not None:
            yield from self._recorded(self._reports.flush())
            self._reports.put(step, report)
        if (report is None and self._reports.is_ready()) or self._until is not None or self._settles:
            yield from self._recorded(self._reports.flush())
        yield from self._commits()

    def is_due(self, step: int) -> bool:
        """Returns whether anything is to be done after `step` but going on."""
        is_due = self._is_save_due(step) or any(self._is_evaluation_due(e, step) for e in self._inline)
        if is_due and self._watchdog is not None:
            self._watchdog.pause()
        return is_due

    def evaluate(self, state: TrainState, step: int) -> Iterator[Event]:
        """Runs the evaluators that are due at `step` and have not run there."""
        due = [evaluator for evaluator in self._inline if self._is_evaluation_due(evaluator, step)]
        if due:
            yield from self._recorded(self._reports.flush())
        for evaluator in due:
            try:
                result = evaluator.evaluate(state, stop=self._request.event)
            except EvaluationStopped:
                self._evaluation_was_cut = True
                return
            self._speed.exclude(result.seconds)
            self._keep_examples(evaluator.name, step, result.examples)
            evaluated = Evaluated(step, evaluator.name, result.values, result.num_examples, result.seconds)
            yield from self._recorded([evaluated])
            self._evaluated_before.add((evaluator.name, step))

    def _keep_examples(self, name: str, step: int, examples: list[dict[str, Any]] | None) -> None:
        workdir = self._trainer.workdir
        if examples is not None and workdir is not None:
            rundir.write_examples(pathlib.Path(workdir) / "evals" / name / f"{step}.parquet", examples)

    def save(self, state: TrainState, step: int) -> Iterator[Event]:
        """Starts to save, if a checkpoint is due at `step`."""
        if self._is_save_due(step):
            yield from self._save(state, step)

    def settle(self, step: int) -> Iterator[Event]:
        """Yields what was measured at `step`, for those who decide whether training goes on."""
        measured, self._measured = self._measured, {}
        if self._settles and measured and not self.is_over(step):
            yield Settled(step, measured)

    def finish(self, state: TrainState, step: int) -> Iterator[Event]:
        """Saves what is not saved yet, waits until it is on disk, and says how training ended."""
        yield from self._recorded(self._reports.flush())
        if self._end_reason:
            # A result of an evaluation decided, after others had been passed over.
            yield from self.evaluate(state, step)
        if self._checkpointer is None:
            self._check(state, step)
        else:
            yield from self._save(state, step)
            self._checkpointer.wait()
        yield from self._commits()
        if self._end_reason and not self._evaluation_was_cut:
            yield from self._recorded([Done(step=step, status="stopped", reason=self._end_reason)])
        elif step < self.last_step or self._evaluation_was_cut:
            yield from self._recorded([Done(step=step, status="preempted", reason=str(self._request))])
        else:
            surplus = f"{self.last_step} steps were asked for, {step} are done already" if step > self.last_step else ""
            yield from self._recorded([Done(step=step, status="done", reason=surplus)])

    def give_up(self, step: int, diverged: Diverged) -> Iterator[Event]:
        """Ends training with the last good checkpoint standing."""
        if self._checkpointer is not None:
            self._checkpointer.wait()
        yield from self._commits()
        yield from self._recorded([Done(step=step, status="diverged", reason=str(diverged))])

    def _is_evaluation_due(self, evaluator: Evaluator, step: int) -> bool:
        is_due = evaluator.run.should_run(step, self.is_over(step))
        return is_due and (evaluator.name, step) not in self._evaluated_before

    def _is_save_due(self, step: int) -> bool:
        return self._checkpointer is not None and (self.is_over(step) or self._checkpointer.is_due(step))

    def _save(self, state: TrainState, step: int) -> Iterator[Event]:
        if self._checkpointer is None or step <= self._saved_step:
            return
        # First on record, then saved: a run that resumes here will not make these steps again.
        yield from self._recorded(self._reports.flush())
        self._check(state, step)
        self._checkpointer.save(state, self._data.get_state(), step=step)
        self._saved_step = step
        yield from self._commits()

    def _check(self, state: TrainState, step: int) -> None:
        if self._trainer.on_nonfinite != "ignore" and not _is_sound(state):
            raise Diverged(f"the state was not finite after step {step}")

    def _commits(self) -> Iterator[Event]:
        if self._checkpointer is not None:
            yield from self._recorded(Saved(step) for step in self._checkpointer.finished())

    def _recorded(self, events: Iterable[Event]) -> Iterator[Event]:
        for event in events:
            if self._log is not None:
                writer_lib.append(self._log, event)
            if self._checkpointer is not None and isinstance(event, Logged | Evaluated):
                source = event.name if isinstance(event, Evaluated) else event.split
                self._checkpointer.observe(event.step, source, event.values)
            if isinstance(event, Logged | Evaluated):
                self._decide(event)
            yield event

    def _decide(self, event: Logged | Evaluated) -> None:
        """Takes a value that decides, and asks whether training ends here; at its last step it ends anyway."""
        if self._settles:
            source = event.name if isinstance(event, Evaluated) else event.split
            self._measured.update({f"{source}/{name}": value for name, value in event.values.items()})
        if self._until is not None and event.step < self.last_step:
            self._end_reason = self._end_reason or self._until(event) or ""


_is_sound = jax.jit(is_sound)


def _evaluations(workdir: str | os.PathLike[str] | None) -> set[tuple[str, int]]:
    if workdir is None:
        return set()
    events = rundir.read_events(pathlib.Path(workdir) / "events")
    return {(rundir.measured(event)[0], event["step"]) for event in events if event["kind"] == "evaluated"}


def _records_at(step: int, workdir: str | os.PathLike[str] | None) -> Iterator[Logged | Evaluated]:
    """Yields what earlier attempts have recorded of the state that there is at a step."""
    events = [] if workdir is None else rundir.read_events(pathlib.Path(workdir) / "events")
    # What came before is of another state. Whoever passed this one on writes a file of events of its own.
    since_ms = max((event.get("time_ms", 0) for event in events if event["kind"] == rundir.INHERITED), default=-1)
    for event in events:
        if event["step"] != step or event.get("time_ms", 0) <= since_ms:
            continue
        source, values = rundir.measured(event)
        if event["kind"] == "metrics":
            yield Logged(step, source, values)
        elif event["kind"] == "evaluated":
            yield Evaluated(step, source, values, event.get("num_examples", 0), event.get("seconds", 0.0))


def _batch_size(spec: Any) -> int:
    sizes = [leaf.shape[0] for leaf in jax.tree.leaves(spec) if leaf.shape]
    return sizes[0] if sizes else 1


def _close(part: Any) -> None:
    if hasattr(part, "close"):
        part.close()
