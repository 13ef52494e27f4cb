"""A pack that runs out of memory, or is killed, comes to the same."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from kauldron_core import packs, rundir
from kauldron_core.packs.programs import PackedPrograms
from tests.kauldron_core.packs.test_packs import saved

pytestmark = pytest.mark.slow


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
        found = saved(tmp_path / name, 12, num_trials=3)
        for cfg in found:
            cfg.evals = {}
        return found

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


def test_one_trial_that_does_not_fit_is_an_error_that_says_what_takes_the_memory(
    monkeypatch: Any, tmp_path: Any
) -> None:
    device = Device(monkeypatch, 0)
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED") as error:
        packs.train(saved(tmp_path, 12))
    assert device.refused == 2 and "arrays are alive" in error.value.__notes__[0]
