"""Types of arrays: a set of dtypes, and a shape once subscripted (`Float["*b n c"]`)."""

from __future__ import annotations

import dataclasses
import functools
import sys
import typing
from collections.abc import Iterator
from typing import Any

from kauldron_core.ktyping import dims, matching, scope
from kauldron_core.ktyping.matching import Bindings

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
    ("jax", "jax", "Array"),
    ("jax", "jax.core", "Tracer"),
    ("numpy", "numpy", "ndarray"),
    ("numpy", "numpy", "generic"),
    ("tensorflow", "tensorflow", "Tensor"),
    ("torch", "torch", "Tensor"),
)
"""Libraries, and the module and name of each class of arrays that they have."""

OWN = frozenset({"jax", "numpy"})
TENSORFLOW = frozenset({"tensorflow"})
ANY = OWN | TENSORFLOW | {"torch"}

# What a Python number counts as: Python's numbers have no size.
_PYTHON_DTYPES: dict[type, frozenset[str]] = {
    bool: frozenset(_BOOL),
    int: frozenset(_SINTS + _UINTS),
    float: frozenset(_FLOATS),
    complex: frozenset(_COMPLEX),
}


@dataclasses.dataclass(frozen=True)
class ArrayType:
    """A type of arrays, by dtype, shape and library; no library is imported for it.

    `Float` accepts every shape, `Float["b 3"]` one with two axes. `Float | Int` is again such a type and can be
    subscripted. `isinstance(x, Float["b 3"])` asks with the sizes that the calling function knows, and binds none.

    Attributes:
      name: How it prints.
      dtypes: Names of the dtypes it accepts; None accepts all.
      spec: The shape in the mini-language of `dims`, None for any.
      takes_numbers: Whether a Python number is fine as well (the `Scalar` types).
      libraries: Whose arrays it accepts: NumPy's and JAX's (tracers too), TensorFlow's (`Tf...`), or any (`X...`).
    """

    name: str
    dtypes: frozenset[str] | None
    spec: str | None = None
    takes_numbers: bool = False
    libraries: frozenset[str] = OWN

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
            return ArrayType(f"({self.name}|{other.name})", both, libraries=self.libraries | other.libraries)
        return typing.Union[self, other]  # noqa: UP007  `|` would come back here.

    def __ror__(self, other: Any) -> Any:
        return typing.Union[other, self]  # noqa: UP007

    def __call__(self, *_: Any, **__: Any) -> typing.NoReturn:
        raise TypeError(f"{self} is a type of arrays for annotations; it makes none")

    def __instancecheck__(self, value: Any) -> bool:
        return scope.fits(self.extend, value, sys._getframe(1).f_code)

    def __repr__(self) -> str:
        return self.name if self.spec is None else f"{self.name}[{self.spec!r}]"

    __str__ = __repr__

    @functools.cached_property
    def dims(self) -> tuple[dims.Dim, ...] | None:
        """The parsed shape."""
        return None if self.spec is None else dims.parse(self.spec)

    def extend(self, value: Any, bindings: Bindings, label: str) -> Iterator[Bindings]:
        """Yields every assignment that extends `bindings` under which `value` fits; none when it does not fit."""
        dtypes = describe_dtypes(value)
        if dtypes is None or not self.accepts_dtype(dtypes) or not self.accepts_kind(value):
            return
        if self.dims is None:
            yield bindings
        else:
            yield from matching.matches(self.dims, shape_of(value), bindings, label)

    def accepts_kind(self, value: Any) -> bool:
        """Returns whether an array of this library, or a number, fits, its dtype and shape aside."""
        return self.takes_numbers if is_number(value) else library_of(type(value)) in self.libraries

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


def is_array_class(kind: type) -> bool:
    """Returns whether instances of `kind` are arrays of a library that is loaded."""
    return library_of(kind) is not None


@functools.cache
def library_of(kind: type) -> str | None:
    """Returns whose arrays the instances of `kind` are, None if they are no arrays."""
    if dataclasses.is_dataclass(kind):
        return None
    for library, module, name in _ARRAY_CLASSES:
        owner = sys.modules.get(module)
        if owner is not None and issubclass(kind, getattr(owner, name, ())):
            return library
    return None


def is_array_type(origin_type: Any) -> bool:
    """Returns whether an annotation is a type of arrays (`Float`, `Int["b"]`, ...)."""
    return isinstance(origin_type, ArrayType)


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
IntOrBool = ArrayType("IntOrBool", frozenset(_SINTS + _UINTS + _BOOL))
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

OF_LIBRARIES = {
    f"{prefix}{name}": dataclasses.replace(kind, name=f"{prefix}{name}", libraries=libraries)
    for prefix, libraries in {"Tf": TENSORFLOW, "X": ANY}.items()
    for name, kind in {
        **{kind.name: kind for kind in (Array, Float, SInt, UInt, Int, Bool, IntOrBool, Complex, Num)},
        **SIZED,
    }.items()
}
"""The same for TensorFlow's arrays (`TfFloat`, `TfInt32`, ...) and for those of any library (`XFloat`, ...)."""


def _scalar(name: str, dtypes: tuple[str, ...]) -> ArrayType:
    return ArrayType(name, frozenset(dtypes), "", takes_numbers=True)


ScalarFloat = _scalar("ScalarFloat", _FLOATS)
ScalarInt = _scalar("ScalarInt", _SINTS + _UINTS)
ScalarBool = _scalar("ScalarBool", _BOOL)
ScalarComplex = _scalar("ScalarComplex", _COMPLEX)
Scalar = _scalar("Scalar", _FLOATS + _SINTS + _UINTS + _COMPLEX + _BOOL)
