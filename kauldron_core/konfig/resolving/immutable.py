"""`ImmutableDict`: what a plain dict of a config becomes when it is resolved."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, NoReturn, TypeVar

_K = TypeVar("_K")
_V = TypeVar("_V")


class ImmutableDict(dict[_K, _V]):
    """A dict that cannot change: hashable, with its text keys as attributes."""

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError("a resolved config cannot change; make a dict(...) of it, or change the config")

    __setitem__ = __delitem__ = __ior__ = _refuse  # pyright: ignore[reportAssignmentType]
    clear = pop = popitem = setdefault = update = _refuse  # pyright: ignore[reportAssignmentType]
    __setattr__ = __delattr__ = _refuse  # pyright: ignore[reportAssignmentType]

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]  # pyright: ignore[reportArgumentType]
        except KeyError:
            raise AttributeError(name) from None

    def __hash__(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return hash(frozenset(self.items()))

    def __or__(self, other: Any) -> Any:
        return ImmutableDict({**self, **other})

    def __ror__(self, other: Any) -> Any:
        return ImmutableDict({**other, **self})

    def __copy__(self) -> ImmutableDict[_K, _V]:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return ImmutableDict, (dict(self),)

    def __repr__(self) -> str:
        return f"ImmutableDict({dict(self)!r})"


_is_registered = False


def register_with_jax() -> None:
    """Makes JAX see the entries, if JAX is imported (it takes only plain dicts for trees)."""
    global _is_registered
    if _is_registered or "jax" not in sys.modules:
        return
    jax: Any = sys.modules["jax"]
    key_of: Any = jax.tree_util.DictKey

    def flatten(tree: ImmutableDict[Any, Any]) -> tuple[list[Any], tuple[Any, ...]]:
        keys = sorted(tree, key=lambda key: (type(key).__name__, key))
        return [tree[key] for key in keys], tuple(keys)

    def flatten_with_keys(tree: ImmutableDict[Any, Any]) -> tuple[list[Any], tuple[Any, ...]]:
        values, keys = flatten(tree)
        return [(key_of(key), value) for key, value in zip(keys, values, strict=True)], keys

    def unflatten(keys: tuple[Any, ...], values: Iterable[Any]) -> ImmutableDict[Any, Any]:
        return ImmutableDict(zip(keys, values, strict=True))

    jax.tree_util.register_pytree_with_keys(ImmutableDict, flatten_with_keys, unflatten, flatten)
    _is_registered = True
