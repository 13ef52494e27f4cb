"""Tests that need eight devices. `test_devices.py` runs this file in a process that has them."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import NamedSharding

from kauldron_core import kd
from kauldron_core.errors import ConfigError
from kauldron_core.forward import TrainState
from tests.kauldron_core import experiments

STEPS = 12


class Model(nn.Module):
    """Two layers with names for their dimensions, dropout, statistics, and an activation that is told where to be."""

    @nn.compact
    def __call__(self, x):
        init = functools.partial(nn.with_logical_partitioning, nn.initializers.lecun_normal())
        x = nn.Dense(32, kernel_init=init(("embed", "mlp")), name="up")(x)
        x = nn.BatchNorm(use_running_average=False, name="norm")(x)
        x = kd.sharding.with_sharding_constraint(nn.tanh(x), kd.sharding.FIRST_DIM)
        x = nn.Dropout(0.1, deterministic=False)(x)
        return nn.Dense(8, kernel_init=init(("mlp", "embed")), name="down")(x)


MODEL, OPTIMIZER = Model(), optax.adamw(1e-2)


def batches():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(STEPS, 16, 8)).astype(np.float32)
    return [{"x": part, "y": np.sin(part)} for part in x]


def init_variables(batch):
    return MODEL.init({"params": jax.random.key(0), "dropout": jax.random.key(1)}, jnp.zeros(batch["x"].shape))


def init(batch) -> TrainState:
    variables = dict(nn.unbox(init_variables(batch)))
    params = variables.pop("params")
    return TrainState.create(params=params, collections=variables, opt_state=OPTIMIZER.init(params))


def update(state: TrainState, batch: Any) -> tuple[TrainState, jax.Array]:
    def loss(params):
        rngs = {"dropout": jax.random.fold_in(jax.random.key(2), state.step)}
        variables = {"params": params, **state.collections}
        preds, changed = MODEL.apply(variables, batch["x"], rngs=rngs, mutable=["batch_stats"])
        return jnp.mean((preds - batch["y"]) ** 2), changed

    (value, changed), grads = jax.value_and_grad(loss, has_aux=True)(state.params)
    updates, opt_state = OPTIMIZER.update(grads, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    return state.replace(step=state.step + 1, params=params, collections=changed, opt_state=opt_state), value


@functools.cache
def on_one_device() -> np.ndarray:
    """Returns the loss curve of a loop without any sharding."""
    state, step = jax.jit(init)(batches()[0]), jax.jit(update)
    losses = []
    for batch in batches():
        state, loss = step(state, batch)
        losses.append(float(loss))
    return np.array(losses)


@functools.cache
def sharded_loop(name: str) -> tuple[TrainState, np.ndarray, Callable[..., Any]]:
    """Returns the last state, the loss curve and the compiled step."""
    strategy = STRATEGIES[name]
    first = batches()[0]
    spec, variables = jax.eval_shape(init, first), jax.eval_shape(init_variables, first)
    shardings = strategy.state_shardings(spec, variables=variables)

    def step(state, batch):
        with strategy.set_global_mesh():
            return update(state, batch)

    program = jax.jit(
        step, donate_argnums=0, out_shardings=(shardings, strategy.aux_shardings(jax.ShapeDtypeStruct((), jnp.float32)))
    )
    state = jax.jit(init, out_shardings=shardings)(first)
    losses = []
    for batch in batches():
        state, loss = program(state, strategy.put_batch(batch))
        losses.append(loss)
    assert jax.tree.map(lambda leaf: leaf.sharding, state) == shardings
    return state, np.array([float(loss) for loss in losses]), program


def mesh(*axes: str, shape: tuple[int, ...], **fields: Any) -> kd.sharding.MeshSpec:
    return kd.sharding.MeshSpec(axes=axes, ici_shape=shape, **fields)


STRATEGIES = {
    "replicated": kd.sharding.ShardingStrategy(),
    "fsdp": kd.sharding.ShardingStrategy(
        mesh=mesh("fsdp", shape=(-1,)), params=kd.sharding.FSDPSharding(min_size_to_shard_mb=0)
    ),
    "2x4": kd.sharding.ShardingStrategy(
        mesh=mesh("data", "model", shape=(2, 4)),
        params=kd.sharding.PathRules([("up.kernel", (None, "model")), ("down.kernel", ("model",))]),
    ),
    "2x2x2": kd.sharding.ShardingStrategy(
        mesh=mesh("data", "fsdp", "model", shape=(2, -1, 2)),
        params=kd.sharding.LogicalRules({"embed": "fsdp", "mlp": "model"}),
    ),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_loss_curve_is_that_of_one_device(name):
    assert jax.device_count() == 8
    state, losses, program = sharded_loop(name)
    assert on_one_device()[-1] < 0.7 * on_one_device()[0]
    np.testing.assert_allclose(losses, on_one_device(), rtol=2e-5)
    assert program._cache_size() == 1
    for leaf in jax.tree.leaves(state):
        assert len(leaf.sharding.device_set) == 8


def parts(array):
    """Returns the shapes of what the devices hold."""
    return {shard.data.shape for shard in array.addressable_shards}


def bytes_per_device(tree):
    return sum(leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(tree))


def test_devices_hold_their_part_only():
    whole = sharded_loop("replicated")[0]
    state = sharded_loop("fsdp")[0]
    assert parts(state.params["up"]["kernel"]) == parts(state.opt_state[0].mu["up"]["kernel"]) == {(8, 4)}
    assert bytes_per_device(state.params) == bytes_per_device(whole.params) / 8
    moments, all_moments = state.opt_state[0][1:], whole.opt_state[0][1:]
    assert bytes_per_device(moments) == bytes_per_device(all_moments) / 8
    assert parts(sharded_loop("2x4")[0].params["up"]["kernel"]) == {(8, 8)}
    assert parts(sharded_loop("2x2x2")[0].params["up"]["kernel"]) == {(4, 16)}


def test_batches_are_split_over_the_axes_for_batches():
    batch = {"x": np.arange(32.0).reshape(16, 2), "scale": np.float32(1)}
    put = STRATEGIES["2x2x2"].put_batch(batch)
    assert parts(put["x"]) == {(4, 2)} and parts(put["scale"]) == {()}
    np.testing.assert_array_equal(put["x"], batch["x"])
    assert parts(STRATEGIES["2x4"].put_batch(batch)["x"]) == {(8, 2)}


def test_a_stack_of_batches_is_split_as_each_alone():
    stack = {"x": np.arange(96.0).reshape(3, 16, 2), "scale": np.ones(3, np.float32)}
    put = STRATEGIES["2x2x2"].put_stack(stack)
    assert parts(put["x"]) == {(3, 4, 2)} and parts(put["scale"]) == {(3,)}
    np.testing.assert_array_equal(put["x"], stack["x"])


def test_a_remainder_that_does_not_divide_is_put_whole_where_allowed():
    """E16: a remainder that does not divide is put whole where it is allowed."""
    batch = {"x": np.ones((3, 2)), "y": np.ones((3,))}
    with pytest.raises(ConfigError, match=r"^sharding.batch: x of shape \(3, 2\): 3 does not divide by 8"):
        STRATEGIES["replicated"].put_batch(batch)
    put = STRATEGIES["replicated"].put_batch(batch, uneven_ok=True)
    assert parts(put["x"]) == {(3, 2)} and len(put["x"].sharding.device_set) == 8


def test_a_shorter_last_batch_that_does_not_divide_is_refused_at_the_start():
    """F14: 20 examples in batches of 16 on eight devices: the last step failed, without a checkpoint."""
    fields = {"num_train_steps": None, "checkpointer": None}
    short = experiments.points(loader=lambda: {name: x[:20] for name, x in experiments.load_points().items()})
    short = dataclasses.replace(short, num_epochs=1, batch_drop_remainder=False)
    with pytest.raises(ConfigError, match=r"the last batch has 4 examples .*4 does not divide by 8.*'pad'"):
        next(experiments.trainer(train_ds=short, **fields).iter_train())
    advised = dataclasses.replace(short, batch_drop_remainder="pad")
    evals = {"val": kd.evals.Evaluator(run=kd.evals.Final())}
    events = list(experiments.trainer(train_ds=advised, eval_ds=short, evals=evals, **fields).iter_train())
    assert events[-1].step == 2 and events[-2].num_examples == 20


def test_a_batch_may_have_a_rule_for_each_part():
    strategy = kd.sharding.ShardingStrategy(
        mesh=mesh("data", "model", shape=(2, 4)), batch={"image": (None, "model"), "label": None}
    )
    for _ in range(2):
        put = strategy.put_batch({"image": np.ones((2, 8, 3)), "label": np.arange(2)})
        assert parts(put["image"]) == {(2, 2, 3)} and parts(put["label"]) == {(2,)}


def test_a_checkpoint_goes_from_one_mesh_to_another(tmp_path):
    saved = sharded_loop("fsdp")[0]
    checkpointer = kd.ckpts.Checkpointer(workdir=tmp_path, save_interval_steps=1)
    checkpointer.save(saved, step=STEPS)
    checkpointer.wait()
    first = batches()[0]
    spec, variables = jax.eval_shape(init, first), jax.eval_shape(init_variables, first)
    for name, strategy in STRATEGIES.items():
        template = strategy.state_template(spec, variables=variables)
        restored = checkpointer.restore(template)
        assert jax.tree.map(lambda leaf: leaf.sharding, restored) == strategy.state_shardings(spec, variables=variables)
        jax.tree.map(np.testing.assert_array_equal, restored, saved)
        assert parts(restored.params["up"]["kernel"]) == parts(sharded_loop(name)[0].params["up"]["kernel"])
    checkpointer.close()


def test_constraints_use_the_mesh_in_scope():
    strategy = STRATEGIES["2x4"]

    @jax.jit
    def halves(x):
        with strategy.set_global_mesh():
            by_name = kd.sharding.with_sharding_constraint(x, (None, "model"))
            return by_name, jax.lax.with_sharding_constraint(x, jax.sharding.PartitionSpec("model"))

    x = kd.sharding.device_put(np.ones((8, 8)), NamedSharding(strategy.device_mesh, jax.sharding.PartitionSpec()))
    columns, rows = halves(x)
    assert parts(columns) == {(8, 2)} and parts(rows) == {(2, 8)}
    assert parts(kd.sharding.device_put(x, ("data",))) == {(1, 8)}


def test_explicit_axes_are_part_of_the_types():
    strategy = kd.sharding.ShardingStrategy(mesh=mesh("data", shape=(8,), axis_types="explicit"))
    x = strategy.put_batch(np.ones((8, 2)))
    seen = []
    jax.jit(lambda x: seen.append(str(jax.typeof(x))) or x)(x)
    assert seen == ["float32[8@data,2]"]


def test_neighbours_in_a_hybrid_mesh_need_processes_or_slices():
    with pytest.raises(ConfigError, match=r"dcn_shape: \(2,\) needs 2 processes, not the 1 processes there are"):
        mesh("data", shape=(4,), dcn_shape=(2,)).build()
    assert mesh("data", shape=(8,), dcn_shape=(-1,)).build().shape == {"data": 8}
