"""Annotations beside arrays: trees, shapes, dtypes, keys and specs."""

from __future__ import annotations

import dataclasses
import numbers
import sys
import typing
from collections.abc import Iterator, Sequence
from typing import Any

from kauldron_core.ktyping import array_types, dims, matching, messages, queries, scope
from kauldron_core.ktyping.checkers import Checker, checker_for, explain_items, extend_items
from kauldron_core.ktyping.matching import Bindings


class _Annotation(Checker):
    """A checker that can stand in an annotation: `X | None` works, calling it does not."""

    def __or__(self, other: Any) -> Any:
        return _either(self, other)

    def __ror__(self, other: Any) -> Any:
        return _either(other, self)

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise TypeError(f"{self} is for annotations")

    def __instancecheck__(self, value: Any) -> bool:
        return scope.fits(self.extend, value, sys._getframe(1).f_code)


def _either(a: Any, b: Any) -> Any:
    return typing.Union[a, b]  # noqa: UP007  `|` would come back here.


@dataclasses.dataclass(frozen=True, repr=False)
class _PyTree(_Annotation):
    leaf: Any = Any
    structure: str | None = None

    def __getitem__(self, arguments: Any) -> _PyTree:
        leaf, structure = arguments if isinstance(arguments, tuple) else (arguments, None)
        if structure is not None and not (isinstance(structure, str) and structure.startswith("$")):
            raise TypeError(f"PyTree[T, {structure!r}]: the name of a structure starts with $, such as '$S'")
        return _PyTree(leaf, structure)

    def __repr__(self) -> str:
        inner = messages.text_of(self.leaf) + (f", {self.structure!r}" if self.structure else "")
        return f"PyTree[{inner}]"

    def extend(self, value: Any, bindings: Bindings, label: str) -> Iterator[Bindings]:
        items, structure = self._flatten(value)
        if self.structure is not None:
            if bindings.sizes.get(self.structure, structure) != structure:
                return
            bindings = bindings.bind(self.structure, structure, label)
        yield from extend_items(items, bindings, label)

    def explain(self, value: Any, bindings: Bindings) -> str:
        items, structure = self._flatten(value)
        bound = bindings.sizes.get(self.structure or "")
        if bound is not None and bound != structure:
            return f"its structure is {structure}, but {self.structure} is {bound}"
        return explain_items(items, bindings)

    def _flatten(self, value: Any) -> tuple[list[tuple[str, Any, Checker]], Any]:
        import jax.tree_util  # Only annotations of trees need JAX.

        leaf = checker_for(self.leaf)

        def is_leaf(node: Any) -> bool:
            """Tells leaves that JAX would look into, such as a list in `PyTree[list[int]]`."""
            return node is not value and any(True for _ in leaf.extend(node, Bindings(), ""))

        leaves, structure = jax.tree_util.tree_flatten_with_path(
            value, is_leaf=None if isinstance(self.leaf, array_types.ArrayType) else is_leaf
        )
        return [(jax.tree_util.keystr(path), node, leaf) for path, node in leaves], structure


@dataclasses.dataclass(frozen=True, repr=False)
class _Shape(_Annotation):
    spec: str | None = None

    def __getitem__(self, spec: str) -> _Shape:
        dims.parse(spec)
        return _Shape(spec)

    def __call__(self, spec_str: str) -> tuple[int, ...]:
        """Returns the sizes that a spec stands for in the calling function: `Shape("b n")` is `shape("b n")`."""
        return queries.sizes_of(spec_str, sys._getframe(1), "Shape")

    def __repr__(self) -> str:
        return "Shape" if self.spec is None else f"Shape[{self.spec!r}]"

    def extend(self, value: Any, bindings: Bindings, label: str) -> Iterator[Bindings]:
        if not isinstance(value, Sequence) or isinstance(value, str) or not all(map(_is_size, value)):
            return
        if self.spec is None:
            yield bindings
        else:
            yield from matching.matches(dims.parse(self.spec), tuple(value), bindings, label)

    def explain(self, value: Any, bindings: Bindings) -> str:
        if not isinstance(value, Sequence) or isinstance(value, str) or not all(map(_is_size, value)):
            return f"it is {messages.describe(value)}, not a tuple of sizes"
        return messages.explain_shape(dims.parse(self.spec or "..."), tuple(value), bindings)


