"""Every layer and model of `kd.nn`, small, with an input: what the tests of all of them run over."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from flax import nnx

from kauldron_core import kd

VECTORS, TOKENS, IMAGES = (3, 6), (3, 5, 8), (3, 8, 8, 2)


@dataclasses.dataclass(frozen=True)
class Case:
    """A module and what it is called with.

    Attributes:
      module: The module.
      shape: Of its input, the batch first.
      has_modes: Whether it does something else in training.
    """

    module: Any
    shape: tuple[int, ...]
    has_modes: bool = False

    @property
    def inputs(self) -> Any:
        return np.random.default_rng(0).normal(size=self.shape).astype(np.float32)


class Told(nn.Module):
    """A layer that is told by its caller that it does not train."""

    @nn.compact
    def __call__(self, x: Any, *, deterministic: bool) -> Any:
        return nn.Dropout(0.5)(nn.Dense(4)(x), deterministic=deterministic)


class NnxEncoder(nnx.Module):
    """Linear, batch norm, dropout."""

    def __init__(self, width: int, *, rngs: nnx.Rngs):
        self.linear = nnx.Linear(width, width, rngs=rngs)
        self.norm = nnx.BatchNorm(width, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.scale = jnp.arange(1.0, width + 1)

    def __call__(self, x: Any) -> Any:
        return self.dropout(nnx.relu(self.norm(self.linear(x)))) * self.scale


class NnxClassifier(nnx.Module):
    """Encoders one after the other."""

    def __init__(self, din: int, classes: int, *, depth: int = 2, rngs: nnx.Rngs):
        self.encoders = nnx.List([NnxEncoder(din, rngs=rngs) for _ in range(depth)])
        self.head = nnx.Linear(din, classes, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        for encoder in self.encoders:
            x = encoder(x)
        return self.head(x)


def _attention(**fields: Any) -> Any:
    return kd.nn.ImprovedMultiHeadDotProductAttention(num_heads=2, **fields)


def _encoder(**fields: Any) -> Any:
    return kd.nn.VitEncoder.from_spec(2, 8, 1, 4, **fields)


CASES = {
    "AddEmbedding": Case(kd.nn.AddEmbedding(kd.nn.LearnedEmbedding(), axis=(-3, -2)), IMAGES),
    "ConvNet": Case(kd.nn.ConvNet(features=(4, 6), num_classes=3, dropout=0.5, image="batch.x"), IMAGES, True),
    "ConvNet-features": Case(kd.nn.ConvNet(features=(4,), num_classes=0, image="batch.x"), IMAGES),
    "Dropout": Case(kd.nn.Dropout(0.5), VECTORS, True),
    "Dropout-broadcast": Case(kd.nn.Dropout(0.5, broadcast_dims=(1,)), TOKENS, True),
    "ExternalModule": Case(
        kd.nn.ExternalModule(Told(), keys="batch.x", train_kwarg_name="~deterministic"), VECTORS, True
    ),
    "FlatAutoencoder": Case(kd.nn.FlatAutoencoder(nn.Dense(4), nn.Dense(128), inputs="batch.x"), IMAGES),
    "FourierEmbedding": Case(kd.nn.AddEmbedding(kd.nn.FourierEmbedding(3)), TOKENS),
    "Identity": Case(kd.nn.Identity(), VECTORS),
    "ImprovedMultiHeadDotProductAttention": Case(_attention(normalize_qk=True), TOKENS),
    "LearnedEmbedding": Case(kd.nn.AddEmbedding(kd.nn.LearnedEmbedding()), TOKENS),
    "MLP": Case(kd.nn.MLP(hidden=(8, 4), features=3, dropout=0.5, x="batch.x"), IMAGES, True),
    "MultiHeadDotProductAttention": Case(
        kd.nn.MultiHeadDotProductAttention(num_heads=2, dropout_rate=0.5), TOKENS, True
    ),
    "Nnx": Case(kd.nn.Nnx(functools.partial(NnxClassifier, 6, 3), inputs="batch.x"), VECTORS, True),
    "Nnx-in-Sequential": Case(
        kd.nn.Sequential([nn.Dense(6), kd.nn.Nnx(functools.partial(NnxEncoder, 6))], inputs="batch.x"), VECTORS, True
    ),
    "ParallelAttentionBlock": Case(kd.nn.ParallelAttentionBlock(_attention()), TOKENS),
    "Patchify": Case(kd.nn.Patchify((4, 2)), IMAGES),
    "PatchifyEmbed": Case(kd.nn.PatchifyEmbed((4, 2), 5), IMAGES),
    "PostNormBlock": Case(kd.nn.PostNormBlock(_attention()), TOKENS),
    "PreNormBlock": Case(kd.nn.PreNormBlock(_attention(), mlp=kd.nn.TransformerMLP(dropout=0.5)), TOKENS, True),
    "Rearrange": Case(kd.nn.Rearrange("b (h w) c -> b h w c", {"h": 1}), TOKENS),
    "Reduce": Case(kd.nn.Reduce("b n d -> b d", "mean"), TOKENS),
    "ResNet": Case(kd.nn.ResNet(stages=(1, 1), num_classes=3, width=4, image="batch.x"), IMAGES, True),
    "ResNet-group": Case(
        kd.nn.ResNet(stages=(1,), num_classes=0, width=4, norm="group", stem="large", image="batch.x"), IMAGES
    ),
    "Sequential": Case(
        kd.nn.Sequential([nn.Dense(4), nn.BatchNorm(), nn.relu, nn.Dropout(0.5), Told()], inputs="batch.x"),
        VECTORS,
        True,
    ),
    "TransformerMLP": Case(kd.nn.TransformerMLP(hidden_size=6, dropout=0.5), TOKENS, True),
    "Vit": Case(kd.nn.Vit(_encoder(dropout=0.5), num_classes=3, image="batch.x"), IMAGES, True),
    "Vit-cls": Case(
        kd.nn.Vit(_encoder(prepend_cls_token=True), num_classes=3, mode="cls_token", image="batch.x"), IMAGES
    ),
    "VitAutoEncoder": Case(kd.nn.VitAutoEncoder(_encoder(prepend_cls_token=True), image="batch.x"), IMAGES),
    "VitEncoder": Case(_encoder(image="batch.x"), IMAGES),
    "WrapperModule": Case(kd.nn.WrapperModule(nn.Dense(3)), VECTORS),
    "ZeroEmbedding": Case(kd.nn.AddEmbedding(kd.nn.ZeroEmbedding()), TOKENS),
}
