"""A config with a place of each kind, for command lines that are tried on it."""

from __future__ import annotations

from typing import Any

from kauldron_core import konfig

with konfig.imports():
    import optax

    from kauldron_core import kd


def get_config(size: int = 4) -> Any:
    """Returns something to override."""
    return konfig.ConfigDict(
        {
            "seed": 0,
            "rate": 0.1,
            "name": "a",
            "layers": [1, 2],
            "debug": False,
            "note": None,
            "model": kd.nn.MLP(hidden=size, features=10, x="batch.image"),
            "optimizer": optax.adam(learning_rate=1e-3),
        }
    )
