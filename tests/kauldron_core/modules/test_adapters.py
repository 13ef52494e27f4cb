"""Modules written for something else: their signatures, their parameters, their modes."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron_core import kd, kontext

KEY = jax.random.key(0)


class Reports(nn.Module):
    """Returns how it was called."""

    @nn.compact
    def __call__(self, x: Any, y: Any = None, *, deterministic: Any = None, train: Any = None) -> dict[str, Any]:
        nn.Dense(2)(x)
        return {"x": x, "y": y, "deterministic": deterministic, "train": train}


def _call(module: nn.Module, *args: Any, is_training: bool = True, **kwargs: Any) -> Any:
    with kd.nn.set_train_property(is_training):
        return module.init_with_output({"params": KEY, "dropout": KEY}, *args, **kwargs)


@pytest.mark.parametrize("is_training", [True, False])
@pytest.mark.parametrize(
    ("name", "told"), [("~deterministic", "deterministic"), ("train", "train"), ("~train", "train"), (None, None)]
)
def test_an_external_module_is_told_by_the_argument_of_that_name(
    name: str | None, told: str | None, is_training: bool
) -> None:
    module = kd.nn.ExternalModule(Reports(), keys="batch.x", train_kwarg_name=name)
    output, _ = _call(module, jnp.ones((1, 3)), is_training=is_training)
    expected = {key: None for key in ("deterministic", "train")}
    if name is not None and told is not None:
        expected[told] = is_training != name.startswith("~")
    assert {key: output[key] for key in expected} == expected


def test_a_wrapper_adds_no_level_to_the_parameters() -> None:
    plain = Reports().init(KEY, jnp.ones((1, 3)))
    for module in (kd.nn.ExternalModule(Reports(), keys="batch.x"), kd.nn.WrapperModule(Reports())):
        wrapped = _call(module, jnp.ones((1, 3)))[1]
        assert jax.tree.map(jnp.shape, wrapped) == jax.tree.map(jnp.shape, plain)
        assert module.apply(plain, jnp.ones((1, 3)))["x"].shape == (1, 3)


def test_keys_are_one_path_or_paths_by_name() -> None:
    context = {"batch": {"a": jnp.zeros((1, 3)), "b": 2}}
    one = kd.nn.ExternalModule(Reports(), keys="batch.a")
    two = kd.nn.ExternalModule(Reports(), keys={"x": "batch.a", "y": "batch.b"})
    assert kontext.get_keypaths(one) == {"keys": "batch.a"}
    assert kontext.get_keypaths(two) == {"x": "batch.a", "y": "batch.b"}
    for module, y in ((one, None), (two, 2)):
        output, _ = _call(module, **kontext.resolve_from_keyed_obj(context, module, func=module.__call__))
        assert (output["x"].shape, output["y"]) == ((1, 3), y)


def test_keys_that_are_not_set_are_an_error_that_names_the_field() -> None:
    with pytest.raises(ValueError, match="required keys are not set: keys"):
        kontext.resolve_from_keyed_obj({}, kd.nn.ExternalModule(Reports()))
    with pytest.raises(ValueError, match="required keys are not set: inputs"):
        kontext.resolve_from_keyed_obj({}, kd.nn.Nnx(lambda: None))  # pyright: ignore[reportArgumentType]


def test_an_external_model_trains_and_shows_its_layers() -> None:
    from tests.kauldron_core import experiments

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: Any, *, deterministic: bool) -> Any:
            x = nn.Dropout(0.5)(nn.Dense(8, name="enc")(x), deterministic=deterministic)
            return nn.Dense(3)(x)

    inner = kd.metrics.Norm(tensor="interms.enc.__call__[0]")
    trainer = experiments.trainer(
        model=kd.nn.ExternalModule(Net(), keys="batch.x", train_kwarg_name="~deterministic"),
        train_metrics={"inner": inner, **experiments.metrics()},
    )
    state = trainer.init_state()
    assert set(state.params) == {"enc", "Dense_0"}
    _, aux = trainer.trainstep.step(state, next(iter(trainer.train_ds)), return_metrics=True)
    assert aux.scalars()["metrics/inner"] > 0


class Squares(nn.Module):
    """Shows an inner value."""

    interms = kd.nn.interms_property()

    def __call__(self, x: Any) -> Any:
        self.interms["squares"] = x**2
        return self.interms["squares"].sum()


def test_interms_are_recorded_and_can_be_read_back() -> None:
    output, changed = Squares().apply({}, jnp.arange(3.0), mutable=["intermediates"])
    assert output == 5
    np.testing.assert_array_equal(changed["intermediates"]["squares"][0], [0, 1, 4])
    with pytest.raises(KeyError, match="nothing was recorded under 'squares'"):
        Squares().apply({}, jnp.arange(3.0))
    with pytest.raises(ValueError, match="inside a bound module"):
        _ = Squares().interms
