"""Flattening a pytree into a dict of paths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from kauldron_core.kontext.path import Path


def flatten_with_path(
    pytree: Any, *, prefix: str = "", separator: str | None = None, is_leaf: Callable[[Any], bool] | None = None
) -> dict[str, Any]:
    """Returns the leaves of `pytree` by their paths: `{'a.b[0]': leaf}`.

    Args:
      pytree: Any JAX pytree.
      prefix: A path put before each.
      separator: Text between the parts instead of the path syntax: with `/` the example reads `a/b/0`.
      is_leaf: As in `jax.tree.leaves`.
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(pytree, is_leaf=is_leaf)
    return {_name(Path.from_jax_path(path), prefix, separator): leaf for path, leaf in leaves}


def _name(path: Path, prefix: str, separator: str | None) -> str:
    if separator is None:
        return str(Path.from_str(prefix) / path)
    return separator.join([prefix] * bool(prefix) + [str(part) for part in path.parts])
