"""A whole training state: what follows what, and that one device pays nothing. Only shapes."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AbstractMesh

from kauldron_core import kd
from kauldron_core.errors import ConfigError
from kauldron_core.forward import TrainState
from kauldron_core.sharding.opt_state import follow_params
from kauldron_core.sharding.trees import complete

MESH = AbstractMesh((2, 4), ("data", "model"))
PARAMS = {
    "encoder": {"kernel": jnp.ones((16, 32)), "bias": jnp.ones(32)},
    "head": {"kernel": jnp.ones((32, 8)), "bias": jnp.ones(8)},
}
RULES = kd.sharding.PathRules([("encoder.kernel", (None, "model")), ("head.kernel", ("model",)), ("bias", "data")])
AXES = {
    "encoder.kernel": (None, "model"),
    "encoder.bias": ("data",),
    "head.kernel": ("model",),
    "head.bias": ("data",),
}

OPTIMIZERS = {
    "sgd": optax.sgd(0.1, momentum=0.9),
    "adam": optax.adam(1e-3),
    "adamw": optax.adamw(optax.cosine_decay_schedule(1e-3, 10)),
    "lion": optax.lion(1e-3),
    "chain": optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3), optax.ema(0.9)),
    "named_chain": kd.optim.named_chain(adam=optax.adam(1e-3), ema=kd.optim.ema_params(decay=0.9)),
    "multi_transform": optax.multi_transform(
        {"a": optax.adam(1e-3), "b": optax.sgd(0.1, momentum=0.9)}, {"encoder": "a", "head": "b"}
    ),
    "partial": kd.optim.partial_updates(optax.adam(1e-3), kd.optim.select("head")),
    "parts": kd.optim.MultiOptimizer(
        parts={
            "one": kd.optim.Part(optimizer=optax.adam(1e-3), params="encoder"),
            "two": kd.optim.Part(optimizer=optax.sgd(0.1, momentum=0.9), params="head", every=2),
        }
    ),
    "multi_steps": optax.MultiSteps(optax.adam(1e-3), every_k_schedule=2),
    "inject": optax.inject_hyperparams(optax.adam)(learning_rate=1e-3),
    "skip": optax.apply_if_finite(optax.adam(1e-3), 3),
}


def followed(optimizer, params=PARAMS):
    """Returns path, shape and axes of each array in the state."""
    spec = jax.eval_shape(optimizer.init, params)
    shardings = follow_params(spec, params, complete(RULES, params, MESH), MESH)
    assert jax.tree.structure(shardings) == jax.tree.structure(spec)
    leaves = jax.tree.leaves(spec)
    return [
        (str(kd.kontext.Path.from_jax_path(path)), leaf.shape, tuple(sharding.spec))
        for (path, sharding), leaf in zip(jax.tree.leaves_with_path(shardings), leaves, strict=True)
    ]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_states_follow_their_parameters(name):
    counts = {path: 0 for path in AXES}
    for path, shape, axes in followed(OPTIMIZERS[name]):
        mine = [own for own in AXES if path.endswith(f".{own}")]
        assert axes == (AXES[mine[0]] if mine else ()), path
        assert bool(mine) == bool(shape), path
        for own in mine:
            counts[own] += 1
    if name != "partial":
        assert all(counts.values()), counts


def test_factors_smaller_than_their_parameter_are_replicated():
    found = followed(optax.adafactor(1e-2, min_dim_size_to_factor=8))
    assert {axes for path, _, axes in found if ".kernel" in path} == {()}
    assert {axes for path, shape, axes in found if ".v." in path and ".bias" in path} == {("data",)}


def test_the_longest_path_decides():
    params = {"kernel": jnp.ones((8, 8)), "mu": {"kernel": jnp.ones((8, 8))}}
    shardings = complete(kd.sharding.PathRules([("mu.kernel", "data"), ("kernel", "model")]), params, MESH)
    found = follow_params(jax.eval_shape(optax.adam(1e-3).init, params), params, shardings, MESH)
    assert found[0].nu["kernel"].spec == jax.sharding.PartitionSpec("model")
    assert found[0].nu["mu"]["kernel"].spec == jax.sharding.PartitionSpec("data")


def state_spec(params=PARAMS, collections=None):
    optimizer = optax.adam(1e-3)
    return jax.eval_shape(
        lambda: TrainState.create(
            params=params,
            collections=collections or {"batch_stats": {"mean": jnp.ones(8)}},
            opt_state=optimizer.init(params),
        )
    )


def test_one_device_has_nothing_to_split():
    strategy = kd.sharding.ShardingStrategy(
        mesh=kd.sharding.MeshSpec(axes=("data", "model")), params=RULES, collections={"batch_stats": ("data",)}
    )
    assert strategy.is_trivial == (jax.device_count() == 1)
    spec = state_spec()
    shardings = strategy.state_shardings(spec)
    assert jax.tree.structure(shardings) == jax.tree.structure(spec)
    assert tuple(shardings.params["head"]["kernel"].spec) == ("model",)
    assert tuple(shardings.opt_state[0].mu["head"]["kernel"].spec) == ("model",)
    assert tuple(shardings.collections["batch_stats"]["mean"].spec) == ("data",)
    assert tuple(shardings.step.spec) == tuple(shardings.health.spec) == ()
    template = strategy.state_template(spec)
    assert jax.tree.map(lambda leaf: leaf.sharding, template) == shardings
    assert jax.tree.map(lambda leaf: leaf.shape, template) == jax.tree.map(lambda leaf: leaf.shape, spec)


def test_an_optimizer_state_may_have_rules_of_its_own():
    strategy = kd.sharding.ShardingStrategy(params=kd.sharding.FIRST_DIM, opt_state=kd.sharding.REPLICATED)
    shardings = strategy.state_shardings(state_spec())
    assert tuple(shardings.params["head"]["kernel"].spec) == ("data",)
    assert tuple(shardings.opt_state[0].mu["head"]["kernel"].spec) == ()


class Named(nn.Module):
    """A layer with metadata in its parameters and its statistics."""

    @nn.compact
    def __call__(self, x):
        box = nn.with_logical_partitioning
        x = nn.Dense(16, kernel_init=box(nn.initializers.lecun_normal(), ("embed", "mlp")), name="up")(x)
        self.variable("stats", "mean", box(nn.initializers.zeros, ("mlp",)), jax.random.key(0), (16,))
        return x


def test_metadata_of_variables_is_read_before_it_is_taken_off():
    variables = jax.eval_shape(lambda: Named().init(jax.random.key(0), jnp.ones((2, 8))))
    plain = nn.unbox(variables)
    strategy = kd.sharding.ShardingStrategy(
        mesh=kd.sharding.MeshSpec(axes=("data", "model")),
        params=kd.sharding.LogicalRules({"embed": "data", "mlp": "model"}),
        collections={"stats": kd.sharding.LogicalRules({"mlp": "model"})},
    )
    spec = state_spec(plain["params"], {"stats": plain["stats"]})
    shardings = strategy.state_shardings(spec, variables=variables)
    assert jax.tree.structure(shardings) == jax.tree.structure(spec)
    assert tuple(shardings.params["up"]["kernel"].spec) == ("data", "model")
    assert tuple(shardings.opt_state[0].nu["up"]["kernel"].spec) == ("data", "model")
    assert tuple(shardings.collections["stats"]["mean"].spec) == ("model",)
    with kd.sharding.in_mesh(strategy.device_mesh):
        assert strategy.state_shardings(spec, variables=variables) == shardings
    with pytest.raises(ConfigError, match=r"sharding.params: no dimension of a parameter is named 'embed'"):
        strategy.state_shardings(spec)


def test_constraints_work_on_shapes_and_arrays():
    tree = {"x": jax.ShapeDtypeStruct((4, 2), jnp.bfloat16), "y": jax.ShapeDtypeStruct((), jnp.int32)}
    found = kd.sharding.with_sharding_constraint(tree, {"x": kd.sharding.FIRST_DIM, "y": None})
    assert tuple(found["x"].sharding.spec) == ("data",) and found["x"].dtype == jnp.bfloat16
    assert found["y"].sharding is None
    assert kd.sharding.with_sharding_constraint({}, kd.sharding.FIRST_DIM) == {}
    same = jax.jit(lambda x: kd.sharding.with_sharding_constraint(x, lambda x: kd.sharding.FIRST_DIM))(jnp.arange(4.0))
    np.testing.assert_array_equal(same, np.arange(4.0))


@pytest.mark.skipif(jax.device_count() > 1, reason="about one device")
def test_on_one_device_a_model_may_name_axes_that_do_not_exist():
    def split(x):
        return kd.sharding.with_sharding_constraint(x, (None, "model"))

    np.testing.assert_array_equal(jax.jit(split)(np.eye(3)), np.eye(3))
    with kd.sharding.ShardingStrategy().set_global_mesh():
        np.testing.assert_array_equal(jax.jit(lambda x: split(x) + 0)(np.eye(3)), np.eye(3))
    with kd.sharding.in_mesh(kd.sharding.MeshSpec().build()), pytest.raises(ConfigError, match="mesh axis 'model'"):
        split(jnp.eye(3))


def test_arrays_and_numbers_are_put():
    put = kd.sharding.device_put({"x": np.ones((4, 2)), "step": 3}, {"x": kd.sharding.FIRST_DIM})
    assert {type(leaf) for leaf in jax.tree.leaves(put)} == {type(jnp.ones(1))}
    assert int(put["step"]) == 3 and len(put["x"].sharding.device_set) == jax.device_count()


def test_a_mesh_for_more_devices_is_refused_or_made_to_fit():
    strategy = kd.sharding.ShardingStrategy(
        mesh=kd.sharding.MeshSpec(axes=("data", "model"), ici_shape=(50, 20)), params=RULES
    )
    with pytest.raises(ConfigError, match=r"ici_shape: \(50, 20\) needs 1000 devices, not the \d+ devices there are"):
        strategy.state_shardings(state_spec())
    assert strategy.fitting().device_mesh.axis_names == ("data", "model")
    assert strategy.fitting().is_trivial == (jax.device_count() == 1)


def test_the_error_of_a_rule_names_its_field():
    strategy = kd.sharding.ShardingStrategy(params=kd.sharding.PathRules([("hed", "data")]))
    with pytest.raises(ConfigError, match=r"^sharding.params: unknown parameter 'hed'. Did you mean 'head'\?"):
        strategy.state_shardings(state_spec())
    with pytest.raises(ConfigError, match=r"^sharding.collections: unknown name 'stats'"):
        kd.sharding.ShardingStrategy(collections={"stats": None}).state_shardings(state_spec())
