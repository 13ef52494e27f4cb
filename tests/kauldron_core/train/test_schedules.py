"""What is logged of a schedule is what the update used."""

from __future__ import annotations

from typing import Any

import numpy as np
import optax
import pytest

from kauldron_core import kd, konfig, packs
from kauldron_core.train import Logged
from tests.kauldron_core import experiments

LINEAR: Any = optax.linear_schedule(1.0, 0.0, 10)
OTHER: Any = optax.linear_schedule(0.5, 0.0, 100)


def _every(num: int, optimizer: Any) -> Any:
    return optax.MultiSteps(optimizer, num).gradient_transformation()


def _logged(trainer: Any) -> list[float]:
    return [event.values["schedules/rate"] for event in experiments.of_kind(trainer.iter_train(), Logged)]


def _trainer(**fields: Any) -> kd.train.Trainer:
    defaults = {"num_train_steps": 6, "log_metrics_every": 1, "checkpointer": None, "schedules": {"rate": LINEAR}}
    return experiments.trainer(**{**defaults, **fields})


def test_a_schedule_is_logged_at_the_count_of_the_optimizer() -> None:
    """F05: with `optax.MultiSteps` the step was taken for the count."""
    schedules = {"rate": LINEAR, "other": OTHER}
    trainer = _trainer(optimizer=optax.chain(optax.clip(1.0), _every(2, optax.adam(LINEAR))), schedules=schedules)
    values = [event.values for event in experiments.of_kind(trainer.iter_train(), Logged)]
    np.testing.assert_allclose([v["schedules/rate"] for v in values], [LINEAR(step // 2) for step in range(6)])
    np.testing.assert_allclose([v["schedules/other"] for v in values], [OTHER(step) for step in range(6)])


class Infinite(kd.data.InMemoryPipeline):
    """Points of which the third and the fourth batch are not finite."""

    def __iter__(self) -> Any:
        for number, batch in enumerate(super().__iter__()):
            yield {**batch, "x": np.full_like(batch["x"], np.inf)} if number in (2, 3) else batch


def test_a_skipped_update_does_not_move_a_schedule() -> None:
    """F05: the value logged after skipped updates was smaller than the one used."""
    ds = Infinite(loader=experiments.load_points, batch_size=16)
    trainer = _trainer(train_ds=ds, optimizer=optax.sgd(LINEAR), on_nonfinite="skip")
    np.testing.assert_allclose(_logged(trainer), [LINEAR(count) for count in (0, 1, 2, 2, 2, 3)])


def test_a_call_of_several_steps_logs_the_value_of_its_last() -> None:
    """F05: `steps_per_call` too."""
    trainer = _trainer(steps_per_call=3, log_metrics_every=3, optimizer=_every(2, optax.sgd(LINEAR)))
    np.testing.assert_allclose(_logged(trainer), [LINEAR(count) for count in (0, 1, 2)])


def _config(peak: float) -> Any:
    with konfig.imports():
        import optax

        from kauldron_core import kd
        from tests.kauldron_core.train import test_schedules as here
    cfg: Any = kd.train.Trainer(
        num_train_steps=6,
        log_metrics_every=1,
        train_ds=kd.data.InMemoryPipeline(loader=experiments.load_points, batch_size=16),
        model=kd.nn.MLP(hidden=8, features=experiments.CLASSES, x="batch.x"),
        train_losses={"xent": kd.losses.SoftmaxCrossEntropyWithIntLabels(logits="preds", labels="batch.label")},
        schedules={"rate": optax.warmup_cosine_decay_schedule(0.0, peak, 2, 6)},
        checkpointer=None,
    )
    cfg.optimizer = here._every(2, optax.sgd(cfg.ref.schedules["rate"]))
    return cfg


@pytest.mark.slow
def test_packs_log_what_their_trials_used() -> None:
    """F05: packs too, where a schedule that branches on its numbers becomes a table."""
    configs = [_config(peak) for peak in (1.0, 0.5)]
    events = list(packs.iter_train(configs))
    for member, peak in enumerate((1.0, 0.5)):
        values = [e.event.values for e in events if e.member == member and isinstance(e.event, Logged)]
        schedule: Any = optax.warmup_cosine_decay_schedule(0.0, peak, 2, 6)
        np.testing.assert_allclose(
            [v["schedules/rate"] for v in values], [schedule(count // 2) for count in range(6)], rtol=1e-6
        )
