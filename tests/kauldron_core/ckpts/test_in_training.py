"""What the checkpointer promises holds in a training run: saves by the clock, the best by a metric, loaded states."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import jax
import numpy as np
import optax
import pytest

from kauldron_core import ckpts, evals, kd
from kauldron_core.errors import ConfigError
from tests.kauldron_core import experiments

METRIC = "test/losses/total"
pytestmark = pytest.mark.slow


def _trainer(workdir: pathlib.Path, **fields: Any) -> kd.train.Trainer:
    inline = evals.Evaluator(run=evals.EveryNSteps(4, skip_first=True))
    return experiments.trainer(workdir, **{"evals": {"test": inline}, **fields})


def _equal(left: Any, right: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True))


@dataclasses.dataclass(frozen=True)
class Turning:
    """A learning rate that turns round, so that an early checkpoint is the best."""

    def __call__(self, step: Any) -> Any:
        return jax.numpy.where(step < 4, 1e-2, -0.5)


def test_the_best_and_the_latest_are_kept(tmp_path: pathlib.Path) -> None:
    """F01: of a loss the lowest is kept, though nobody gave a mode."""
    checkpointer = ckpts.Checkpointer(save_interval_steps=4, max_to_keep=1, best_metric=METRIC)
    trainer = _trainer(tmp_path, checkpointer=checkpointer, optimizer=optax.sgd(Turning()), num_train_steps=12)
    found = [event.values["losses/total"] for event in trainer.iter_train() if isinstance(event, kd.train.Evaluated)]
    scores = dict(zip((4, 8, 12), found, strict=True))
    best = min(scores, key=lambda step: scores[step])
    assert best < 12, "or the test shows nothing"
    assert ckpts.all_steps(tmp_path / "checkpoints") == sorted({best, 12})
    assert trainer.checkpointer is not None
    assert trainer.checkpointer.scores() == {step: scores[step] for step in sorted({best, 12})}


def test_a_metric_that_no_evaluation_makes_ends_the_run_in_one_line(tmp_path: pathlib.Path) -> None:
    checkpointer = ckpts.Checkpointer(save_interval_steps=4, max_to_keep=1, best_metric="test/losses/xnt", mode="min")
    with pytest.raises(ConfigError, match=r"unknown metric 'test/losses/xnt'\. Did you mean 'test/losses/xent'"):
        _trainer(tmp_path, checkpointer=checkpointer).train()


def test_saves_by_the_clock_do_not_change_what_is_trained(tmp_path: pathlib.Path) -> None:
    """A run that was ended between two planned saves goes on from the one the clock made, to the same bits."""
    plain = experiments.trainer(tmp_path / "plain", checkpointer=ckpts.Checkpointer(save_interval_steps=100)).train()
    by_clock = ckpts.Checkpointer(save_interval_steps=None, save_interval_s=1e-9)
    trainer = experiments.trainer(tmp_path / "clock", checkpointer=by_clock)
    events = trainer.iter_train()
    for event in events:
        if isinstance(event, kd.train.Saved) and event.step >= 2:
            break
    events.close()
    saved = ckpts.all_steps(tmp_path / "clock" / "checkpoints")
    assert saved and saved[-1] < 12, saved
    assert _equal(trainer.train(), plain)


def test_a_run_starts_from_another_ones_parameters_and_resumes_its_own(tmp_path: pathlib.Path) -> None:
    source = experiments.trainer(tmp_path / "source").train()
    loader = ckpts.SimpleCheckpointLoader(workdir=tmp_path / "source")
    trainer = experiments.trainer(tmp_path / "target", init_transform=loader, num_train_steps=4, seed=1)
    assert _equal(trainer.init_state().params, source.params)
    first = trainer.train()
    assert not _equal(first.params, source.params)
    longer = experiments.trainer(tmp_path / "target", init_transform=loader, num_train_steps=4, seed=1)
    assert _equal(longer.train(), first), "the loader is for a fresh state, never for a resumed one"
