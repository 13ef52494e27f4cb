"""Vision Transformers.

Source: Dosovitskiy et al., An Image is Worth 16x16 Words, 2021 (arXiv:2010.11929).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from kauldron_core import kontext
from kauldron_core.errors import ConfigError, unknown_name
from kauldron_core.ktyping import Float, typechecked
from kauldron_core.modules.attention import ImprovedMultiHeadDotProductAttention
from kauldron_core.modules.patches import PatchifyEmbed, unpatchify
from kauldron_core.modules.positions import Initializer, LearnedEmbedding
from kauldron_core.modules.signatures import training_kwargs
from kauldron_core.modules.transformer import PreNormBlock, TransformerBlock, TransformerMLP, default_layer


class VitSize(NamedTuple):
    """The size of an encoder."""

    hidden_size: int
    num_layers: int
    mlp_size: int
    num_heads: int


SIZES = {
    "Ti": VitSize(192, 12, 768, 3),
    "S": VitSize(384, 12, 1536, 6),
    "B": VitSize(768, 12, 3072, 12),
    "L": VitSize(1024, 24, 4096, 16),
    "H": VitSize(1280, 32, 5120, 16),
    "g": VitSize(1408, 40, 6144, 16),
    "G": VitSize(1664, 48, 8192, 16),
}
"""Source: B, L, H: arXiv:2010.11929, table 1; Ti, S: arXiv:2012.12877, table 1; g, G: arXiv:2106.04560, table 2."""


class VitEncoder(nn.Module):
    """Patches with positions, through Transformer blocks.

    Attributes:
      layers: The blocks.
      embedding: From images to tokens.
      pos_embedding: What is added to the tokens.
      encoder_norm: Applied last; None for no norm.
      prepend_cls_token: Whether a learned token, which belongs to no patch, comes first.
      cls_token_init: Its initial value.
      image: Where the images are found in the context.
    """

    layers: Sequence[nn.Module]
    embedding: nn.Module
    pos_embedding: nn.Module = default_layer(LearnedEmbedding)
    encoder_norm: nn.Module | None = default_layer(nn.RMSNorm)
    prepend_cls_token: bool = False
    cls_token_init: Initializer = nn.initializers.zeros

    image: kontext.Key = kontext.REQUIRED

    @nn.compact
    @typechecked
    def __call__(self, image: Float["*b h w c"]) -> Float["*b n d"]:
        """Returns the tokens, row by row."""
        tokens = self.embedding(image)
        tokens = tokens + self.pos_embedding(tokens.shape, axis=-2)
        if self.prepend_cls_token:
            cls = self.param("cls", self.cls_token_init, tokens.shape[-1:])
            cls = jnp.broadcast_to(cls, (*tokens.shape[:-2], 1, tokens.shape[-1]))
            tokens = jnp.concatenate([cls, tokens], axis=-2)
        for layer in self.layers:
            tokens = layer(tokens, **training_kwargs(layer))
        return tokens if self.encoder_norm is None else self.encoder_norm(tokens)

    @classmethod
    def from_spec(
        cls,
        num_heads: int,
        hidden_size: int,
        num_layers: int,
        patch_size: int | tuple[int, int],
        *,
        mlp_size: int | None = None,
        block_type: type[TransformerBlock] = PreNormBlock,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> VitEncoder:
        """Returns an encoder of equal blocks.

        Args:
          num_heads: Heads of the attention.
          hidden_size: Width of the tokens.
          num_layers: Number of blocks.
          patch_size: Height and width of a patch.
          mlp_size: Width inside the MLPs; four times `hidden_size` where unset.
          block_type: Class of the blocks.
          dropout: Rate of the dropout inside the MLPs.
          **kwargs: Further attributes of the encoder.
        """
        patch = (patch_size, patch_size) if isinstance(patch_size, int) else patch_size
        blocks = [
            block_type(
                attention=ImprovedMultiHeadDotProductAttention(num_heads),
                mlp=TransformerMLP(mlp_size, dropout=dropout),
            )
            for _ in range(num_layers)
        ]
        return cls(layers=blocks, embedding=PatchifyEmbed((patch[0], patch[1]), hidden_size), **kwargs)

    @classmethod
    def from_variant_str(cls, variant_str: str, **kwargs: Any) -> VitEncoder:
        """Returns an encoder of a published size with a patch size: `'S/16'`.

        Raises:
          ConfigError: If there is no such size.
        """
        name, _, patch_size = variant_str.partition("/")
        if name not in SIZES:
            raise ConfigError(unknown_name("ViT size", name, SIZES))
        if not patch_size.isdecimal():
            raise ConfigError(f"ViT variant {variant_str!r}: give the patch size in pixels, as in '{name}/16'.")
        size = SIZES[name]
        return cls.from_spec(
            size.num_heads, size.hidden_size, size.num_layers, int(patch_size), mlp_size=size.mlp_size, **kwargs
        )


class Vit(nn.Module):
    """A classifier of images.

    Attributes:
      encoder: From images to tokens.
      num_classes: Width of the output.
      init_head_bias: Initial value of the last bias.
      mode: What is classified: the mean of the tokens, or the first one (`prepend_cls_token` of the encoder).
      image: Where the images are found in the context.
    """

    encoder: nn.Module
    num_classes: int = 1000
    init_head_bias: Initializer = nn.initializers.zeros
    mode: Literal["gap", "cls_token"] = "gap"

    image: kontext.Key = kontext.REQUIRED

    @nn.compact
    @typechecked
    def __call__(self, image: Float["*b h w c"]) -> dict[str, Float["*b {self.num_classes}"]]:
        """Returns the `logits`."""
        tokens = self.encoder(image)
        if self.mode == "cls_token":
            if not getattr(self.encoder, "prepend_cls_token", True):
                raise ConfigError("Vit: mode='cls_token' needs an encoder with prepend_cls_token=True.")
            x = tokens[..., 0, :]
        elif self.mode == "gap":
            x = tokens.mean(axis=-2)
        else:
            raise ConfigError(unknown_name("mode", self.mode, ("gap", "cls_token"), at="Vit"))
        x = nn.tanh(nn.Dense(x.shape[-1], name="pre_logits")(x))
        head = nn.Dense(
            self.num_classes,
            kernel_init=nn.initializers.zeros,
            bias_init=self.init_head_bias,
            name="classifier_head",
        )
        return {"logits": head(x)}


class VitAutoEncoder(nn.Module):
    """Encodes images and reads each patch back from its token.

    Attributes:
      encoder: From images to tokens.
      image: Where the images are found in the context.
    """

    encoder: VitEncoder

    image: kontext.Key = kontext.REQUIRED

    @nn.compact
    @typechecked
    def __call__(self, image: Float["*b h w c"]) -> dict[str, Float["*b h w c"]]:
        """Returns the reconstruction under `image`."""
        tokens = self.encoder(image)
        if self.encoder.prepend_cls_token:
            tokens = tokens[..., 1:, :]
        height, width = self.encoder.embedding.patch_size
        pixels = nn.Dense(height * width * image.shape[-1], name="decoder")(tokens)
        grid = (image.shape[-3] // height, image.shape[-2] // width)
        return {"image": unpatchify(pixels, grid=grid, patch_size=(height, width))}
