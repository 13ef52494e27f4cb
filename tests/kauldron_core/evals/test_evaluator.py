"""Evaluations are exact: every example counts once, whatever the batches."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import threading
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from kauldron_core import kd, kontext
from kauldron_core.errors import ConfigError
from kauldron_core.evals import EvaluationStopped, Evaluator, Final, grouping
from tests.kauldron_core import experiments


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelSum(kd.metrics.Metric):
    """A metric that can't leave out padding: how many rows it saw, and the sum of the labels."""

    labels: kontext.Key = kontext.REQUIRED

    @flax.struct.dataclass
    class State(kd.metrics.State):
        rows: jax.Array
        total: jax.Array

        @classmethod
        def empty(cls):
            return cls(rows=jnp.int32(0), total=jnp.int32(0))

        def merge(self, other):
            return self.replace(rows=self.rows + other.rows, total=self.total + other.total)

        def compute(self):
            return {"rows": self.rows, "total": self.total}

    def get_state(self, labels):
        return self.State(rows=jnp.int32(labels.shape[0]), total=labels.sum())


def _evaluator(**fields: Any) -> Evaluator:
    return experiments.trainer(evals={"test": Evaluator(run=Final(), **fields)}).evals["test"]


def _by_hand(state: kd.train.TrainState) -> tuple[int, float]:
    """Returns the number of right answers and the mean loss, computed with NumPy over the whole set at once."""
    data = experiments.load_points()
    hidden = np.maximum(data["x"] @ state.params["Dense_0"]["kernel"] + state.params["Dense_0"]["bias"], 0)
    logits = hidden @ state.params["Dense_1"]["kernel"] + state.params["Dense_1"]["bias"]
    logits = logits.astype(np.float64)
    log_likelihoods = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    right = int((logits.argmax(-1) == data["label"]).sum())
    return right, -log_likelihoods[np.arange(len(logits)), data["label"]].mean()


@pytest.fixture(scope="module")
def state() -> kd.train.TrainState:
    return jax.device_get(experiments.trainer().train())


