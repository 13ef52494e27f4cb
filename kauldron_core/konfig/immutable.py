"""`ImmutableDict`: what a plain dict of a config becomes when it is resolved."""

from __future__ import annotations

import sys
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
    import jax  # Imported already: this only names it.

    def keys(tree: ImmutableDict[Any, Any]) -> list[Any]:
        return sorted(tree, key=lambda key: (type(key).__name__, key))

    jax.tree_util.register_pytree_with_keys(
        ImmutableDict,
        lambda tree: ([(jax.tree_util.DictKey(key), tree[key]) for key in keys(tree)], tuple(keys(tree))),
        lambda names, values: ImmutableDict(zip(names, values, strict=True)),
        lambda tree: ([tree[key] for key in keys(tree)], tuple(keys(tree))),
    )
    _is_registered = True
