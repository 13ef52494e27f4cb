"""Modules that combine others, and the smallest ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn

from kauldron_core import kontext
from kauldron_core.ktyping import Float, typechecked
from kauldron_core.modules.signatures import training_kwargs


class Sequential(nn.Module):
    """Calls its layers one after the other, and tells each that wants to know whether this is training.

    A layer wants to know if its call has an argument `is_training`, `training`, `train`, `deterministic` or
    `use_running_average` that was not set when the layer was made: `nn.BatchNorm()` and `nn.Dropout(0.1)` just work.

    Attributes:
      layers: Modules, and functions of one argument.
      inputs: Where the input is found in the context.
      outputs: If set, the result is a dictionary with this one key.
    """

    layers: Sequence[Callable[..., Any]] = ()
    inputs: kontext.Key = kontext.REQUIRED
    outputs: str | None = None

    @nn.compact
    def __call__(self, inputs: Any) -> Any:
        """Output of the last layer."""
        x = inputs
        for layer in self.layers:
            x = layer(x, **training_kwargs(layer))
        return x if self.outputs is None else {self.outputs: x}


class Identity(nn.Module):
    """Returns its input; swallows every other argument. Takes the place of a layer that is left out."""

    def __call__(self, inputs: Any, *unused: Any, **unused_too: Any) -> Any:
        """Returns `inputs`."""
        return inputs


class DummyModel(nn.Module):
    """Has no parameters and predicts nothing, for experiments whose losses read the batch alone.

    Attributes:
      inputs: Where the input is found in the context, if any is wanted.
    """

    inputs: kontext.Key | None = None

    def __call__(self, inputs: Any = None) -> dict[str, Any]:
        """Returns no predictions."""
        return {}


class FlatAutoencoder(nn.Module):
    """Flattens images, encodes and decodes them, and gives the result their shape again.

    Attributes:
      encoder: From pixels to the code.
      decoder: From the code to as many values as an image has.
      inputs: Where the images are found in the context.
    """

    encoder: nn.Module
    decoder: nn.Module
    inputs: kontext.Key = kontext.REQUIRED

    @nn.compact
    @typechecked
    def __call__(self, inputs: Float["*b h w c"]) -> dict[str, Float["*b h w c"]]:
        """Returns the reconstruction under `image`."""
        x = inputs.reshape(*inputs.shape[:-3], math.prod(inputs.shape[-3:]))
        for part in (self.encoder, self.decoder):
            x = part(x, **training_kwargs(part))
        return {"image": x.reshape(inputs.shape)}