def test_what_no_example_counted_for_is_nan_and_never_best(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    """F07: with a mask that is all zero the loss was 0, the best there is."""
    xent = kd.losses.SoftmaxCrossEntropyWithIntLabels(logits="preds", labels="batch.label", mask="batch.use")
    losses = {"none": xent, "all": experiments.losses()["xent"]}
    metrics = {"perplexity": kd.metrics.Perplexity(logits="preds", labels="batch.label", mask="batch.use")}
    ds = experiments.points(loader=_unused)
    trainer = experiments.trainer(
        tmp_path,
        checkpointer=kd.ckpts.Checkpointer(save_interval_steps=2, best_metric="test/losses/none", mode="min"),
        num_train_steps=2,
        evals={"test": Evaluator(run=Final(), ds=ds, losses=losses, metrics=metrics)},
    )
    (evaluated,) = experiments.of_kind(trainer.iter_train(), kd.train.Evaluated)
    values = evaluated.values
    assert np.isnan([values[n] for n in ("losses/none", "losses/total", "metrics/perplexity")]).all()
    assert values["losses/all"] > 0
    assert "evals.test: no example counted for losses/none, metrics/perplexity at step 2" in caplog.text
    checkpointer: Any = trainer.checkpointer
    assert checkpointer.best_step is None


def _unused() -> dict[str, np.ndarray]:
    data = experiments.load_points()
    return data | {"use": np.zeros(len(data["x"]), bool)}


@pytest.mark.parametrize("batch_size", [1, 7, 16, 35, 69, 70, 128])
def test_accuracy_is_that_of_numpy_whatever_the_batch_size(state: kd.train.TrainState, batch_size: int) -> None:
    """E06: accuracy is that of numpy whatever the batch size."""
    result = _evaluator(ds=experiments.points(batch_size=batch_size)).evaluate(state)
    right, loss = _by_hand(state)
    accuracy = result.states.metric_states["accuracy"]
    assert (int(accuracy.total), int(accuracy.count)) == (right, experiments.NUM_EXAMPLES)
    assert result.values["metrics/accuracy"] == right / experiments.NUM_EXAMPLES
    assert result.num_examples == experiments.NUM_EXAMPLES
    assert result.values["losses/xent"] == pytest.approx(loss, rel=1e-5)
    assert result.values["losses/total"] == result.values["losses/xent"]


def test_shuffling_in_the_config_does_not_change_an_evaluation(state: kd.train.TrainState) -> None:
    """E02: shuffling in the config does not change an evaluation."""
    evaluator = _evaluator(ds=experiments.points(shuffle=True, seed=3))
    first, second = evaluator.evaluate(state), evaluator.evaluate(state)
    assert first.values == second.values == _evaluator().evaluate(state).values


def test_a_set_that_divides_evenly_keeps_its_last_batch(state: kd.train.TrainState) -> None:
    """E04: a set that divides evenly keeps its last batch."""
    assert _evaluator(ds=experiments.points(batch_size=35)).evaluate(state).num_examples == 70


@pytest.mark.parametrize("remainder", [True, "drop", "keep", "pad"])
def test_the_loader_of_the_training_data_serves_for_evaluation(state: kd.train.TrainState, remainder: Any) -> None:
    """E18: the loader of the training data serves for evaluation."""
    ds = experiments.points(shuffle=True, num_epochs=3, batch_drop_remainder=remainder)
    assert _evaluator(ds=ds).evaluate(state).num_examples == experiments.NUM_EXAMPLES


def test_num_batches_uses_the_first_batches_only(state: kd.train.TrainState) -> None:
    assert _evaluator(num_batches=2).evaluate(state).num_examples == 32


@pytest.mark.parametrize("batch_size", [1, 16, 35, 70, 100])
def test_a_metric_without_mask_sees_each_example_once(state: kd.train.TrainState, batch_size: int) -> None:
    metrics = {**experiments.metrics(), "sum": LabelSum(labels="batch.label")}
    result = _evaluator(metrics=metrics, ds=experiments.points(batch_size=batch_size)).evaluate(state)
    assert result.values["metrics/sum/rows"] == experiments.NUM_EXAMPLES
    assert result.values["metrics/sum/total"] == experiments.load_points()["label"].sum()
    assert result.values["metrics/accuracy"] == _by_hand(state)[0] / experiments.NUM_EXAMPLES


def test_a_loss_without_examples_is_not_masked(state: kd.train.TrainState) -> None:
    decay = kd.losses.AbsoluteValue(values="params.Dense_0.kernel", weight=0.5)
    result = _evaluator(losses={**experiments.losses(), "decay": decay}).evaluate(state)
    expected = 0.5 * np.abs(state.params["Dense_0"]["kernel"]).mean()
    assert result.values["losses/decay"] == pytest.approx(expected, rel=1e-5)
    assert result.values["losses/total"] == pytest.approx(result.values["losses/xent"] + expected, rel=1e-5)


@pytest.mark.parametrize(("metrics", "programs"), [({}, 1), ({"sum": LabelSum(labels="batch.label")}, 2)])
def test_a_warm_evaluator_compiles_nothing_for_other_parameters(metrics: dict[str, Any], programs: int) -> None:
    evaluator = _evaluator(metrics={**experiments.metrics(), **metrics})
    first, second = (experiments.trainer(seed=seed).init_state() for seed in (0, 1))
    assert evaluator.evaluate(first).values != evaluator.evaluate(second).values
    assert sum(program.num_compiled for program in evaluator._programs) == programs


@pytest.mark.parametrize("batch_size", [1, 3, 35])
def test_small_batches_go_several_at_a_time_and_the_states_are_the_same_bits(
    state: kd.train.TrainState, batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ds = experiments.points(batch_size=batch_size)
    together = _evaluator(ds=ds)
    result = together.evaluate(state)
    calls = together._programs[0].group_sizes
    assert calls == [grouping.best_size(-(-experiments.NUM_EXAMPLES // batch_size))]
    monkeypatch.setattr(grouping, "_MAX_BYTES", 0)
    alone = _evaluator(ds=ds)
    expected = alone.evaluate(state)
    assert alone._programs[0].group_sizes == []
    assert result.num_examples == expected.num_examples
    assert result.values == expected.values
    jax.tree.map(np.testing.assert_array_equal, result.states, expected.states)


@pytest.mark.parametrize(("num_batches", "size"), [(1, 1), (5, 5), (16, 16), (17, 9), (129, 13), (160, 16), (None, 16)])
def test_the_last_call_is_nearly_full(num_batches: int | None, size: int) -> None:
    assert grouping.best_size(num_batches) == size


def test_metrics_on_gradients_are_left_to_training(state: kd.train.TrainState) -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class GradientSize(kd.metrics.Metric):
        grads: kontext.Key = "grads"
        State = kd.metrics.AverageState

        def get_state(self, grads):
            return self.State.from_values(optax.tree.norm(grads))

    trainer = experiments.trainer(
        train_metrics={**experiments.metrics(), "size": GradientSize()}, evals={"test": Evaluator(run=Final())}
    )
    assert list(trainer.evals["test"].evaluate(state).states.metric_states) == ["accuracy"]
    _, aux = trainer.trainstep.step(trainer.init_state(), next(iter(trainer.train_ds)), return_metrics=True)
    assert aux.metric_states["size"].compute() > 0


def test_a_stop_ends_the_evaluation_before_its_next_batch(state: kd.train.TrainState) -> None:
    stop, seen = threading.Event(), []

    def note(batch: Any) -> Any:
        seen.append(1)
        if len(seen) == 2:
            stop.set()
        return batch

    with pytest.raises(EvaluationStopped):
        _evaluator(ds=experiments.points(batch_size=4, batch_transforms=(note,))).evaluate(state, stop=stop)
    assert len(seen) < experiments.NUM_EXAMPLES // 4


def test_an_evaluator_built_alone_says_what_it_lacks(state: kd.train.TrainState) -> None:
    with pytest.raises(ConfigError, match=r"evals\.eval\.ds: unset.*Trainer"):
        Evaluator(run=Final()).evaluate(state)


def test_an_evaluator_with_all_its_parts_needs_no_trainer(state: kd.train.TrainState) -> None:
    alone = Evaluator(
        run=Final(),
        ds=experiments.points(),
        model=experiments.trainer().model,
        losses=experiments.losses(),
        metrics=experiments.metrics(),
    )
    assert alone.evaluate(state).values == _evaluator().evaluate(state).values


def test_a_batch_size_of_its_own(state: kd.train.TrainState) -> None:
    evaluator = _evaluator(batch_size=9)
    assert evaluator.evaluate(state).values == pytest.approx(_evaluator().evaluate(state).values, rel=1e-6)
    assert {program.num_compiled for program in evaluator._programs} == {0, 1}


def test_a_method_of_the_model_gives_the_predictions(state: kd.train.TrainState) -> None:
    class Classifier(nn.Module):
        x: kontext.Key = "batch.x"
        scale: kontext.Key = "batch.scale"

        @nn.compact
        def __call__(self, x, scale):
            return scale * self.encode(x)

        @nn.compact
        def encode(self, x):
            return nn.Dense(experiments.CLASSES, name="head")(x)

    params = {"head": {"kernel": np.eye(4, 3, dtype=np.float32), "bias": np.zeros(3, np.float32)}}
    encoded = _evaluator(model=Classifier(), method="encode", losses={}, ds=experiments.points())
    result = encoded.evaluate(state.replace(params=params))
    data = experiments.load_points()
    assert result.values["metrics/accuracy"] == np.mean(data["x"][:, :3].argmax(-1) == data["label"])
    with pytest.raises(ConfigError, match="method: Classifier has no method 'encod'"):
        _evaluator(model=Classifier(), method="encod").evaluate(state)


def test_another_dtype_computes_in_it_and_reports_in_float32(state: kd.train.TrainState) -> None:
    plain, half = _evaluator().evaluate(state), _evaluator(dtype="bfloat16").evaluate(state)
    assert plain.values["losses/xent"] != half.values["losses/xent"]
    assert half.values["losses/xent"] == pytest.approx(plain.values["losses/xent"], rel=0.02)


@pytest.mark.parametrize("shard_count", [2, 3, 80])
def test_shares_of_the_data_merge_to_the_whole(state: kd.train.TrainState, shard_count: int) -> None:
    metrics = {**experiments.metrics(), "sum": LabelSum(labels="batch.label")}
    evaluator = _evaluator(metrics=metrics, per_example=kd.evals.PerExample(), ds=experiments.points(batch_size=8))
    shares = [evaluator.collect(state, shard_index=i, shard_count=shard_count) for i in range(shard_count)]
    merged = evaluator.result(functools.reduce(kd.evals.Collected.merge, shares), step=12, seconds=1.0)
    whole = evaluator.evaluate(state)
    assert merged.num_examples == whole.num_examples == experiments.NUM_EXAMPLES
    assert merged.values == pytest.approx(whole.values, rel=1e-7)
    exact = ("metrics/accuracy", "metrics/sum/rows", "metrics/sum/total")
    assert [merged.values[name] for name in exact] == [whole.values[name] for name in exact]
    assert sorted(row["id"] for row in merged.examples or []) == list(range(experiments.NUM_EXAMPLES))


def test_stored_predictions_give_the_numbers_again(state: kd.train.TrainState) -> None:
    """E06: stored predictions give the numbers again."""
    names = np.array([f"example {i}" for i in range(experiments.NUM_EXAMPLES)])
    ds = kd.data.InMemoryPipeline(loader=lambda: {**experiments.load_points(), "name": names}, batch_size=16)
    per_example = kd.evals.PerExample(id="batch.name", target="batch.label")
    result = _evaluator(ds=ds, per_example=per_example).evaluate(state)
    assert result.examples is not None
    assert [row["id"] for row in result.examples] == names.tolist()
    hits = [row["prediction"].argmax() == row["target"] for row in result.examples]
    assert np.mean(hits) == result.values["metrics/accuracy"]
    assert np.mean([row["losses/xent"] for row in result.examples]) == pytest.approx(result.values["losses/xent"])
    assert all(row["losses/total"] == row["losses/xent"] for row in result.examples)


def test_what_is_missing_shows_in_a_check(state: kd.train.TrainState) -> None:
    trainer = experiments.trainer(evals={"test": Evaluator(run=Final())})
    trainer.evals["test"].check()
    with pytest.raises(ConfigError, match=r"evals\.eval\.ds: unset.*`eval_ds`"):
        Evaluator(run=Final(), model=trainer.model).check()


def test_an_empty_set_is_a_clear_error(state: kd.train.TrainState) -> None:
    empty = kd.data.InMemoryPipeline(loader=lambda: {"x": np.zeros((0, 4), np.float32)}, batch_size=4)
    with pytest.raises(ConfigError, match="the data set is empty"):
        _evaluator(ds=empty).evaluate(state)
    with pytest.raises(ConfigError, match=r"evals\.test\.ds: there is no data"):
        _evaluator(ds=[]).evaluate(state)


def test_the_optimizers_state_is_needed_only_for_a_transform_of_the_state() -> None:
    assert not _evaluator().needs_opt_state
    assert _evaluator(init_transform=kd.optim.UseEmaParams()).needs_opt_state
    assert _evaluator(discard_opt=False).needs_opt_state
    with pytest.raises(ConfigError, match="discard_opt"):
        _evaluator(discard_opt=True, init_transform=kd.optim.UseEmaParams())


def test_an_evaluator_without_data_is_refused_when_the_config_resolves() -> None:
    with pytest.raises(ConfigError, match=r"evals\.test\.ds: unset.*`eval_ds`"):
        experiments.trainer(eval_ds=None, evals={"test": Evaluator(run=Final())})
    experiments.trainer(eval_ds=None, evals={"test": Evaluator(run=Final(), ds=experiments.points())})


def test_data_that_may_never_end_is_refused_when_the_experiment_is_built() -> None:
    """F19: an evaluation of an endless iterator without `num_batches` hung without a word."""

    def endless() -> Any:
        row = {name: column[0] for name, column in experiments.load_points().items()}
        return itertools.repeat(row)

    class Foreign:
        num_epochs = None

        def __iter__(self) -> Any:
            return endless()

    def built(ds: Any, **fields: Any) -> kd.train.Trainer:
        evals = {"val": kd.evals.Evaluator(run=kd.evals.Final(), ds=ds, **fields)}
        return experiments.trainer(evals=evals, checkpointer=None, num_train_steps=1)

    ds = kd.data.FromIterator(endless, batch_size=4)
    for data in (ds, Foreign()):
        with pytest.raises(
            ConfigError, match=r"evals\.val\.ds: .*num_epochs=None.*num_epochs=1 .*evals\.val\.num_batches"
        ):
            built(data)
    assert built(dataclasses.replace(ds, num_epochs=1)) and built(dataclasses.replace(ds, max_batches=3))
    (*_, evaluated, _) = built(ds, num_batches=2).iter_train()
    assert evaluated.num_examples == 8
