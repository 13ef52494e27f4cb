"""Rules by shape, by path and by the names of dimensions. Only shapes: no more than one device is needed."""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from kauldron_core import kd
from kauldron_core.errors import ConfigError
from kauldron_core.sharding import trees

MESH = AbstractMesh((2, 4), ("data", "model"))
WIDE = AbstractMesh((2, 2, 2), ("data", "fsdp", "model"))


def shape(*sizes, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(sizes, dtype)


PARAMS = {
    "embedding": shape(1000, 64),
    "layers": [{"kernel": shape(64, 256), "bias": shape(256)}, {"kernel": shape(256, 64), "bias": shape(64)}],
    "head": {"kernel": shape(64, 10), "bias": shape(10), "scale": shape()},
}


def specs(shardings, tree=PARAMS, mesh=MESH):
    """Returns the axes of each array by its path."""
    found = trees.complete(shardings, tree, mesh, at="cfg.sharding.params")
    return {kd.kontext.Path.from_jax_path(path): tuple(s.spec) for path, s in jax.tree.leaves_with_path(found)}


def by_text(shardings, tree=PARAMS, mesh=MESH):
    return {str(path): dims for path, dims in specs(shardings, tree, mesh).items() if dims}


def refusal(shardings, tree=PARAMS, mesh=MESH):
    with pytest.raises(ConfigError) as error:
        trees.complete(shardings, tree, mesh, at="cfg.sharding.params")
    assert "\n" not in str(error.value)
    return str(error.value)


def test_replicated_splits_nothing():
    assert by_text(kd.sharding.REPLICATED) == by_text(None) == {}


def test_first_dim_takes_the_axes_for_batches():
    batch = {"x": shape(8, 3), "mask": shape(8), "weight": shape()}
    assert by_text(kd.sharding.FIRST_DIM, batch) == {"x": ("data",), "mask": ("data",)}
    assert by_text(kd.sharding.FIRST_DIM, batch, WIDE)["x"] == (("data", "fsdp"),)
    assert by_text(kd.sharding.FirstDim(axis=["data", "model"]), batch)["x"] == (("data", "model"),)
    assert by_text(kd.sharding.FIRST_DIM, batch, AbstractMesh((4,), ("own",)))["x"] == ("own",)


def test_a_batch_that_does_not_divide_is_refused():
    assert refusal(kd.sharding.FIRST_DIM, {"x": shape(7, 3)}) == (
        "cfg.sharding.params: x of shape (7, 3): 7 does not divide by 2, the size of axis 'data'."
    )


def test_fsdp_takes_the_largest_dimension_that_divides():
    fsdp = kd.sharding.FSDPSharding(axis="model", min_size_to_shard_mb=0)
    assert by_text(fsdp) == {
        "embedding": ("model",),
        "layers[0].kernel": (None, "model"),
        "layers[0].bias": ("model",),
        "layers[1].kernel": ("model",),
        "layers[1].bias": ("model",),
        "head.kernel": ("model",),
    }
    assert by_text(fsdp, {"a": shape(10, 6, 4), "b": shape(3, 5)}) == {"a": (None, None, "model")}


def test_fsdp_leaves_small_arrays_whole():
    assert by_text(kd.sharding.FSDPSharding()) == {}
    assert by_text(kd.sharding.FSDPSharding(min_size_to_shard_mb=0.1)) == {"embedding": ("data",)}
    assert by_text(kd.sharding.FSDPSharding(min_size_to_shard_mb=0.1), mesh=WIDE) == {"embedding": ("fsdp",)}
    assert by_text(kd.sharding.FSDPSharding(axis=("data", "model"), min_size_to_shard_mb=0.1)) == {
        "embedding": (("data", "model"),)
    }


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("layers.0.kernel", {"layers[0].kernel"}),
        ("layers[0].kernel", {"layers[0].kernel"}),
        ("kernel", {"layers[0].kernel", "layers[1].kernel", "head.kernel"}),
        ("layers.*.kernel", {"layers[0].kernel", "layers[1].kernel"}),
        ("**.kernel", {"layers[0].kernel", "layers[1].kernel", "head.kernel"}),
        ("layers.**.kernel", {"layers[0].kernel", "layers[1].kernel"}),
        ("emb*", {"embedding"}),
        ("head.(kernel|nothing)", {"head.kernel"}),
        (r"layers.\d.kernel", {"layers[0].kernel", "layers[1].kernel"}),
        ("layers.[01].bias", {"layers[0].bias", "layers[1].bias"}),
        ("layers", {"layers[0].kernel", "layers[0].bias", "layers[1].kernel", "layers[1].bias"}),
    ],
)
def test_patterns_match_whole_segments(pattern, matches):
    assert set(by_text(kd.sharding.PathRules([(pattern, ("data",))]))) == matches


