"""Shapes and dtypes in annotations, checked when a function is called: `Float["*b n c"]` and `@typechecked`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kauldron_core.ktyping import array_types as _array_types
from kauldron_core.ktyping.array_types import is_array_type
from kauldron_core.ktyping.config import CONFIG, Config, add_config_override, remove_config_override
from kauldron_core.ktyping.decorator import typechecked
from kauldron_core.ktyping.errors import AmbiguousDimensionError, KTypeCheckError, NoActiveScopeError, TypeCheckError
from kauldron_core.ktyping.queries import check_type, dim, get_current_scope, isinstance, shape
from kauldron_core.ktyping.scope import ShapeScope

Axes = int | Sequence[int]
"""One axis or several, as functions of NumPy and JAX take them."""

if TYPE_CHECKING:
    # A type checker takes `Float["b n"]` for a subscripted class. At run time these are `ArrayType` objects.
    # Any with an empty protocol: whatever JAX and NumPy return fits it, and it fits whatever they take.
    import jax

    class Array(Any, Protocol):
        """Arrays; a type checker does not tell dtypes apart."""

        def __class_getitem__(cls, spec: str) -> type[Any]: ...

    Float = Int = SInt = UInt = Bool = IntOrBool = Complex = Num = Array
    TfArray = TfFloat = TfInt = TfSInt = TfUInt = TfBool = TfIntOrBool = TfComplex = TfNum = Array
    TfFloat16 = TfFloat32 = TfFloat64 = TfInt8 = TfInt16 = TfInt32 = TfInt64 = Array
    TfUInt8 = TfUInt16 = TfUInt32 = TfUInt64 = TfComplex64 = TfComplex128 = Array
    XArray = XFloat = XInt = XSInt = XUInt = XBool = XIntOrBool = XComplex = XNum = Array
    XFloat16 = XFloat32 = XFloat64 = XInt8 = XInt16 = XInt32 = XInt64 = Array
    XUInt8 = XUInt16 = XUInt32 = XUInt64 = XComplex64 = XComplex128 = Array
    BFloat16 = Float16 = Float32 = Float64 = Float4e2m1fn = Float6e2m3fn = Float6e3m2fn = Array
    Float8e3m4 = Float8e4m3 = Float8e4m3b11fnuz = Float8e4m3fn = Float8e4m3fnuz = Float8e5m2 = Float8e5m2fnuz = Array
    Float8e8m0fnu = Int2 = Int4 = Int8 = Int16 = Int32 = Int64 = Array
    UInt2 = UInt4 = UInt8 = UInt16 = UInt32 = UInt64 = Complex64 = Complex128 = Array
    Scalar = ScalarComplex = complex | jax.Array
    ScalarFloat = float | jax.Array
    ScalarInt = int | jax.Array
    ScalarBool = bool | jax.Array
    PRNGKey = PRNGKeyArray = PRNGKeyLike = DType = ArraySpec = ElementSpec = Any

    class PyTree:
        """Trees of leaves."""

        def __class_getitem__(cls, leaf: Any) -> Any: ...

    class Shape:
        """Tuples of sizes."""

        def __class_getitem__(cls, spec: str) -> type[tuple[int, ...]]: ...
else:
    from kauldron_core.ktyping.array_types import (
        Array,
        Bool,
        Complex,
        Float,
        Int,
        IntOrBool,
        Num,
        Scalar,
        ScalarBool,
        ScalarComplex,
        ScalarFloat,
        ScalarInt,
        SInt,
        UInt,
    )
    from kauldron_core.ktyping.special_types import (
        ArraySpec,
        DType,
        ElementSpec,
        PRNGKey,
        PRNGKeyArray,
        PRNGKeyLike,
        PyTree,
        Shape,
    )

    globals().update(_array_types.SIZED | _array_types.OF_LIBRARIES)

__all__ = [
    "AmbiguousDimensionError", "Array", "ArraySpec", "Axes", "Bool", "CONFIG", "Complex", "Config", "DType",
    "ElementSpec", "Float", "Int", "IntOrBool", "KTypeCheckError", "NoActiveScopeError", "Num", "PRNGKey",
    "PRNGKeyArray", "PRNGKeyLike", "PyTree", "SInt", "Scalar", "ScalarBool", "ScalarComplex", "ScalarFloat",
    "ScalarInt", "Shape", "ShapeScope", "TypeCheckError", "UInt", "add_config_override", "check_type", "dim",
    "get_current_scope", "is_array_type", "isinstance", "remove_config_override", "shape", "typechecked",
    "BFloat16", "Float16", "Float32", "Float64", "Float4e2m1fn", "Float6e2m3fn", "Float6e3m2fn", "Float8e3m4",
    "Float8e4m3", "Float8e4m3b11fnuz", "Float8e4m3fn", "Float8e4m3fnuz", "Float8e5m2", "Float8e5m2fnuz",
    "Float8e8m0fnu", "Int2", "Int4", "Int8", "Int16", "Int32", "Int64", "UInt2", "UInt4", "UInt8", "UInt16", "UInt32",
    "UInt64", "Complex64", "Complex128",
    "TfArray", "TfBool", "TfComplex", "TfComplex128", "TfComplex64", "TfFloat", "TfFloat16", "TfFloat32", "TfFloat64",
    "TfInt", "TfInt16", "TfInt32", "TfInt64", "TfInt8", "TfIntOrBool", "TfNum", "TfSInt", "TfUInt", "TfUInt16",
    "TfUInt32", "TfUInt64", "TfUInt8",
    "XArray", "XBool", "XComplex", "XComplex128", "XComplex64", "XFloat", "XFloat16", "XFloat32", "XFloat64", "XInt",
    "XInt16", "XInt32", "XInt64", "XInt8", "XIntOrBool", "XNum", "XSInt", "XUInt", "XUInt16", "XUInt32", "XUInt64",
    "XUInt8",
]  # fmt: skip
