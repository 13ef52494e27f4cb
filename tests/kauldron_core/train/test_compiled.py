"""Promises of the one compiled step: what it is shared by, and that sharing changes nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

from kauldron_core import konfig
from kauldron_core.train.step import compiled, eval_programs
from tests.kauldron_core import experiments

with konfig.imports():
    import optax

    from kauldron_core import kd


@pytest.fixture(autouse=True)
def _no_earlier_programs() -> Iterator[None]:
    _clear()
    yield
    _clear()


def _clear() -> None:
    compiled.clear()
    eval_programs.clear()


class Compilations:
    """Counts what XLA compiles; shared by the tests, since a listener can't be taken back."""

    def __init__(self) -> None:
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, name: str, duration: float, **_: Any) -> None:
        self.count += name.endswith("backend_compile_duration")


_compilations = Compilations()


def config(**changes: Any) -> Any:
    cfg = kd.train.Trainer(
        seed=0,
        num_train_steps=6,
        log_metrics_every=3,
        train_ds=kd.data.InMemoryPipeline(loader=experiments.load_points, batch_size=16, shuffle=True),
        model=kd.nn.MLP(hidden=8, features=experiments.CLASSES, dropout=0.2, x="batch.x"),
        train_losses={"xent": kd.losses.SoftmaxCrossEntropyWithIntLabels(logits="preds", labels="batch.label")},
        train_metrics={"accuracy": kd.metrics.Accuracy(logits="preds", labels="batch.label")},
        optimizer=optax.adam(learning_rate=1e-2),
        checkpointer=None,
        evals={
            "test": kd.evals.Evaluator(
                run=kd.evals.Final(), ds=kd.data.InMemoryPipeline(loader=experiments.load_points, batch_size=16)
            )
        },
    )
    for path, value in changes.items():
        konfig.apply_overrides(cfg, [f"{path.replace('__', '.')}={value}"])
    return cfg


def losses_of(trainer: Any) -> list[float]:
    events = trainer.iter_train()
    return [event.values["losses/total"] for event in events if hasattr(event, "split")]


def test_a_second_trainer_that_differs_in_numbers_only_compiles_nothing() -> None:
    first = losses_of(konfig.resolve(config()))
    before = _compilations.count
    second = losses_of(konfig.resolve(config(optimizer__learning_rate=0.5, seed=3)))
    assert _compilations.count == before
    assert first != second


def test_shared_and_own_programs_give_the_same_numbers() -> None:
    losses_of(konfig.resolve(config(optimizer__learning_rate=0.5, seed=3)))
    shared = losses_of(konfig.resolve(config(optimizer__learning_rate=0.1, seed=4)))
    compiled.clear()
    assert losses_of(konfig.resolve(config(optimizer__learning_rate=0.1, seed=4))) == shared
    # Built without a config, nothing is an argument: the constants are folded, and round a little differently.
    alone = experiments.trainer(
        seed=4, num_train_steps=6, log_metrics_every=3, checkpointer=None, optimizer=konfig.resolve(optax.adam(0.1))
    )
    np.testing.assert_allclose(losses_of(alone), shared, rtol=1e-5)


def test_a_change_of_structure_is_another_program() -> None:
    wide = konfig.resolve(config(model__hidden=16))
    losses_of(konfig.resolve(config()))
    before = _compilations.count
    losses_of(wide)
    assert _compilations.count > before


def test_a_number_that_is_branched_on_stays_in_the_program() -> None:
    cfg = config()
    cfg.optimizer.learning_rate = optax.exponential_decay(0.1, transition_steps=2, decay_rate=0.5)
    trainer = konfig.resolve(cfg)
    losses = losses_of(trainer)
    cfg.optimizer.learning_rate["2" if "2" in cfg.optimizer.learning_rate else "decay_rate"] = 0.9
    assert losses_of(konfig.resolve(cfg)) != losses
    [*_, structure] = compiled._kept_steps.values()
    assert set(structure.arguments) == {"seed", "optimizer.learning_rate[0]"}


def test_a_trainer_changed_after_it_was_built_does_not_use_the_numbers_of_its_config() -> None:
    trainer = konfig.resolve(config())
    changed = dataclasses.replace(trainer, seed=7)
    assert losses_of(changed) == pytest.approx(losses_of(konfig.resolve(config(seed=7))), rel=1e-5)
    # The config may be changed too, once it has been resolved.
    cfg = config()
    trainer = konfig.resolve(cfg)
    cfg.optimizer.learning_rate = 9.0
    assert losses_of(trainer) == losses_of(konfig.resolve(config()))


def test_weak_numbers_keep_the_types_of_a_state() -> None:
    cfg = config()
    cfg.optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1, momentum=0.9))
    trainer = konfig.resolve(cfg)
    kinds = {leaf.dtype for leaf in jax.tree.leaves((trainer.state_specs.params, trainer.state_specs.opt_state))}
    assert kinds == {np.dtype("float32")}


def test_a_mistake_in_the_wiring_is_raised_as_it_is() -> None:
    cfg = config()
    cfg.train_losses["xent"].logits = "pred"
    with pytest.raises(Exception, match="pred"):
        losses_of(konfig.resolve(cfg))
