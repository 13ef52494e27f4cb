"""From images to sequences of patches, and back."""

from __future__ import annotations

import einops
import flax.linen as nn

from kauldron_core.ktyping import Float, typechecked


class Patchify(nn.Module):
    """Cuts images into patches, row by row. Has no parameters.

    Attributes:
      patch_size: Height and width of a patch; they divide those of the image.
    """

    patch_size: tuple[int, int]

    @typechecked
    def __call__(self, images: Float["*b h w c"]) -> Float["*b n d"]:
        """Returns one vector of pixels a patch."""
        height, width = self.patch_size
        return einops.rearrange(images, "... (i h) (j w) c -> ... (i j) (h w c)", h=height, w=width)


class PatchifyEmbed(nn.Module):
    """Cuts images into patches, row by row, and projects each to a vector.

    Attributes:
      patch_size: Height and width of a patch.
      hidden_size: Width of the vectors.
    """

    patch_size: tuple[int, int]
    hidden_size: int

    @nn.compact
    @typechecked
    def __call__(self, images: Float["*b h w c"]) -> Float["*b n {self.hidden_size}"]:
        """Returns one vector a patch."""
        project = nn.Conv(self.hidden_size, self.patch_size, self.patch_size, padding="VALID", name="patchifier")
        return einops.rearrange(project(images), "... i j d -> ... (i j) d")


@typechecked
def unpatchify(tokens: Float["*b n d"], *, grid: tuple[int, int], patch_size: tuple[int, int]) -> Float["*b h w c"]:
    """Returns the images whose patches, row by row, are `tokens`: the inverse of `Patchify`."""
    return einops.rearrange(
        tokens, "... (i j) (h w c) -> ... (i h) (j w) c", i=grid[0], h=patch_size[0], w=patch_size[1]
    )
