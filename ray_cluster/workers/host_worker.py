"""The JAX process of a trial: a plain class, wrapped into an actor by the supervisor and tested without one."""

from __future__ import annotations

import gc
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from kauldron_core import masking, rundir
from kauldron_core.errors import ConfigError, RunFailed
from ray_cluster.workers import jax_process, pack_records, stopping, trial_logs

_AGREE_EVERY = 4
"""Steps between two agreements of a group's processes on whether to stop; each costs a broadcast."""

Record = dict[str, Any]
"""An event of a trial as plain data: `kind` is `logged`, `evaluated`, `saved`, `settled`, `done` or `raised`; for packs
see `pack_records`."""

ENDINGS = ("done", "raised")
"""Kinds of the record that is a trial's last."""

_DECIDED = ("saved", "settled")
"""Kinds of the records after which somebody may decide about a trial."""


class HostWorker:
    """Runs one trial or pack at a time in a thread, many one after another, in one warm process.

    Example::

        worker = HostWorker(ProcessSettings(run_dir="runs/demo"))
        worker.warm()
        worker.start("runs/demo/trials/0000")
        while not (records := worker.poll(wait_s=60)) or records[-1]["kind"] not in ENDINGS:
            print(records)
    """

    def __init__(self, settings: jax_process.ProcessSettings, seat: jax_process.Seat | None = None):
        """Prepares it.

        Args:
          settings: What the driver says.
          seat: Its place, where several processes train a trial together.
        """
        self._settings = settings
        self._seat = seat
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self._records: list[Record] = []
        self._is_ended = True
        self._num_polls = self._last_taken = 0

    def address(self) -> tuple[str, str]:
        """Returns an address where this process could listen for others, and the name of its node."""
        return jax_process.free_address(), os.uname().nodename

    def warm(self, *addresses: tuple[str, str]) -> Record:
        """Imports JAX and the trainer, checks the platform and the run directory, and returns what this process is.

        Args:
          *addresses: `address()` of all processes of the group, if it is one of several.
        """
        started_at = time.monotonic()
        seat = self._seat
        facts = jax_process.prepare_process(
            self._settings,
            None
            if seat is None
            else lambda: jax_process.join_group(seat, addresses[0][0], [node for _, node in addresses]),
        )
        import kauldron_core.train  # noqa: F401  (so that the first trial does not wait for it)

        # What is there by now stays for good; the collections between trials need not look at it.
        gc.collect()
        gc.freeze()
        return {**facts, "warm_s": time.monotonic() - started_at, "ready_at": time.time()}

    def start(
        self, folder: str | os.PathLike[str], *, in_lockstep: bool = False, is_decided_about: bool | None = None
    ) -> None:
        """Begins a trial or a pack, or goes on with it from its newest checkpoint.

        Args:
          folder: Its folder.
          in_lockstep: After each step that has records, and after each checkpoint, wait for the `poll` after the one
            that took them: whoever decides about the trial then decides before it goes on. Should another process have
            begun the trial meanwhile, it ends here without a trace.
          is_decided_about: Whether somebody waits for the records of each step, here or in the first process of a
            group; None: if it is in lockstep.

        Raises:
          RunFailed: If the trial before has not ended.
        """
        if self._thread is not None and self._thread.is_alive():
            raise RunFailed(f"{os.fspath(folder)}: this worker still runs another trial")
        self._stop = threading.Event()
        self._records = []
        self._is_ended = False
        self._lease = _take_over(folder) if in_lockstep else None
        settle = in_lockstep if is_decided_about is None else is_decided_about
        self._thread = threading.Thread(target=self._run, args=(folder, self._stop, settle), name="trial", daemon=True)
        self._thread.start()

    def poll(self, wait_s: float = 1.0, *, at_once: bool = False) -> list[Record]:
        """Returns the records since the last call, after `wait_s` seconds or when the trial ends.

        Args:
          wait_s: Longest time to wait.
          at_once: Return as soon as there is any record.
        """
        with self._changed:
            self._num_polls += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_ended or (at_once and bool(self._records)), timeout=wait_s)
            records, self._records = self._records, []
            self._last_taken = self._num_polls if records else self._last_taken
        return records

    def stop(self) -> None:
        """Asks the trial to save and end; its last record is then `done` with status `preempted`."""
        with self._changed:
            self._stop.set()
            self._changed.notify_all()

    def _run(self, folder: str | os.PathLike[str], stop: threading.Event, settle: bool) -> None:
        began_at = time.time()
        logs = rundir.TrialDir(folder).logs  # A pack has them at the same place.
        try:
            with trial_logs.redirected_output(logs, rank=self._seat.rank if self._seat is not None else 0):
                ending = self._train(folder, stop, settle)
        except OSError as error:  # The log can't be opened: the disk is full, or the run is gone.
            ending = _raised(error, is_setup=False)
        ending.update(began_ms=int(1000 * began_at), ended_ms=int(1000 * time.time()))
        # The arrays of this trial must be gone before the next one makes its own.
        gc.collect()
        if self._lease is not None:
            self._lease.release()
        self._put(ending)

    def _train(self, folder: str | os.PathLike[str], stop: threading.Event, settle: bool) -> Record:
        ending: Record = {"kind": "raised", "error": "the trainer ended without saying how"}
        is_loaded = False
        try:
            asked = stop if self._seat is None else AgreedStop(stop)
            records = _open(folder, asked, self._settings.stop, settle=settle)
            is_loaded = True
            for record in records:
                if record["kind"] in ENDINGS:
                    ending = record
                else:
                    self._put(record)
                    if record["kind"] in _DECIDED:
                        self._await_decision()
        except _Replaced:
            ending = {"kind": "done", "step": 0, "status": "preempted", "reason": "went on in another process"}
        # Whatever a trial raises is its result; it must end neither this process nor the others' trials.
        except BaseException as error:
            ending = _raised(error, is_setup=not is_loaded)
            # Past Python's own stream, which somebody may have replaced.
            os.write(2, masking.masked("".join(traceback.format_exception(error))).encode())
        return ending

    def _put(self, record: Record) -> None:
        with self._changed:
            pack_records.merge(self._records, record)
            self._is_ended = record["kind"] in ENDINGS
            self._changed.notify_all()

    def _await_decision(self) -> None:
        """In lockstep: returns when the trial may go on.

        Raises:
          _Replaced: If it may not, because another process has begun it.
        """
        if self._lease is None:
            return
        with self._changed:
            self._changed.wait_for(
                lambda: self._stop.is_set() or (not self._records and self._num_polls > self._last_taken)
            )
        if not self._lease.is_held():
            raise _Replaced


