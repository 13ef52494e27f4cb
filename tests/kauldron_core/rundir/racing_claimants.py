"""Processes that want the same thing at the same moment; run as `python racing_claimants.py SCENARIO ROUNDS`.

A plain Python process which forks the claimants, lets them go at one signal, and counts the winners of each round.
"""

from __future__ import annotations

import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from kauldron_core import rundir
from kauldron_core.errors import ConfigError

CLAIMANTS = 6
_kept: list[Any] = []  # Leases that a winner must not lose by garbage collection before the round ends.


def race(attempt: Callable[[], str], *, claimants: int = CLAIMANTS) -> list[str]:
    """Returns what `attempt` answered in each of the processes that ran it at the same time."""
    start_read, start_write = os.pipe()
    end_read, end_write = os.pipe()
    answers: list[int] = []
    pids: list[int] = []
    for _ in range(claimants):
        answer_read, answer_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(start_write)
            os.close(end_write)
            os.read(start_read, 1)  # Ends when the parent closes its end: the same moment for all.
            os.write(answer_write, attempt().encode() or b"-")
            os.close(answer_write)
            os.read(end_read, 1)  # A winner lives until all have answered; a dead one would be inherited from.
            os._exit(0)
        os.close(answer_write)
        answers.append(answer_read)
        pids.append(pid)
    os.close(start_write)
    results = [os.read(descriptor, 200).decode() for descriptor in answers]
    os.close(end_write)
    for descriptor in [start_read, end_read, *answers]:
        os.close(descriptor)
    for pid in pids:
        os.waitpid(pid, 0)
    return results


def dead_lease(path: pathlib.Path) -> None:
    """Leaves a lease whose holder has died."""
    pid = os.fork()
    if pid == 0:
        os._exit(0 if rundir.Lease.acquire(path) else 1)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise SystemExit("the first claim failed")


def lease(path: pathlib.Path) -> Callable[[], str]:
    def attempt() -> str:
        held = rundir.Lease.acquire(path)
        _kept.append(held)
        return "won" if held and held.heartbeat() else "lost"

    return attempt


def lock(run: rundir.RunDir) -> Callable[[], str]:
    def attempt() -> str:
        try:
            _kept.append(run.lock().acquire())
        except ConfigError:
            return "lost"
        return "won"

    return attempt


def one_winner(answers: list[str]) -> bool:
    return sorted(answers) == ["lost"] * (len(answers) - 1) + ["won"]


def fresh_lease(folder: pathlib.Path) -> bool:
    return one_winner(race(lease(folder / "lease")))


def stale_lease(folder: pathlib.Path) -> bool:
    dead_lease(folder / "lease")
    return one_winner(race(lease(folder / "lease")))


def many_generations(folder: pathlib.Path) -> bool:
    """One winner at a time also when every holder dies at once and old generations are being removed."""
    return all(one_winner(race(lease(folder / "lease"), claimants=3)) for _ in range(12))


def stale_lock(folder: pathlib.Path) -> bool:
    dead_lease(folder / ".lock")
    return one_winner(race(lock(rundir.RunDir(folder))))


def attempt_numbers(folder: pathlib.Path) -> bool:
    answers = race(lambda: str(rundir.EventWriter(folder / "events").attempt))
    return sorted(map(int, answers)) == list(range(1, CLAIMANTS + 1))


def results(folder: pathlib.Path) -> bool:
    def attempt() -> str:
        is_first = rundir.write_eval_result(folder, "test", 7, {"pid": os.getpid(), "text": "x" * 5000})
        return f"won {os.getpid()}" if is_first else "lost"

    answers = race(attempt)
    recorded = rundir.read_eval_results(folder)["test", 7]
    return sorted(answers)[:-1] == ["lost"] * (CLAIMANTS - 1) and f"won {recorded['pid']}" in answers


def runs(folder: pathlib.Path) -> bool:
    def attempt() -> str:
        try:
            rundir.RunDir.create(folder / "run")
        except ConfigError:
            return "lost"
        return "won"

    return one_winner(race(attempt))


SCENARIOS = {
    action.__name__: action
    for action in (fresh_lease, stale_lease, many_generations, stale_lock, attempt_numbers, results, runs)
}

if __name__ == "__main__":
    started_s = time.monotonic()
    rounds = int(sys.argv[2])
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as name:
            if not SCENARIOS[sys.argv[1]](pathlib.Path(name)):
                raise SystemExit(f"round {number}: not exactly one winner")
    print(f"{rounds} rounds in {time.monotonic() - started_s:.1f} s")
