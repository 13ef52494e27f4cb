"""`interms_property`: a layer shows inner values to losses, metrics and other layers."""

from __future__ import annotations

from typing import Any

import flax.linen as nn

_COLLECTION = "intermediates"


class Interms:
    """The intermediate values of a bound Linen module, by name."""

    def __init__(self, module: nn.Module):
        if module.scope is None:
            raise ValueError(f"{type(module).__name__}: interms can only be used inside a bound module.")
        self._module = module

    def __setitem__(self, name: str, value: Any) -> None:
        """Records `value`, if anybody asked for inner outputs: a key finds it at `interms.<path>.<name>[0]`."""
        self._module.sow(_COLLECTION, name, value)

    def __getitem__(self, name: str) -> Any:
        """Returns the last value recorded under `name`, of this call.

        Raises:
          KeyError: If there is none.
        """
        values = self._module.get_variable(_COLLECTION, name)
        if not values:
            raise KeyError(f"{type(self._module).__name__}: nothing was recorded under {name!r} (is anybody asking?)")
        return values[-1]


def interms_property() -> property:
    """Returns a property for a Linen module: `self.interms["attention"] = weights` shows the value to key paths."""
    return property(Interms)