class AgreedStop(threading.Event):
    """A wish to stop that all processes of a group see at the same step: the first one's, asked for now and then.

    Args:
      own: What this process is told.
    """

    def __init__(self, own: threading.Event):
        super().__init__()
        self._own = own
        self._num_looks = 0

    def is_set(self) -> bool:
        """Returns whether to stop. Every process must ask equally often."""
        self._num_looks += 1
        if not super().is_set() and self._num_looks % _AGREE_EVERY == 0:
            from jax.experimental import multihost_utils

            if multihost_utils.broadcast_one_to_all(self._own.is_set()):
                self.set()
        return super().is_set()


class _Replaced(Exception):
    """The trial goes on in another process."""


def _take_over(trial_dir: str | os.PathLike[str]) -> rundir.Lease | None:
    """Takes a trial from whichever process has it; that one finds out before it goes on."""
    folder = rundir.TrialDir(trial_dir).path / ".leases" / "worker"
    return rundir.Lease.claim(folder, after=rundir.read_holder(folder), note="trial")


def _open(
    folder: str | os.PathLike[str], stop: threading.Event, rules: Sequence[stopping.StopRule], *, settle: bool
) -> Iterator[Record]:
    """Returns the records of the trial or pack of a folder, which is loaded by now."""
    from kauldron_core.train import load_trial  # JAX; imported by `warm`.

    pack = rundir.PackDir(folder)
    if pack.exists():
        return pack_records.records_of(pack, stop)
    return _records_of(load_trial(folder).iter_train(stop=stop, until=stopping.until(rules), settle=settle))


def _records_of(events: Iterable[Any]) -> Iterator[Record]:
    """Yields the trainer's events as plain data, which a process without JAX can read."""
    for event in events:
        convert = _CONVERSIONS.get(type(event).__name__)
        if convert is not None:
            yield convert(event)


_CONVERSIONS: dict[str, Callable[[Any], Record]] = {
    "Logged": lambda event: {
        "kind": "logged",
        "step": int(event.step),
        "split": event.split,
        "values": _floats(event.values),
    },
    "Evaluated": lambda event: {
        "kind": "evaluated",
        "step": int(event.step),
        "split": event.name,
        "values": _floats(event.values),
    },
    "Settled": lambda event: {"kind": "settled", "step": int(event.step), "values": _floats(event.values)},
    "Saved": lambda event: {"kind": "saved", "step": int(event.step)},
    "Done": lambda event: {
        "kind": "done",
        "step": int(event.step),
        "status": event.status,
        "reason": event.reason,
    },
}


def _floats(values: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items()}


def _raised(error: BaseException, *, is_setup: bool) -> Record:
    """Returns the ending of a trial that raised.

    Args:
      error: What it raised.
      is_setup: Whether that was before the experiment could be built, so that other trials may raise the same.
    """
    return {
        "kind": "raised",
        "error": describe(error),
        "is_mistake": isinstance(error, ConfigError),
        "is_setup": is_setup,
    }


def describe(error: BaseException) -> str:
    """Returns an exception as one paragraph: type, message and the notes that say where it happened."""
    # What JAX notes about its own frames says nothing about the trial.
    notes = [note for note in getattr(error, "__notes__", ()) if "JAX has removed its internal frames" not in note]
    return masking.masked("\n".join([f"{type(error).__name__}: {error}".strip(), *notes]))
