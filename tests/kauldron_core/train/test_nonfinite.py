"""A loss that is not finite never gets into a checkpoint."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron_core import kd, kontext
from kauldron_core.errors import ConfigError
from kauldron_core.train import Done, Logged, Saved
from tests.kauldron_core import experiments

BAD_BATCH = 5


class Poisoned:
    """Makes one batch infinite; a data set that goes wrong in the middle."""

    def __init__(self, ds: Any):
        self._ds = ds
        self.element_spec = ds.element_spec

    def __iter__(self):
        return PoisonedIterator(iter(self._ds))

    def __len__(self):
        raise TypeError("without end")


class PoisonedIterator:
    def __init__(self, iterator: Any):
        self._iterator = iterator
        self.get_state, self.set_state, self.close = iterator.get_state, iterator.set_state, iterator.close

    def __next__(self):
        batch = next(self._iterator)
        if self.get_state()["next_batch"] == BAD_BATCH:
            return {**batch, "x": np.full_like(batch["x"], np.inf)}
        return batch


def _trainer(workdir: Any, **fields: Any) -> kd.train.Trainer:
    ds = Poisoned(experiments.points(shuffle=True, seed=0))
    return experiments.trainer(workdir, train_ds=ds, **fields)


def _saved_states(trainer: kd.train.Trainer) -> list[Any]:
    checkpointer = trainer.checkpointer
    return [checkpointer.restore(trainer.state_specs, step=step) for step in checkpointer.all_steps]


def _is_finite(state: Any) -> bool:
    return all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves((state.params, state.opt_state)))


@pytest.mark.parametrize(("every", "log_every"), [(1, 1), (2, 3), (4, 4), (3, 100)])
def test_stop_ends_as_diverged_with_the_last_good_checkpoint(
    tmp_path: pathlib.Path, every: int, log_every: int
) -> None:
    checkpointer = kd.ckpts.Checkpointer(save_interval_steps=every)
    trainer = _trainer(tmp_path, checkpointer=checkpointer, log_metrics_every=log_every)
    events = list(trainer.iter_train())
    assert isinstance(events[-1], Done)
    assert events[-1].status == "diverged"
    assert "not finite" in events[-1].reason
    last_good = (BAD_BATCH - 1) // every * every
    assert [event.step for event in experiments.of_kind(events, Saved)] == list(range(every, last_good + 1, every))
    assert all(_is_finite(state) for state in _saved_states(trainer))


def test_the_reason_names_the_loss_and_the_step(tmp_path: pathlib.Path) -> None:
    losses = {"a": kd.losses.AbsoluteValue(values="params.Dense_0.bias"), **experiments.losses()}
    events = list(_trainer(None, train_losses=losses, log_metrics_every=1).iter_train())
    assert events[-1].reason == "loss 'xent' was not finite at step 5"


def test_skip_leaves_out_the_bad_update_only(tmp_path: pathlib.Path) -> None:
    trainer = _trainer(tmp_path, on_nonfinite="skip", num_train_steps=8, log_metrics_every=1)
    events = list(trainer.iter_train())
    assert events[-1] == Done(step=8, status="done")
    assert all(_is_finite(state) for state in _saved_states(trainer))
    skipped = [event.values["health/skipped_steps"] for event in experiments.of_kind(events, Logged)]
    assert skipped == [0, 0, 0, 0, 1, 1, 1, 1]

    before = trainer.init_state()
    state, data = before, iter(trainer.train_ds)
    for _ in range(BAD_BATCH):
        before = jax.device_get(state)
        state, _ = trainer.trainstep.step(state, next(data))
    assert int(state.step) == BAD_BATCH
    for old, new in zip(jax.tree.leaves(before.params), jax.tree.leaves(state.params), strict=True):
        np.testing.assert_array_equal(old, new)


def test_ignore_goes_on(tmp_path: pathlib.Path) -> None:
    trainer = _trainer(tmp_path, on_nonfinite="ignore")
    events = list(trainer.iter_train())
    assert events[-1] == Done(step=12, status="done")
    assert not _is_finite(_saved_states(trainer)[-1])


class BadGradient(nn.Module):
    """A model whose outputs are fine and whose gradient is not."""

    x: kontext.Key = "batch.x"

    @nn.compact
    def __call__(self, x):
        scale = self.param("scale", nn.initializers.zeros, ())
        return nn.Dense(experiments.CLASSES)(x) + jnp.sqrt(scale)


@pytest.mark.parametrize(("choice", "status"), [("stop", "diverged"), ("skip", "done")])
def test_a_gradient_that_is_not_finite_never_gets_into_a_checkpoint(
    tmp_path: pathlib.Path, choice: Any, status: str
) -> None:
    trainer = experiments.trainer(
        tmp_path,
        model=BadGradient(),
        on_nonfinite=choice,
        num_train_steps=2,
        checkpointer=kd.ckpts.Checkpointer(save_interval_steps=1),
    )
    events = list(trainer.iter_train())
    assert events[-1].status == status
    assert all(_is_finite(state) for state in _saved_states(trainer))


def test_a_run_that_saves_nothing_is_checked_at_its_end() -> None:
    events = list(experiments.trainer(model=BadGradient(), num_train_steps=1).iter_train())
    assert (events[-1].status, events[-1].reason) == ("diverged", "the state was not finite after step 1")


def test_a_diverged_run_that_is_started_again_diverges_again(tmp_path: pathlib.Path) -> None:
    trainer = _trainer(tmp_path)
    first = list(trainer.iter_train())[-1]
    assert first.status == "diverged"
    assert list(dataclasses.replace(trainer).iter_train())[-1] == first


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"on_nonfinite: unknown choice 'halt'. Available: stop, skip, ignore"):
        experiments.trainer(on_nonfinite="halt")
