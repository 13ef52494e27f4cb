"""Writers of the run directory, each killed before, in the middle of and after every system call that changes a file.

Run as `python killed_writers.py SCENARIO`: a plain Python process which forks a child per kill point. Exits with 0
and one line of figures if every reader found the old or the new content and every next writer could go on.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import pathlib
import signal
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import pyarrow.parquet  # Before the first fork, so that children don't import it one by one.  # noqa: F401

from kauldron_core import rundir

CALLS = ("open", "write", "fsync", "replace", "rename", "link", "unlink", "rmdir", "mkdir", "utime", "ftruncate")
MOMENTS = ("before", "after", "torn")


@dataclasses.dataclass(frozen=True)
class Scenario:
    """One writer.

    Attributes:
      write: What is killed.
      read: Returns what a reader finds.
      allowed: Everything a reader may find, from the old content to the new.
      prepare: Makes what was there before.
      go_on: The next writer; `write` again by default.
      after: What must be found once the next writer is through; the last of `allowed` by default.
    """

    write: Callable[[pathlib.Path], Any]
    read: Callable[[pathlib.Path], Any]
    allowed: list[Any]
    prepare: Callable[[pathlib.Path], Any] = lambda folder: None
    go_on: Callable[[pathlib.Path], Any] | None = None
    after: Any = None


def kill_at(call_number: int, moment: str) -> None:
    """Makes this process end itself at its n-th system call that changes a file."""
    counter = itertools.count(1)

    def wrap(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if next(counter) != call_number:
                return real(*args, **kwargs)
            if moment == "torn" and name == "write":
                real(args[0], bytes(args[1])[: len(args[1]) // 2])
            elif moment != "before":
                real(*args, **kwargs)
            os.kill(os.getpid(), signal.SIGKILL)

        return call

    for name in CALLS:
        setattr(os, name, wrap(name))


def run_child(action: Callable[[pathlib.Path], Any], folder: pathlib.Path, call_number: int, moment: str) -> bool:
    """Returns whether `action` got to its end."""
    pid = os.fork()
    if pid == 0:
        kill_at(call_number, moment)
        try:
            action(folder)
        except BaseException as error:
            os.write(2, f"the writer raised {error!r}\n".encode())
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code not in (0, -signal.SIGKILL):
        raise SystemExit(f"a writer ended with {code} at call {call_number} ({moment})")
    return code == 0


def check(scenario: Scenario) -> int:
    """Returns how many kill points were tried."""
    points = 0
    for moment in MOMENTS:
        for call_number in itertools.count(1):
            with tempfile.TemporaryDirectory() as name:
                folder = pathlib.Path(name)
                scenario.prepare(folder)
                is_complete = run_child(scenario.write, folder, call_number, moment)
                place = f"call {call_number} ({moment})"
                found = scenario.read(folder)
                expect(found in scenario.allowed, f"{place}: a reader found {found!r}")
                expect(not is_complete or found == scenario.allowed[-1], f"{place}: complete, but found {found!r}")
                (scenario.go_on or scenario.write)(folder)
                after = scenario.read(folder)
                expected = scenario.allowed[-1] if scenario.after is None else scenario.after
                expect(after == expected, f"{place}: after the next writer a reader found {after!r}")
            points += 1
            if is_complete:
                break
    return points


def expect(condition: bool, message: str) -> None:
    """Ends with `message` unless the condition holds."""
    if not condition:
        raise SystemExit(message)


def content(path: pathlib.Path) -> str | None:
    """Returns the text of `path`, None if there is no such file."""
    return path.read_text() if path.exists() else None


# -- events: every segment readable, the next attempt goes on, no step twice.
def append_three(folder: pathlib.Path) -> None:
    with rundir.EventWriter(folder / "events") as events:
        events.resumed_from(-1)
        for step in (1, 2, 3):
            events.append("metrics", step, values={"losses/total": 1.0 / step})


def steps(folder: pathlib.Path) -> list[int]:
    followed = [event["step"] for event in rundir.EventFollower(folder / "events").poll() if event["kind"] == "metrics"]
    read = [event["step"] for event in rundir.read_events(folder / "events")]
    expect(followed[-len(read) :] == read if read else True, f"follower {followed} and reader {read} disagree")
    return read


# -- evaluation results: one standing, the replaced one kept.
def record(value: int) -> Callable[[pathlib.Path], Any]:
    return lambda folder: rundir.write_eval_result(folder, "test", 200, {"value": value}, again=value > 1)


def standing_and_kept(folder: pathlib.Path) -> tuple[Any, bool]:
    found = rundir.read_eval_result(folder, "test", 200)
    kept = [json.loads(path.read_text())["value"] for path in folder.glob("evals/test/replaced/[0-9]*")]
    return (found and found["value"], 1 in kept)


# -- leases and the lock: a killed holder holds nothing.
def hold(folder: pathlib.Path, *, forget: bool = False) -> None:
    lease = rundir.Lease.acquire(folder / "lease")
    if lease is None:
        raise RuntimeError("a dead holder is in the way")
    if not lease.heartbeat():
        raise RuntimeError("lost a lease that nobody else wanted")
    lease.release(forget=forget)


def lock(folder: pathlib.Path) -> None:
    with rundir.RunDir(folder).lock() as held:
        if not held.is_held():
            raise RuntimeError("lost a lock that nobody else wanted")


# -- the layout.
def lay_out(folder: pathlib.Path) -> None:
    run = rundir.RunDir(folder / "run")
    if not run.exists():
        rundir.RunDir.create(run, {"name": "demo"})
    run.trial("0000").create('{"a": 1}')


def layout(folder: pathlib.Path) -> tuple[Any, ...]:
    run = rundir.RunDir(folder / "run")
    return (run.sweep["name"] if run.exists() else None, [trial.config_path.read_text() for trial in run.trials()])


def statuses(folder: pathlib.Path) -> None:
    rundir.write_status(folder / "trial", "running", attempt=1)
    rundir.write_status(folder / "trial", "done")


def table(rows: list[dict[str, Any]]) -> Callable[[pathlib.Path], None]:
    return lambda folder: rundir.RunDir(folder).write_results(rows)


def probe(folder: pathlib.Path) -> bool:
    try:
        rundir.check_probe(folder, rundir.write_probe(folder), timeout_s=0)
    except OSError as error:
        raise SystemExit(f"the probe failed: {error}") from error
    return True


def write_in_place(folder: pathlib.Path) -> None:
    """What nobody should do; shows that this harness would see it."""
    descriptor = os.open(folder / "file", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(descriptor, b"new" * 100)
    os.close(descriptor)


SCENARIOS = {
    "in-place": Scenario(
        prepare=lambda folder: rundir.write_atomic(folder / "file", "old" * 100),
        write=write_in_place,
        read=lambda folder: content(folder / "file"),
        allowed=["old" * 100, "new" * 100],
    ),
    "replace": Scenario(
        prepare=lambda folder: rundir.write_atomic(folder / "file", "old" * 100),
        write=lambda folder: rundir.write_atomic(folder / "file", "new" * 100),
        read=lambda folder: content(folder / "file"),
        allowed=["old" * 100, "new" * 100],
    ),
    "create": Scenario(
        write=lambda folder: rundir.create_exclusive(folder / "file", "new"),
        read=lambda folder: content(folder / "file"),
        allowed=[None, "new"],
    ),
    "events": Scenario(write=append_three, read=steps, allowed=[[], [1], [1, 2], [1, 2, 3]]),
    "status": Scenario(
        write=statuses,
        read=lambda folder: rundir.read_status(folder / "trial")["status"],
        allowed=["queued", "running", "done"],
    ),
    "result": Scenario(
        write=record(1),
        read=lambda folder: rundir.read_eval_results(folder).get(("test", 200), {}).get("value"),
        allowed=[None, 1],
    ),
    "result-again": Scenario(
        prepare=record(1), write=record(2), read=standing_and_kept, allowed=[(1, False), (1, True), (2, True)]
    ),
    "pending": Scenario(
        prepare=lambda folder: rundir.write_pending(folder, "test", rundir.Pending(due=(1,), seen=1)),
        write=lambda folder: rundir.write_pending(folder, "test", rundir.Pending(due=(1, 2), seen=2)),
        read=lambda folder: rundir.read_pending(folder, "test").due,
        allowed=[(1,), (1, 2)],
    ),
    "lease": Scenario(write=hold, read=lambda folder: rundir.Lease.is_live(folder / "lease"), allowed=[False]),
    "lease-forget": Scenario(
        write=lambda folder: hold(folder, forget=True),
        read=lambda folder: rundir.Lease.is_live(folder / "lease"),
        allowed=[False],
    ),
    "lock": Scenario(write=lock, read=lambda folder: rundir.Lease.is_live(folder / ".lock"), allowed=[False]),
    "layout": Scenario(
        write=lay_out,
        read=layout,
        allowed=[(None, []), ("demo", []), ("demo", ['{"a": 1}'])],
    ),
    "table": Scenario(
        prepare=table([{"trial": "0000"}]),
        write=table([{"trial": "0000", "accuracy": 0.5}]),
        read=lambda folder: rundir.read_table(folder / "results.parquet"),
        allowed=[[{"trial": "0000"}], [{"trial": "0000", "accuracy": 0.5}]],
    ),
    "probe": Scenario(write=rundir.write_probe, read=probe, allowed=[True]),
}

if __name__ == "__main__":
    print(f"{check(SCENARIOS[sys.argv[1]])} kill points")
