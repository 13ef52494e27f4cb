"""Types of arrays: a set of dtypes, and a shape once subscripted (`Float["*b n c"]`)."""

from __future__ import annotations

import dataclasses
import functools
import sys
import typing
from typing import Any

from kauldron_core.ktyping import dims

_FLOATS = (
    "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz",
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
    "bfloat16", "float16", "float32", "float64", "float128", "longdouble",
)  # fmt: skip
_SINTS = ("int1", "int2", "int4", "int8", "int16", "int32", "int64")
_UINTS = tuple(f"u{name}" for name in _SINTS)
_COMPLEX = ("complex64", "complex128")
_BOOL = ("bool",)

_ARRAY_CLASSES = (
    ("jax", "Array"),
    ("jax.core", "Tracer"),
    ("numpy", "ndarray"),
    ("numpy", "generic"),
    ("tensorflow", "Tensor"),
    ("torch", "Tensor"),
)

# What a Python number counts as: Python's numbers have no size.
_PYTHON_DTYPES: dict[type, frozenset[str]] = {
    bool: frozenset(_BOOL),
    int: frozenset(_SINTS + _UINTS),
    float: frozenset(_FLOATS),
    complex: frozenset(_COMPLEX),
}


@dataclasses.dataclass(frozen=True)
class ArrayType:
    """A type of arrays: NumPy's, JAX's (tracers too), and those of TensorFlow and PyTorch where these are loaded.

    `Float` accepts every shape, `Float["b 3"]` one with two axes. `Float | Int` is again such a type and can be
    subscripted.

    Attributes:
      name: How it prints.
      dtypes: Names of the dtypes it accepts; None accepts all.
      spec: The shape in the mini-language of `dims`, None for any.
      takes_numbers: Whether a Python number is fine as well (the `Scalar` types).
    """

    name: str
    dtypes: frozenset[str] | None
    spec: str | None = None
    takes_numbers: bool = False

    def __getitem__(self, spec: str) -> ArrayType:
        if self.spec is not None:
            raise TypeError(f"{self} has a shape already")
        if not isinstance(spec, str):
            raise TypeError(
                f"{self.name}[...] takes the shape as one string, such as {self.name}['*b n c']; got {spec!r}"
            )
        try:
            dims.parse(spec)
        except ValueError as error:
            raise TypeError(f"{self.name}[{spec!r}]: {error}") from None
        return dataclasses.replace(self, spec=spec)

    def __or__(self, other: Any) -> Any:
        if isinstance(other, ArrayType) and self.spec is None and other.spec is None:
            both = None if self.dtypes is None or other.dtypes is None else self.dtypes | other.dtypes
            return ArrayType(f"({self.name}|{other.name})", both)
        return typing.Union[self, other]  # noqa: UP007  `|` would come back here.

    def __ror__(self, other: Any) -> Any:
        return typing.Union[other, self]  # noqa: UP007

    def __call__(self, *_: Any, **__: Any) -> typing.NoReturn:
        raise TypeError(f"{self} is a type of arrays for annotations; it makes none")

    def __repr__(self) -> str:
        return self.name if self.spec is None else f"{self.name}[{self.spec!r}]"

    __str__ = __repr__

    @functools.cached_property
    def dims(self) -> tuple[dims.Dim, ...] | None:
        """The parsed shape."""
        return None if self.spec is None else dims.parse(self.spec)

    def accepts(self, value: Any, dtypes: frozenset[str]) -> bool:
        """Returns whether an array or number of (one of) these dtypes fits, its shape aside."""
        return self.accepts_dtype(dtypes) and (self.takes_numbers or not is_number(value))

    def accepts_dtype(self, dtypes: frozenset[str]) -> bool:
        """Returns whether a value of (one of) these dtypes fits."""
        return self.dtypes is None or not self.dtypes.isdisjoint(dtypes)


def describe_dtypes(value: Any) -> frozenset[str] | None:
    """Returns the names of the dtypes that `value` can count as, None if it is neither array nor number."""
    kind = type(value)
    python = _PYTHON_DTYPES.get(kind)
    if python is not None:
        return python
    if not is_array_class(kind):
        return None
    return _dtype_names(value.dtype)


def is_number(value: Any) -> bool:
    """Returns whether `value` is a number of Python itself (NumPy's scalars are arrays)."""
    return type(value) in _PYTHON_DTYPES


def shape_of(value: Any) -> tuple[Any, ...]:
    """Returns the sizes of the axes of an array or number; None stands for a size its library does not know."""
    return () if is_number(value) else tuple(value.shape)


@functools.cache
def is_array_class(kind: type) -> bool:
    """Returns whether instances of `kind` are arrays of a library that is loaded."""
    if dataclasses.is_dataclass(kind):
        return False
    for module, name in _ARRAY_CLASSES:
        owner = sys.modules.get(module)
        if owner is not None and issubclass(kind, getattr(owner, name, ())):
            return True
    return False


@functools.cache
def _dtype_names(dtype: Any) -> frozenset[str]:
    # PyTorch prints torch.float32, TensorFlow <dtype: 'float32'>.
    name = str(dtype).removeprefix("torch.").removeprefix("<dtype: '").removesuffix("'>")
    return frozenset({name})


def _sized(name: str, dtype: str) -> ArrayType:
    return ArrayType(name, frozenset({dtype}))


Array = ArrayType("Array", None)
Float = ArrayType("Float", frozenset(_FLOATS))
SInt = ArrayType("SInt", frozenset(_SINTS))
UInt = ArrayType("UInt", frozenset(_UINTS))
Int = ArrayType("Int", frozenset(_SINTS + _UINTS))
Bool = ArrayType("Bool", frozenset(_BOOL))
Complex = ArrayType("Complex", frozenset(_COMPLEX))
Num = ArrayType("Num", frozenset(_FLOATS + _SINTS + _UINTS + _COMPLEX))

SIZED = {
    name: _sized(name, dtype)
    for name, dtype in {
        "BFloat16": "bfloat16",
        "Float16": "float16",
        "Float32": "float32",
        "Float64": "float64",
        "Complex64": "complex64",
        "Complex128": "complex128",
        **{f"Float{dtype.removeprefix('float').replace('_', '')}": dtype for dtype in _FLOATS if "_" in dtype},
        **{f"Int{dtype.removeprefix('int')}": dtype for dtype in _SINTS[1:]},
        **{f"UInt{dtype.removeprefix('uint')}": dtype for dtype in _UINTS[1:]},
    }.items()
}
"""Types of one dtype each, by name: `Float32`, `BFloat16`, `Int4`, `Float8e4m3fn`, ..."""


def _scalar(name: str, dtypes: tuple[str, ...]) -> ArrayType:
    return ArrayType(name, frozenset(dtypes), "", takes_numbers=True)


ScalarFloat = _scalar("ScalarFloat", _FLOATS)
ScalarInt = _scalar("ScalarInt", _SINTS + _UINTS)
ScalarBool = _scalar("ScalarBool", _BOOL)
ScalarComplex = _scalar("ScalarComplex", _COMPLEX)
Scalar = _scalar("Scalar", _FLOATS + _SINTS + _UINTS + _COMPLEX + _BOOL)
