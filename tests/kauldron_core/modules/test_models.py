"""What is particular to single layers and models."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron_core import kd
from kauldron_core.errors import ConfigError
from kauldron_core.ktyping import TypeCheckError
from kauldron_core.modules.patches import unpatchify

KEYS = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
IMAGES = jnp.ones((2, 8, 8, 3))


def _shapes(module: nn.Module, x: Any, **kwargs: Any) -> tuple[Any, Any]:
    with kd.nn.set_train_property(True):
        output, variables = jax.eval_shape(lambda: module.init_with_output(KEYS, x, **kwargs))
    return jax.tree.map(lambda leaf: leaf.shape, output), jax.tree.map(lambda leaf: leaf.shape, variables)


def test_sequential_tells_each_layer_that_asks_and_leaves_choices_alone() -> None:
    drops, keeps = nn.Dropout(0.5), nn.Dropout(0.5, deterministic=True)
    with kd.nn.set_train_property(True):
        dropped = kd.nn.Sequential([drops]).apply({}, jnp.ones((8, 8)), rngs=KEYS)
        kept = kd.nn.Sequential([keeps]).apply({}, jnp.ones((8, 8)))
    assert set(np.unique(dropped)) == {0.0, 2.0}
    assert (kept == 1).all()


def test_sequential_without_layers_that_ask_needs_no_setting() -> None:
    model = kd.nn.Sequential([nn.Dense(2), nn.relu], outputs="logits")
    output, variables = model.init_with_output(KEYS, jnp.ones((1, 3)))
    assert list(output) == ["logits"]
    assert list(variables["params"]) == ["layers_0"]


def test_a_shape_that_does_not_fit_is_told_with_the_names_of_the_axes() -> None:
    with pytest.raises(TypeCheckError, match=r"'\*b h w c'"):
        _shapes(kd.nn.ConvNet((4,), 3, image="batch.x"), jnp.ones((8, 8)))
    with pytest.raises(TypeCheckError, match="d1"):
        _shapes(kd.nn.ImprovedMultiHeadDotProductAttention(2), jnp.ones((8,)))


def test_parameters_of_a_vit_have_the_names_that_checkpoints_know() -> None:
    encoder = kd.nn.VitEncoder.from_spec(2, 16, 1, 4, prepend_cls_token=True)
    output, variables = _shapes(kd.nn.Vit(encoder, num_classes=5, mode="cls_token", image="batch.x"), IMAGES)
    assert output == {"logits": (2, 5)}
    assert set(variables["params"]) == {"encoder", "pre_logits", "classifier_head"}
    inside = variables["params"]["encoder"]
    assert set(inside) == {"cls", "embedding", "encoder_norm", "layers_0", "pos_embedding"}
    assert inside["pos_embedding"]["embeddings"] == (4, 16)
    assert inside["embedding"]["patchifier"]["kernel"] == (4, 4, 3, 16)
    assert inside["layers_0"]["attention"]["query"]["kernel"] == (16, 2, 8)
    assert inside["layers_0"]["mlp"]["dense_in"]["kernel"] == (16, 64)


def test_a_published_size_has_its_published_number_of_parameters() -> None:
    # Source: arXiv:2010.11929, table 1: ViT-Base 86 M.
    encoder = kd.nn.VitEncoder.from_variant_str("B/16", prepend_cls_token=True)
    _, variables = _shapes(encoder, jnp.ones((1, 224, 224, 3)))
    count = sum(np.prod(shape) for shape in jax.tree.leaves(variables, is_leaf=lambda x: isinstance(x, tuple)))
    assert 85e6 < count < 87e6


@pytest.mark.parametrize(
    ("variant", "message"), [("Bb/16", "unknown ViT size 'Bb'. Did you mean 'B'?"), ("B", "give the patch size")]
)
def test_a_variant_that_does_not_exist_is_refused(variant: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")):
        kd.nn.VitEncoder.from_variant_str(variant)


@pytest.mark.parametrize(
    ("mode", "message"), [("cls_token", "needs an encoder with prepend_cls_token=True"), ("gapp", "Did you mean 'gap'")]
)
def test_a_vit_refuses_a_mode_that_its_encoder_cannot_serve(mode: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _shapes(kd.nn.Vit(kd.nn.VitEncoder.from_spec(2, 8, 1, 4), mode=mode, image="batch.x"), IMAGES)


def test_patches_are_cut_row_by_row_and_put_together_again() -> None:
    images = np.random.default_rng(0).normal(size=(2, 6, 8, 3)).astype(np.float32)
    patches = kd.nn.Patchify((3, 2)).apply({}, images)
    np.testing.assert_array_equal(patches[0, 1], images[0, :3, 2:4].reshape(-1))
    np.testing.assert_array_equal(unpatchify(patches, grid=(2, 4), patch_size=(3, 2)), images)


def test_attention_attends_to_what_the_mask_allows_and_shows_its_weights() -> None:
    tokens = jnp.asarray(np.random.default_rng(0).normal(size=(1, 4, 8)), jnp.float32)
    attention = kd.nn.ImprovedMultiHeadDotProductAttention(2)
    variables = attention.init(KEYS, tokens)
    mask = jnp.asarray([[True, True, False, False]] * 4)[None, None]
    _, changed = attention.apply(variables, tokens, mask=mask, mutable=["intermediates"])
    weights = changed["intermediates"]["attn_weights"][0]
    assert weights.shape == (1, 2, 4, 4)
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-6)
    assert (weights[..., 2:] == 0).all()
    competing, changed = kd.nn.ImprovedMultiHeadDotProductAttention(2, softmax_axis=-2).apply(
        variables, tokens, mutable=["intermediates"]
    )
    np.testing.assert_allclose(changed["intermediates"]["attn_weights"][0].sum(-2), 1, rtol=1e-6)
    assert competing.shape == tokens.shape


def test_heads_that_do_not_divide_the_features_are_refused() -> None:
    with pytest.raises(ValueError, match="3 heads do not divide 8 features"):
        _shapes(kd.nn.ImprovedMultiHeadDotProductAttention(3), jnp.ones((1, 4, 8)))


def test_fourier_features_are_sines_and_cosines_of_doubled_frequencies() -> None:
    x = np.asarray([[0.25, -0.5]], np.float32)
    expected = [np.sin(x[0, i] * f) for f in (1, 2) for i in range(2)]
    expected += [np.cos(x[0, i] * f) for f in (1, 2) for i in range(2)]
    np.testing.assert_allclose(kd.nn.convert_to_fourier_features(x, 2)[0], expected, atol=1e-6)


def test_positions_are_where_they_were_asked_for() -> None:
    _, variables = _shapes(kd.nn.AddEmbedding(kd.nn.LearnedEmbedding(), axis=(1, 2)), jnp.ones((2, 5, 7, 4)))
    assert variables["params"]["emb"]["embeddings"] == (5, 7, 4)


def test_a_block_made_inside_another_module_owns_its_layers() -> None:
    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            for _ in range(2):
                x = kd.nn.PreNormBlock(kd.nn.ImprovedMultiHeadDotProductAttention(2))(x)
            return x

    _, variables = _shapes(Net(), jnp.ones((1, 4, 8)))
    blocks = [name for name in variables["params"] if name.startswith("PreNormBlock")]
    assert len(blocks) == 2
    assert all({"mlp", "mlp_norm", "attention_norm"} <= set(variables["params"][name]) for name in blocks)


@pytest.mark.parametrize("width", [1, 4, 11, 16, 48])
def test_a_resnet_normalises_groups_of_any_width(width: int) -> None:
    model = kd.nn.ResNet(stages=(1, 1), num_classes=2, width=width, norm="group", image="batch.x")
    assert _shapes(model, IMAGES)[0] == (2, 2)
