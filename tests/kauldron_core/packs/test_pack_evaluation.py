"""The trials of a pack are evaluated in one program, with the results that each has alone."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from kauldron_core import evals, konfig, packs
from tests.kauldron_core import experiments
from tests.kauldron_core.packs.test_packs import config

with konfig.imports():
    from kauldron_core import kd
    from tests.kauldron_core.evals import exactness
    from tests.kauldron_core.packs import test_pack_evaluation as here

pytestmark = pytest.mark.slow


def configs(**evaluator: Any) -> list[Any]:
    found = []
    for index, weight in enumerate((1.0, 0.5, 2.0)):
        cfg = config(seed=index, train_losses__xent__weight=weight)
        cfg.evals.test = kd.evals.Evaluator(
            run=kd.evals.Final(),
            ds=kd.data.InMemoryPipeline(loader=experiments.load_points, batch_size=16),
            **evaluator,
        )
        found.append(cfg)
    return found


def stacked_states(trainers: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *[trainer.init_state() for trainer in trainers])


def test_one_program_evaluates_all_trials_as_each_is_evaluated_alone(caplog: Any, monkeypatch: Any) -> None:
    caplog.set_level("INFO", "kauldron_core.packs.running.evaluation")
    accuracy = kd.metrics.Accuracy(logits="preds", labels="batch.label")
    trials = configs(metrics={"accuracy": accuracy, "unmasked": exactness.Unmasked(values="batch.label")})
    trainers = [konfig.resolve(cfg) for cfg in trials]
    states = stacked_states(trainers)
    results = packs.evaluate_stacked([trainer.evals["test"] for trainer in trainers], states, configs=trials)
    for row, (trainer, result) in enumerate(zip(trainers, results, strict=True)):
        alone = trainer.evals["test"].evaluate(jax.tree.map(lambda leaf, row=row: leaf[row], states))
        assert result.values == pytest.approx(alone.values, rel=1e-5)
        assert result.num_examples == alone.num_examples == experiments.NUM_EXAMPLES
        mine, theirs = (one.states.metric_states["unmasked"] for one in (result, alone))
        assert (mine.rows, mine.total) == (theirs.rows, theirs.total) and mine.rows == experiments.NUM_EXAMPLES
        assert result.states.metric_states["accuracy"].count == alone.states.metric_states["accuracy"].count
    assert not caplog.records, "one by one"
    # Where memory is short, fewer at once.
    whole, sizes = evals.StackedEvaluation.evaluate, []

    def limited(self: Any, values: Any, states: Any, **kwargs: Any) -> Any:
        sizes.append(len(states.step))
        if len(states.step) > 2:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 12345 bytes.")
        return whole(self, values, states, **kwargs)

    monkeypatch.setattr(evals.StackedEvaluation, "evaluate", limited)
    for _ in range(2):
        again = packs.evaluate_stacked([trainer.evals["test"] for trainer in trainers], states, configs=trials)
        for mine, before in zip(again, results, strict=True):
            assert mine.values == pytest.approx(before.values, rel=1e-5)
    assert sizes == [3, 2, 1, 2, 1]


@pytest.mark.parametrize("kept", [True, False])
def test_what_cannot_be_mapped_is_evaluated_one_by_one(kept: bool, caplog: Any) -> None:
    caplog.set_level("INFO", "kauldron_core.packs.running.evaluation")
    trials = configs(per_example=kd.evals.PerExample()) if kept else configs(init_transform=here.Branching())
    trainers = [konfig.resolve(cfg) for cfg in trials]
    states = stacked_states(trainers)
    results = packs.evaluate_stacked([trainer.evals["test"] for trainer in trainers], states, configs=trials)
    assert [record.message.partition(":")[0] for record in caplog.records] == ["evals.test"]
    alone = trainers[1].evals["test"].evaluate(jax.tree.map(lambda leaf: leaf[1], states))
    assert results[1].values == pytest.approx(alone.values)
    assert bool(results[1].examples) == kept


class Branching:
    """Looks at a number, which tracing can't."""

    def transform(self, state: Any) -> Any:
        return state if int(state.step) == 0 else None
