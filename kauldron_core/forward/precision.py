"""`Precision`: in which types a model computes, whatever its parameters are kept in."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from kauldron_core.errors import ConfigError, unknown_name

_TYPES = ("bfloat16", "float16", "float32", "float64")
_LEAST_BYTES = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Precision:
    """Mixed precision. Parameters, gradients and the optimizer keep their own type.

        cfg.precision = kd.train.Precision(compute="bfloat16")

    Attributes:
      compute: Type of the parameters and of the floats of the batch, as the model sees them.
      output: Type of the floats that it returns, in which losses and metrics are computed.

    Source: Micikevicius et al., Mixed Precision Training, 2018 (arXiv:1710.03740), section 3.1.
    """

    compute: Any = "bfloat16"
    output: Any = "float32"

    def __post_init__(self):
        for name in ("compute", "output"):
            object.__setattr__(self, name, _float_type(getattr(self, name), at=f"precision.{name}"))

    def before(self, tree: Any) -> Any:
        """Returns parameters or a batch as the model gets them."""
        return cast_floats(tree, self.compute)

    def after(self, tree: Any) -> Any:
        """Returns what a model returned as losses get it."""
        return cast_floats(tree, self.output)


def check_params(params: Any) -> None:
    """Refuses parameters in float8 and less, whose updates would be lost in rounding.

    Raises:
      ConfigError: That names the first.
    """
    for path, dtype in _typed(params):
        if dtype.itemsize < _LEAST_BYTES:
            raise ConfigError(
                f"model: the parameter {path} is kept in {dtype}, in which updates are lost. Keep parameters in float32"
                " or bfloat16 (`param_dtype`)."
            )


def cast_floats(tree: Any, dtype: Any) -> Any:
    """Returns `tree` with its float arrays in `dtype`, or in the types of the tree `dtype`."""
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if is_float(leaf) else leaf, tree)


def cast_like(tree: Any, model: Any) -> Any:
    """Returns `tree` with its float arrays in the types of those of `model`; entries that `model` lacks stay."""
    types = dict(_typed(model))
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf.astype(types.get(jax.tree_util.keystr(path), leaf.dtype)) if is_float(leaf) else leaf,
        tree,
    )


def _float_type(value: Any, *, at: str) -> Any:
    try:
        found = jnp.dtype(value)
    except TypeError:
        raise ConfigError(unknown_name("type", str(value), _TYPES, at=at)) from None
    if not jnp.issubdtype(found, jnp.floating):
        raise ConfigError(f"{at}: {found} is no type of floats. Available: {', '.join(_TYPES)}.")
    if found.itemsize < _LEAST_BYTES:
        raise ConfigError(
            f"{at}: {found} has too few digits for numbers that are not scaled, and nothing is scaled here. Use"
            " 'bfloat16'; for products in float8 give a layer that scales: flax.linen.Fp8DirectDotGeneralOp."
        )
    return found


def is_float(leaf: Any) -> bool:
    """Returns whether `leaf` is an array of floats."""
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)


def _typed(tree: Any) -> list[tuple[str, Any]]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [(jax.tree_util.keystr(path), leaf.dtype) for path, leaf in leaves if is_float(leaf)]