@pytest.mark.parametrize("pattern", ["kern", "ayers.0", "embedding.kernel", "layers.*.*.kernel"])
def test_a_pattern_that_matches_nothing_is_refused(pattern):
    assert "unknown parameter" in refusal(kd.sharding.PathRules([(pattern, ("data",))]))
    assert by_text(kd.sharding.PathRules([(pattern, ("data",))], missing_ok=True)) == {}


def test_the_first_pattern_wins_and_the_rest_is_the_default():
    rules = kd.sharding.PathRules(
        [
            ("head.kernel", None),
            ("kernel", (None, "model")),
            ("embedding", kd.sharding.FSDPSharding(axis="model", min_size_to_shard_mb=0)),
        ],
        default=kd.sharding.Split("data"),
    )
    assert "has 0 dimensions" in refusal(rules)
    assert by_text(rules, {**PARAMS, "head": {"kernel": shape(64, 10)}}) == {
        "embedding": ("model",),
        "layers[0].kernel": (None, "model"),
        "layers[0].bias": ("data",),
        "layers[1].kernel": (None, "model"),
        "layers[1].bias": ("data",),
    }


def test_refusals_name_the_place_and_what_was_meant():
    at = "cfg.sharding.params: "
    assert refusal(kd.sharding.PathRules([("layers.0.kernal", ())])) == (
        f"{at}unknown parameter 'layers.0.kernal'. Did you mean 'layers.0.kernel'? Available: embedding, head.bias, "
        "head.kernel, head.scale, layers.0.bias, layers.0.kernel, layers.1.bias, layers.1.kernel. `missing_ok=True` "
        "accepts a pattern of none."
    )
    unknown = f"{at}unknown mesh axis 'modle'. Did you mean 'model'? Available: data, model."
    assert refusal(kd.sharding.PathRules([("kernel", (None, "modle"))])) == unknown
    assert refusal(kd.sharding.FSDPSharding(axis="modle")) == refusal(kd.sharding.FirstDim(axis="modle")) == unknown
    assert refusal({"head": PartitionSpec("modle")}) == unknown.replace("params", "params.head")
    assert refusal(kd.sharding.PathRules([("head.kernel", (None, "model"))])) == (
        f"{at}head.kernel of shape (64, 10): 10 does not divide by 4, the size of axis 'model'."
    )
    assert refusal(kd.sharding.PathRules([("bias", (None, "model"))])) == (
        f"{at}head.bias of shape (10,) has 1 dimensions, (None, 'model') splits 2."
    )
    assert "axis 'data' is used twice" in refusal(("data", "data"), {"x": shape(8, 8)})
    assert "neither a path nor a regular expression" in refusal(kd.sharding.PathRules([("head.(kernel", ())]))
    assert refusal({"haed": None}) == (
        f"{at}unknown name 'haed'. Did you mean 'head'? Available: embedding, layers, head."
    )
    assert "is no rule" in refusal(3)
    with pytest.raises(ConfigError, match="must hold an axis"):
        kd.sharding.Split((1, 2))


def test_leaves_of_a_tree_are_rules_shardings_specs_and_functions():
    own = NamedSharding(MESH, PartitionSpec("data"))
    seen = []

    def by_hand(tree):
        seen.append(jax.tree.map(lambda leaf: leaf.shape, tree))
        return {"kernel": kd.sharding.FSDPSharding(axis="model", min_size_to_shard_mb=0), "bias": None}

    tree = {"embedding": own, "layers": [by_hand, {"kernel": ("model",)}], "head": {"kernel": PartitionSpec("model")}}
    assert by_text(tree) == {
        "embedding": ("data",),
        "layers[0].kernel": (None, "model"),
        "layers[1].kernel": ("model",),
        "head.kernel": ("model",),
    }
    assert seen == [{"kernel": (64, 256), "bias": (256,)}]


def test_a_called_rule_uses_the_mesh_in_scope():
    def halves(tree):
        return kd.sharding.FSDPSharding(axis="model", min_size_to_shard_mb=0)(tree)

    assert by_text(halves, {"x": shape(4, 8)}) == {"x": (None, "model")}