@dataclasses.dataclass(frozen=True, repr=False)
class _DType(_Annotation):
    """Whatever NumPy or JAX takes as a dtype: `'float32'`, `np.float32`, `jnp.bfloat16`, `float`."""

    def __repr__(self) -> str:
        return "DType"

    def extend(self, value: Any, bindings: Bindings, label: str) -> Iterator[Bindings]:
        import numpy as np  # Only annotations of dtypes need it.

        if isinstance(value, str | type | np.dtype) or hasattr(value, "dtype"):
            try:
                np.dtype(value if isinstance(value, str | type | np.dtype) else value.dtype)
            except TypeError:
                if value not in ("bfloat16", "int4", "uint4"):
                    return
            yield bindings

    def explain(self, value: Any, bindings: Bindings) -> str:
        return f"{messages.describe(value)} is no dtype"


@dataclasses.dataclass(frozen=True, repr=False)
class _ArraySpec(_Annotation):
    """Anything with a shape and a dtype that is not itself an array."""

    def __repr__(self) -> str:
        return "ArraySpec"

    def extend(self, value: Any, bindings: Bindings, label: str) -> Iterator[Bindings]:
        if hasattr(value, "shape") and hasattr(value, "dtype") and not array_types.is_array_class(type(value)):
            yield bindings

    def explain(self, value: Any, bindings: Bindings) -> str:
        return f"it is {messages.describe(value)}, not a spec with shape and dtype"


@dataclasses.dataclass(frozen=True, repr=False)
class _Key(_Annotation):
    """JAX keys, typed (a key dtype) or raw (two or four words), as they are or wrapped with the key under `rng`.

    Attributes:
      name: How it prints.
      is_batch: Whether it takes arrays of keys; else exactly one key.
      takes_seeds: Whether an integer, or a sequence of them, is fine too.
    """

    name: str
    is_batch: bool = False
    takes_seeds: bool = False

    def __repr__(self) -> str:
        return self.name

    def extend(self, value: Any, bindings: Bindings, label: str) -> Iterator[Bindings]:
        if self._fits(getattr(value, "rng", value)):
            yield bindings

    def explain(self, value: Any, bindings: Bindings) -> str:
        return f"it is {messages.describe(value)}, not {'keys' if self.is_batch else 'one key'}"

    def _fits(self, value: Any) -> bool:
        if self.takes_seeds and (_is_size(value) or (isinstance(value, Sequence) and all(map(_is_size, value)))):
            return True
        dtypes = array_types.describe_dtypes(value)
        if not dtypes or array_types.is_number(value):
            return False
        (dtype,) = dtypes
        shape = array_types.shape_of(value)
        if not dtype.startswith("key<"):
            if dtype != "uint32" or not shape or shape[-1] not in (2, 4):
                return False
            shape = shape[:-1]
        return bool(shape) == self.is_batch or (self.takes_seeds and not shape)


def _is_size(value: Any) -> bool:
    """Returns whether `value` is a size: an int, or one of JAX's symbolic dimensions."""
    is_int = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    return is_int or type(value).__name__ == "_DimExpr"


PyTree = _PyTree()
Shape = _Shape()
DType = _DType()
ArraySpec = _ArraySpec()
ElementSpec = _PyTree(ArraySpec)
PRNGKey = _Key("PRNGKey")
PRNGKeyArray = _Key("PRNGKeyArray", is_batch=True)
PRNGKeyLike = _Key("PRNGKeyLike", takes_seeds=True)
