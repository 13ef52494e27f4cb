"""NNX modules wherever a Linen one works."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from kauldron_core import kd, konfig
from kauldron_core.errors import ConfigError
from kauldron_core.train import RngStream
from tests.kauldron_core import experiments
from tests.kauldron_core.modules.cases import NnxClassifier, NnxEncoder

KEY, OTHER = jax.random.key(0), jax.random.key(1)
X = jnp.asarray(np.random.default_rng(0).normal(size=(4, 6)), jnp.float32)


class Drops(nnx.Module):
    """Two dropout layers beside each other."""

    def __init__(self, *, rngs: nnx.Rngs):
        self.first = nnx.Dropout(0.5, rngs=rngs)
        self.second = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.first(x), self.second(x)


class Noise(nnx.Module):
    """Adds noise of a stream of its own, also in evaluation."""

    def __init__(self, *, rngs: nnx.Rngs):
        self.rngs = rngs
        self.mean = nnx.Param(jnp.zeros(()))

    def __call__(self, x: Any) -> Any:
        return x + self.mean + self.rngs.noise.normal(x.shape)


class Tied(nnx.Module):
    """One layer under two names."""

    def __init__(self, *, rngs: nnx.Rngs):
        self.enter = nnx.Linear(6, 6, rngs=rngs)
        self.leave = self.enter

    def __call__(self, x: Any) -> Any:
        return self.leave(self.enter(x))


class Plain(nnx.Module):
    """Takes no random streams."""

    def __init__(self):
        self.scale = nnx.Param(jnp.ones((6,)))
        self.seen = Count(jnp.zeros((), jnp.int32))

    def __call__(self, x: Any, *, shift: Any = 0.0) -> Any:
        self.seen[...] += 1
        return x * self.scale[...] + shift


class Unusual(nnx.Module):
    """Has methods of every kind, and knows by itself whether it trains."""

    is_training = kd.nn.train_property()

    def __init__(self, *, rngs: nnx.Rngs):
        self.linear = Wide(6, rngs=rngs)

    @staticmethod
    def double(x: Any) -> Any:
        return 2 * x

    @classmethod
    def halve(cls, x: Any) -> Any:
        return x / 2

    @property
    def label(self) -> str:
        return self.text()

    def text(self) -> str:
        return "text"

    def numbers(self) -> Any:
        yield from range(3)

    def __call__(self, x: Any) -> Any:
        self.sow(nnx.Intermediate, "doubled", self.double(x))
        assert (self.label, list(self.numbers())) == ("text", [0, 1, 2])
        return self.halve(self.linear(x)) if self.is_training else x


class Wide(nnx.Linear):
    """Has its call from its base class."""

    def __init__(self, width: int, *, rngs: nnx.Rngs):
        super().__init__(width, width, rngs=rngs)
        self.inner = nnx.Linear(width, width, rngs=rngs)


class Scanned(nnx.Module):
    """Equal layers, their parameters stacked, one after the other in a scan."""

    def __init__(self, *, rngs: nnx.Rngs):
        @nnx.split_rngs(splits=3)
        @nnx.vmap(in_axes=(0,), out_axes=0)
        def make(rngs: nnx.Rngs) -> Any:
            return NnxEncoder(6, rngs=rngs)

        self.layers = make(rngs)

    def __call__(self, x: Any) -> Any:
        @nnx.scan(in_axes=(0, nnx.Carry), out_axes=nnx.Carry)
        def run(layer: Any, x: Any) -> Any:
            return layer(x)

        return run(self.layers, x)


class Count(nnx.Variable):
    """A kind of variable that Flax has never heard of."""


def _apply(module: nn.Module, variables: Any, *args: Any, is_training: bool = True, **kwargs: Any) -> Any:
    with kd.nn.set_train_property(is_training):
        return module.apply(variables, *args, **kwargs)


def _init(module: nn.Module, x: Any = X) -> Any:
    with kd.nn.set_train_property(True):
        return module.init(KEY, x)


def test_nothing_is_made_before_it_is_initialised() -> None:
    made = []
    model = kd.nn.Nnx(lambda rngs: made.append(rngs) or Plain(), inputs="batch.x")
    assert (repr(model), model.clone()) and not made
    jax.eval_shape(model.init, KEY, X)
    assert len(made) == 1


def test_variables_lie_where_the_module_has_them_by_kind() -> None:
    model = kd.nn.Nnx(functools.partial(NnxClassifier, 6, 3), inputs="batch.x")
    variables = jax.tree.map(lambda leaf: leaf.shape, jax.eval_shape(lambda: _init(model)))
    assert set(variables) == {"params", "batch_stats"}
    assert variables["params"]["encoders"][1]["linear"] == {"kernel": (6, 6), "bias": (6,)}
    assert variables["params"]["head"]["kernel"] == (6, 3)
    assert variables["batch_stats"]["encoders"][0]["norm"] == {"mean": (6,), "var": (6,)}
    assert set(_init(kd.nn.Nnx(Plain))) == {"params", "Count"}


def test_a_step_changes_only_what_may_change() -> None:
    model = kd.nn.Nnx(Plain)
    variables = _init(model)
    output, changed = _apply(model, variables, X, mutable=["Count"])
    assert changed == {"Count": {"seen": 1}}
    np.testing.assert_array_equal(output, X)
    np.testing.assert_array_equal(_apply(model, variables, X, is_training=False), X)


def test_initial_values_follow_from_the_key() -> None:
    model = kd.nn.Nnx(functools.partial(nnx.Linear, 6, 3))
    kernels = [model.init({"params": key}, X)["params"]["kernel"] for key in (KEY, KEY, OTHER)]
    np.testing.assert_array_equal(kernels[0], kernels[1])
    assert (kernels[0] != kernels[2]).any()


@pytest.mark.parametrize("streams", [("dropout",), ("default",), ("params",)])
def test_layers_draw_bits_of_their_own_from_the_named_stream_or_the_default(streams: tuple[str, ...]) -> None:
    model, x = kd.nn.Nnx(Drops), jnp.ones((64,))
    first, second = _apply(model, {}, x, rngs={name: KEY for name in streams})
    again, _ = _apply(model, {}, x, rngs={name: KEY for name in streams})
    other, _ = _apply(model, {}, x, rngs={name: OTHER for name in streams})
    assert set(np.unique(first)) == {0.0, 2.0}
    np.testing.assert_array_equal(first, again)
    assert (first != second).any() and (first != other).any()
    np.testing.assert_array_equal(_apply(model, {}, x, is_training=False)[0], x)


def test_raw_keys_work_as_well() -> None:
    dropped, _ = _apply(kd.nn.Nnx(Drops), {}, jnp.ones((64,)), rngs={"dropout": jax.random.PRNGKey(0)})
    assert set(np.unique(dropped)) == {0.0, 2.0}


def test_a_stream_that_does_not_exist_is_an_error_that_says_how_to_add_it() -> None:
    model = kd.nn.Nnx(Noise)
    variables = _init(model)
    with pytest.raises(ValueError, match=r"stream 'noise', which does not exist here.*RngStream\(name='noise'\)"):
        _apply(model, variables, X, is_training=False)
    with pytest.raises(ValueError, match="stream 'dropout', which does not exist here"):
        _apply(kd.nn.Nnx(Drops), {}, X)
    noisy = _apply(model, variables, X, is_training=False, rngs={"noise": KEY})
    assert (noisy != X).all()


def test_a_module_with_modes_asks_for_a_setting_and_one_without_does_not() -> None:
    with pytest.raises(ValueError, match="nothing says whether this is training"):
        kd.nn.Nnx(Drops).apply({}, X, rngs={"dropout": KEY})
    linear = kd.nn.Nnx(functools.partial(nnx.Linear, 6, 3))
    assert linear.apply(linear.init(KEY, X), X).shape == (4, 3)


def test_a_state_of_another_module_is_refused_with_the_path() -> None:
    variables = kd.nn.Nnx(functools.partial(nnx.Linear, 6, 3)).init(KEY, X)
    wide = kd.nn.Nnx(functools.partial(nnx.Linear, 6, 5))
    with pytest.raises(ValueError, match=r"params.bias has shape \(3,\), and in the module \(5,\)"):
        wide.apply(variables, X)
    norm = kd.nn.Nnx(functools.partial(nnx.LayerNorm, 3))
    with pytest.raises(ValueError, match=r"params.scale is not in the state"):
        norm.apply(variables, X)


def test_tied_layers_share_their_parameters() -> None:
    model = kd.nn.Nnx(Tied)
    variables = _init(model)
    assert list(variables["params"]) == ["enter"]
    enter = variables["params"]["enter"]
    once = X @ enter["kernel"] + enter["bias"]
    np.testing.assert_allclose(model.apply(variables, X), once @ enter["kernel"] + enter["bias"], rtol=1e-4, atol=1e-5)


def test_arguments_by_name() -> None:
    model = kd.nn.Nnx(Plain, inputs={"x": "batch.x", "shift": "batch.y"})
    forward = kd.train.TrainStep(model=model)
    assert forward.model is model
    np.testing.assert_array_equal(model.apply(_init(model), x=X, shift=1.0, mutable=["Count"])[0], X + 1)


def test_a_layer_that_is_called_twice_shows_both_outputs() -> None:
    class Twice(nn.Module):
        inner: nn.Module

        @nn.compact
        def __call__(self, x: Any) -> Any:
            return self.inner(self.inner(x))

    model = Twice(kd.nn.Nnx(Tied))
    variables = _init(model)
    output, changed = model.apply(variables, X, mutable=["intermediates"], capture_intermediates=True)
    inner = changed["intermediates"]["inner"]
    assert [
        len(inner[name]["__call__"]) if name != "__call__" else len(inner[name]) for name in ("enter", "__call__")
    ] == [4, 2]
    np.testing.assert_array_equal(inner["__call__"][1], output)


def test_methods_of_every_kind_are_left_alone_while_outputs_are_recorded() -> None:
    model = kd.nn.Nnx(Unusual)
    variables = _init(model)
    calls = {cls: vars(cls).get("__call__") for cls in (Unusual, Wide, nnx.Linear)}
    output, changed = _apply(model, variables, X, mutable=["intermediates"], capture_intermediates=True)
    inner = changed["intermediates"]
    assert set(inner) == {"__call__", "doubled", "linear"}
    np.testing.assert_array_equal(inner["doubled"][0], 2 * X)
    np.testing.assert_array_equal(inner["linear"]["__call__"][0], 2 * output)
    assert len(inner["linear"]["__call__"]) == 1
    assert calls == {cls: vars(cls).get("__call__") for cls in calls}
    np.testing.assert_array_equal(_apply(model, variables, X, is_training=False), X)


def test_layers_in_a_scan_have_parameters_bits_and_outputs_of_their_own() -> None:
    model = kd.nn.Nnx(Scanned)
    variables = _init(model)
    kernels = variables["params"]["layers"]["linear"]["kernel"]
    assert kernels.shape == (3, 6, 6)
    assert (kernels[0] != kernels[1]).any()
    mutable = ["batch_stats", "intermediates"]
    run = functools.partial(_apply, model, variables, X, mutable=mutable, capture_intermediates=True)
    output, changed = jax.eval_shape(lambda: run(rngs={"dropout": KEY}))
    (dropped,) = changed["intermediates"]["layers"]["dropout"]["__call__"]
    assert dropped.shape == (3, 4, 6) and output.shape == (4, 6)
    assert changed["batch_stats"]["layers"]["norm"]["mean"].shape == (3, 6)


def test_a_module_in_the_place_of_its_description_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Describe it: kd.nn.Nnx\("):
        experiments.trainer(model=Plain())


def test_it_goes_through_vmap_with_a_key_each() -> None:
    model, keys = kd.nn.Nnx(functools.partial(NnxClassifier, 6, 3)), jax.random.split(KEY, 3)
    with kd.nn.set_train_property(True):
        variables = jax.jit(jax.vmap(model.init, in_axes=(0, None)))(keys, X)
        run = jax.jit(lambda v, key: model.apply(v, X, rngs={"dropout": key}, mutable=["batch_stats"])[0])
        outputs = jax.vmap(run)(variables, keys)
        alone = run(jax.tree.map(lambda leaf: leaf[1], variables), keys[1])
    np.testing.assert_allclose(outputs[1], alone, rtol=1e-4, atol=1e-5)


def _trainer(workdir: Any = None, **fields: Any) -> kd.train.Trainer:
    model = kd.nn.Nnx(functools.partial(NnxClassifier, experiments.FEATURES, experiments.CLASSES), inputs="batch.x")
    return experiments.trainer(workdir, **{"model": model, **fields})


def test_it_trains_is_evaluated_saved_and_resumed_bit_for_bit(tmp_path: Any) -> None:
    metrics = {
        "inner": kd.metrics.Norm(tensor="interms.encoders[0].linear.__call__[0]"),
        "kernel": kd.metrics.Norm(tensor="params.head.kernel", axis=None),
        **experiments.metrics(),
    }
    evals = {"test": kd.evals.Evaluator(run=kd.evals.Final())}
    whole = _trainer(tmp_path / "whole", train_metrics=metrics, evals=evals)
    events = list(whole.iter_train())
    (evaluated,) = experiments.of_kind(events, kd.train.Evaluated)
    assert evaluated.num_examples == experiments.NUM_EXAMPLES
    assert evaluated.values["metrics/inner"] > 0 and evaluated.values["metrics/kernel"] > 0
    parts = dataclasses.replace(whole, workdir=tmp_path / "parts")
    dataclasses.replace(parts, stop_after_steps=8).train()
    resumed, straight = parts.train(), whole.train()
    assert int(resumed.step) == int(straight.step) == 12
    jax.tree.map(np.testing.assert_array_equal, resumed.params, straight.params)
    jax.tree.map(np.testing.assert_array_equal, resumed.collections, straight.collections)
    before = whole.init_state().collections
    assert any((a != b).any() for a, b in zip(*map(jax.tree.leaves, (before, straight.collections)), strict=True))


def test_rng_streams_of_the_trainer_reach_it() -> None:
    class Classifier(nnx.Module):
        def __init__(self, *, rngs: nnx.Rngs):
            self.noise, self.head = Noise(rngs=rngs), nnx.Linear(4, 3, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return self.head(self.noise(x))

    streams = kd.train.RngStreams([RngStream(name="noise", eval=True)])
    evals = {"test": kd.evals.Evaluator(run=kd.evals.Final(), num_batches=1)}
    trainer = experiments.trainer(model=kd.nn.Nnx(Classifier, inputs="batch.x"), rng_streams=streams, evals=evals)
    state, _ = trainer.trainstep.step(trainer.init_state(), next(iter(trainer.train_ds)))
    assert np.isfinite(trainer.evals["test"].evaluate(state).values["losses/xent"])


def test_a_config_describes_it_and_survives_the_way_to_disk() -> None:
    with konfig.imports():
        from flax import nnx as lazy_nnx

        from kauldron_core import kd as lazy_kd

    cfg = lazy_kd.nn.Nnx(module=functools.partial(lazy_nnx.Linear, 6, 3), inputs="batch.x")  # pyright: ignore
    model = konfig.resolve(konfig.from_json(konfig.to_json(cfg)))
    assert model.init(KEY, X)["params"]["kernel"].shape == (6, 3)
