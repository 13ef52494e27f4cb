"""`Nnx`: an NNX module, described by a factory, that works wherever a Linen module does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
from flax import nnx

from kauldron_core import kontext
from kauldron_core.modules import adapters, nnx_recording, nnx_variables
from kauldron_core.modules.mode import read_is_training
from kauldron_core.modules.nnx_streams import Seeds, Streams, check_unused, reseed

_INTERMEDIATES = "intermediates"


class Nnx(nn.Module):
    """An NNX module, built where it is used: for good when parameters are initialised, later for its structure alone.

        kd.nn.Nnx(module=functools.partial(Classifier, din=16), inputs="batch.x")

    Its variables are like those of a Linen module: each `nnx.Param` in `params`, each `nnx.BatchStat` in
    `batch_stats` and so on, under the paths they have in the module, without a level for the wrapper. Outputs of its
    layers are at `interms.encoder.__call__[0]`. Its random streams are the trainer's, by name; one that is not among
    them is derived from the stream `default`. `set_train_property` puts it into training or evaluation mode.

    Attributes:
      module: Returns the module; it is called with `rngs`, if it takes that.
      inputs: Where its arguments are found in the context: the path of the only one, or paths by argument name.
    """

    module: Callable[..., nnx.Module]
    inputs: str | Mapping[str, str] = kontext.REQUIRED

    @nn.nowrap
    def __kontext_keys__(self) -> dict[str, str]:
        return adapters.keys_by_name(self.inputs, "inputs")

    @nn.compact
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Output of the wrapped NNX module."""
        args, kwargs = adapters.by_position(self.inputs, "inputs", args, kwargs)
        seeds = Seeds(self)
        is_new = self.is_initializing() and not any(self.variables.values())
        if is_new:
            module = nnx_variables.build(self.module, Streams(seeds))
            nnx_variables.write(module, self)
        else:
            module = nnx_variables.read(self.module, self)
        _set_mode(module)
        unseeded = reseed(module, seeds)
        outputs = _call_and_record(self, module, args, kwargs)
        check_unused(unseeded)
        if not self.is_initializing():
            nnx_variables.write(module, self)
        return outputs


def _call_and_record(owner: Nnx, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Returns the outputs of `module`; records those of its layers if anybody asked for inner outputs."""
    is_asked = owner.is_mutable_collection(_INTERMEDIATES)
    outputs, inner = nnx_recording.call_and_record(module, args, kwargs, with_calls=is_asked)
    if not is_asked:
        return outputs
    for name, value in inner.items():
        # The output of the module itself is recorded by Linen.
        if name != "__call__":
            before = owner.get_variable(_INTERMEDIATES, name, type(value)())
            owner.put_variable(_INTERMEDIATES, name, _joined(before, value))
    return outputs


def _joined(before: Any, after: Any) -> Any:
    """Intermediates of two calls: the values of the second follow those of the first."""
    if isinstance(before, tuple):
        return (*before, *after)
    return {**before, **{name: _joined(before.get(name, type(value)()), value) for name, value in after.items()}}


def _set_mode(module: nnx.Module) -> None:
    """Puts `module` into training or evaluation mode, if a layer of it has modes."""
    layers = [layer for _, layer in nnx.iter_modules(module)]
    if any(hasattr(layer, name) for layer in layers for name in ("deterministic", "use_running_average")):
        if read_is_training(module):
            module.train()
        else:
            module.eval()
