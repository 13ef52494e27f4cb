"""A pack that runs out of memory, or is killed, comes to the same."""

from __future__ import annotations

import os
import pathlib
import random
import signal
import subprocess
import sys
from typing import Any

import jax
import numpy as np
import pytest

from kauldron_core import ckpts, konfig, packs, rundir
from kauldron_core.packs.running.division import Division
from kauldron_core.packs.running.programs import PackedPrograms
from tests.kauldron_core.packs.test_packs import saved

with konfig.imports():
    import optax

pytestmark = pytest.mark.slow


def trials_of(count: int, folder: Any) -> list[Any]:
    """Returns small trials, quick to compile."""
    found = saved(folder, 12, num_trials=count)
    for cfg in found:
        cfg.evals, cfg.model.dropout = {}, 0.0
        cfg.optimizer = optax.sgd(learning_rate=cfg.optimizer.learning_rate)
    return found


class Device:
    """Has room for the states of so many trials at most, until a step from which on it has room for fewer."""

    def __init__(self, monkeypatch: Any, most: int, *, later: int | None = None, from_step: int = 0):
        self.refused = 0
        inner = PackedPrograms.call

        def call(programs: PackedPrograms, outputs: Any, *, size: int) -> Any:
            function = inner(programs, outputs, size=size)

            def limited(numbers: Any, states: Any, *batches: Any) -> Any:
                step, count = int(states.step[0]), len(states.step)
                if count > (later if later is not None and step >= from_step else most):
                    self.refused += 1
                    raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 12345 bytes.")
                return function(numbers, states, *batches)

            return limited

        monkeypatch.setattr(PackedPrograms, "call", call)


def told(folder: Any) -> list[list[Any]]:
    """Returns what the records of each trial say, whenever it became known."""
    found = []
    for index in range(3):
        events = rundir.read_events(folder / "trials" / str(index) / "events")
        found.append(sorted((event["step"], event["kind"]) for event in events))
    return found


def test_out_of_memory_halves_a_pack_which_goes_on_from_its_checkpoint(tmp_path: Any, monkeypatch: Any) -> None:
    def trials(name: str) -> list[Any]:
        return trials_of(3, tmp_path / name)

    whole = packs.train(trials("whole"), folder=tmp_path / "whole" / "pack")
    device = Device(monkeypatch, 3, later=1, from_step=7)
    training = packs.iter_train(trials("cut"), folder=tmp_path / "cut" / "pack")
    for event in training:
        if event.member == 1 and event.event.step == 10:
            break
    training.close()
    # Three did not fit after step 7, nor did the first two; the checkpoint at step 5 is where each goes on.
    assert device.refused == 2
    assert rundir.read_json(tmp_path / "cut" / "pack" / "halves.json") == {"step": 5, "halves": [[0, 1], [2]]}
    packed = packs.train(trials("cut"), folder=tmp_path / "cut" / "pack")
    assert device.refused == 2, "a restart goes the same way"
    assert packed.statuses == ("done",) * 3 and packed.rows == (0, 1, 2)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
        packed.states,
        jax.device_get(whole.states),
    )
    assert told(tmp_path / "cut") == told(tmp_path / "whole")


@pytest.mark.soak
def test_one_trial_that_does_not_fit_is_an_error_that_says_what_takes_the_memory(
    monkeypatch: Any, tmp_path: Any
) -> None:
    device = Device(monkeypatch, 0)
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED") as error:
        packs.train(trials_of(2, tmp_path))
    assert device.refused == 2 and "arrays are alive" in error.value.__notes__[0]


def test_halves_are_of_those_that_still_train() -> None:
    assert Division.of([0, 2, 5], step=7) == Division(7, ((0, 2), (5,)))
    assert Division.of([2], step=7).halves == ((2,),)


KILLED = """
import os, pathlib, signal, sys
from kauldron_core import ckpts, packs
from tests.kauldron_core.packs.test_pack_memory import trials_of

folder, left = pathlib.Path(sys.argv[1]), [int(sys.argv[2]), int(sys.argv[3])]

def count(which):
    left[which] -= 1
    if left[which] == 0:
        os.kill(os.getpid(), signal.SIGKILL)

point = ckpts.Checkpointer.point
ckpts.Checkpointer.point = lambda *args, **kwargs: (count(0), point(*args, **kwargs))
for event in packs.iter_train(trials_of(2, folder), folder=folder / "pack"):
    count(1)
"""


def train_in_a_child(folder: Any, *, points: int = 0, events: int = 0) -> int:
    """Trains in a process that kills itself before it makes that pointer or after that event; returns how it ended."""
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[3])}
    command = [sys.executable, "-c", KILLED, str(folder), str(points), str(events)]
    return subprocess.run(command, env=environment, timeout=110, check=False).returncode


@pytest.mark.process
def test_a_pack_that_is_killed_between_two_pointers_resumes_all_its_trials(tmp_path: Any) -> None:
    whole = packs.train(trials_of(2, tmp_path / "whole"))
    assert train_in_a_child(tmp_path / "cut", points=2) == -signal.SIGKILL
    steps = [ckpts.all_steps(tmp_path / "cut" / "trials" / str(index) / "checkpoints") for index in (0, 1)]
    assert steps == [[5], []]
    packed = packs.train(trials_of(2, tmp_path / "cut"), folder=tmp_path / "cut" / "pack")
    jax.tree.map(np.testing.assert_array_equal, packed.states, whole.states)
    for index in (0, 1):
        folder = tmp_path / "cut" / "trials" / str(index)
        assert ckpts.all_steps(folder / "checkpoints") == [5, 10, 12]
        events = [(event["kind"], event["step"]) for event in rundir.read_events(folder / "events")]
        assert len(events) == len(set(events)) and {("checkpoint", 5), ("done", 12)} <= set(events)


def test_a_pack_says_which_of_its_checkpoints_it_left_aside(tmp_path: Any) -> None:
    """F25: in the events of each of its trials, whose states lie in the checkpoints of the pack."""
    trials, folder = trials_of(2, tmp_path), tmp_path / "pack"
    packs.train(trials, folder=folder)
    (folder / "checkpoints" / "ckpt_12" / "state" / "manifest.ocdbt").unlink()
    (folder / "checkpoints" / "ckpt_13").mkdir()
    assert packs.train(trials, folder=folder).statuses == ("done", "done")
    for index in (0, 1):
        events = rundir.EventFollower(tmp_path / "trials" / str(index) / "events").poll()
        (event,) = [event for event in events if event["kind"] == rundir.RESUMED_FROM]
        assert (event["step"], event["left_aside"]) == (10, ["ckpt_13 was not complete", "ckpt_12 was damaged"])


@pytest.mark.process
@pytest.mark.soak
def test_a_pack_that_is_killed_again_and_again_comes_to_the_same_bits(tmp_path: Any) -> None:
    whole = packs.train(trials_of(2, tmp_path / "whole"))
    generator = random.Random(int(os.environ.get("SEED", "0")))
    for _ in range(int(os.environ.get("KILLS", "4"))):
        train_in_a_child(tmp_path / "cut", points=generator.randrange(9), events=generator.randrange(1, 18))
    packed = packs.train(trials_of(2, tmp_path / "cut"), folder=tmp_path / "cut" / "pack")
    assert packed.statuses == ("done", "done")
    jax.tree.map(np.testing.assert_array_equal, packed.states, whole.states)