class Block(nn.Module):
    """A layer whose parameters say what their dimensions are."""

    @nn.compact
    def __call__(self, x):
        init = nn.initializers.lecun_normal()
        x = nn.Dense(16, kernel_init=nn.with_logical_partitioning(init, ("embed", "mlp")), name="up")(x)
        x = nn.Dense(8, kernel_init=nn.with_logical_partitioning(init, ("mlp", "embed")), name="down")(nn.relu(x))
        return nn.Dense(8, kernel_init=nn.with_partitioning(init, (None, "model")), name="out")(x)


@pytest.fixture(scope="module")
def named():
    return jax.eval_shape(lambda: Block().init(jax.random.key(0), jnp.ones((2, 8))))["params"]


def test_logical_names_become_axes(named):
    assert by_text(kd.sharding.LogicalRules({"embed": "data", "mlp": "model"}), named) == {
        "up.kernel": ("data", "model"),
        "down.kernel": ("model", "data"),
        "out.kernel": (None, "model"),
    }


def test_an_axis_splits_one_dimension_and_earlier_rules_go_first(named):
    rules = [("mlp", "model"), ("embed", "model"), ("embed", ["data"])]
    assert by_text(kd.sharding.LogicalRules(rules), named) == {
        "up.kernel": ("data", "model"),
        "down.kernel": ("model", "data"),
        "out.kernel": (None, "model"),
    }
    alone = kd.sharding.LogicalRules({"embed": "model"}, default=kd.sharding.Split("data"))
    assert by_text(alone, named) == {
        "up.kernel": ("model",),
        "down.kernel": (None, "model"),
        "out.kernel": (None, "model"),
        **{f"{name}.bias": ("data",) for name in ("up", "down", "out")},
    }


def test_a_rule_for_a_name_that_nothing_has_is_refused(named):
    assert refusal(kd.sharding.LogicalRules({"embed": "data", "mpl": "model"}), named) == (
        "cfg.sharding.params: no dimension of a parameter is named 'mpl'. Did you mean 'mlp'? Named: mlp, embed, "
        "model. `missing_ok=True` accepts a rule for none."
    )
    assert "Named: nothing" in refusal(kd.sharding.LogicalRules({"embed": "data"}), nn.unbox(named))


def test_rules_of_shape_and_path_look_through_the_metadata(named):
    assert by_text(kd.sharding.PathRules([("up.kernel", ("model",))]), named) == {"up.kernel": ("model",)}
    assert by_text(kd.sharding.FIRST_DIM, nn.unbox(named)) == by_text(kd.sharding.FIRST_DIM, named)


@dataclasses.dataclass(frozen=True)
class Halved(kd.sharding.ShardingRule):
    """A rule of a user: the last dimension, if it is even."""

    axis: Any = "data"

    def dims(self, leaf, mesh):
        sizes = leaf.spec.shape
        return (*(None,) * (len(sizes) - 1), self.axis) if sizes and sizes[-1] % 2 == 0 else ()


def test_own_rules_are_a_method():
    rules = kd.sharding.PathRules([("head", Halved())])
    assert by_text(rules) == {"head.kernel": (None, "data"), "head.bias": ("data",)}


def test_a_config_is_plain_data_and_trusted():
    with kd.konfig.imports():
        from kauldron_core import kd as described

    cfg = described.sharding.ShardingStrategy(
        mesh=described.sharding.MeshSpec(axes=("data", "fsdp"), ici_shape=(1, -1)),
        batch=described.sharding.FIRST_DIM,
        params=described.sharding.PathRules(
            rules=[("emb*", (None, "fsdp")), ("bias", None), ("kernel", described.sharding.FSDPSharding())]
        ),
        collections=described.sharding.LogicalRules({"embed": ["data", "fsdp"]}),
    )
    read = kd.konfig.from_json(kd.konfig.to_json(cfg))
    strategy = kd.konfig.resolve(read, trusted=False)
    assert strategy == kd.sharding.ShardingStrategy(
        mesh=kd.sharding.MeshSpec(axes=["data", "fsdp"], ici_shape=[1, -1]),
        params=kd.sharding.PathRules(
            {"emb*": PartitionSpec(None, "fsdp"), "bias": (), "kernel": kd.sharding.FSDPSharding()}
        ),
        collections=kd.sharding.LogicalRules([("embed", ("data", "fsdp"))]),
    )
    assert hash(strategy) == hash(kd.konfig.resolve(cfg))
