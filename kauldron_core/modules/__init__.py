"""Flax layers and models that a config can name, and the switch between training and evaluation (`kd.nn`)."""

from typing import TYPE_CHECKING, Any

from kauldron_core.modules.adapters import ExternalModule, WrapperModule
from kauldron_core.modules.attention import ImprovedMultiHeadDotProductAttention, MultiHeadDotProductAttention
from kauldron_core.modules.containers import DummyModel, FlatAutoencoder, Identity, Sequential
from kauldron_core.modules.convnet import ConvNet
from kauldron_core.modules.einops_layers import Rearrange, Reduce
from kauldron_core.modules.interms import interms_property
from kauldron_core.modules.mlp import MLP
from kauldron_core.modules.mode import Dropout, set_train_property, train_property
from kauldron_core.modules.patches import Patchify, PatchifyEmbed
from kauldron_core.modules.positions import (
    AddEmbedding,
    FourierEmbedding,
    LearnedEmbedding,
    ZeroEmbedding,
    convert_to_fourier_features,
)
from kauldron_core.modules.resnet import ResNet, ResNetBlock
from kauldron_core.modules.transformer import (
    ParallelAttentionBlock,
    PostNormBlock,
    PreNormBlock,
    TransformerBlock,
    TransformerMLP,
)
from kauldron_core.modules.vit import Vit, VitAutoEncoder, VitEncoder

if TYPE_CHECKING:
    from kauldron_core.modules.nnx_module import Nnx

__all__ = [
    "AddEmbedding",
    "ConvNet",
    "Dropout",
    "DummyModel",
    "ExternalModule",
    "FlatAutoencoder",
    "FourierEmbedding",
    "Identity",
    "ImprovedMultiHeadDotProductAttention",
    "LearnedEmbedding",
    "MLP",
    "MultiHeadDotProductAttention",
    "Nnx",
    "ParallelAttentionBlock",
    "Patchify",
    "PatchifyEmbed",
    "PostNormBlock",
    "PreNormBlock",
    "Rearrange",
    "Reduce",
    "ResNet",
    "ResNetBlock",
    "Sequential",
    "TransformerBlock",
    "TransformerMLP",
    "Vit",
    "VitAutoEncoder",
    "VitEncoder",
    "WrapperModule",
    "ZeroEmbedding",
    "convert_to_fourier_features",
    "interms_property",
    "set_train_property",
    "train_property",
]


def __getattr__(name: str) -> Any:
    if name != "Nnx":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kauldron_core.modules import nnx_module  # flax.nnx costs as much time as flax.linen: for who uses it.

    return nnx_module.Nnx
