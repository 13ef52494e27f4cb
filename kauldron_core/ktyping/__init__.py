"""Shapes and dtypes in annotations, checked when a function is called: `Float["*b n c"]` and `@typechecked`."""

from typing import TYPE_CHECKING, Any

from kauldron_core.ktyping import array_types as _array_types
from kauldron_core.ktyping.decorator import typechecked
from kauldron_core.ktyping.messages import TypeCheckError
from kauldron_core.ktyping.queries import NoActiveScopeError, check_type, dim, isinstance, shape

if TYPE_CHECKING:
    # A type checker takes `Float["b n"]` for a subscripted class. At run time these are `ArrayType` objects.
    import jax

    class Array(jax.Array):
        """Arrays of any dtype."""

        def __class_getitem__(cls, spec: str) -> type[Any]: ...

    class Float(Array):
        """Arrays of floats."""

    class Int(Array):
        """Arrays of integers, signed or not."""

    class SInt(Array):
        """Arrays of signed integers."""

    class UInt(Array):
        """Arrays of unsigned integers."""

    class Bool(Array):
        """Arrays of booleans."""

    class Complex(Array):
        """Arrays of complex numbers."""

    class Num(Array):
        """Arrays of numbers."""

    BFloat16 = Float16 = Float32 = Float64 = Float4e2m1fn = Float6e2m3fn = Float6e3m2fn = Float
    Float8e3m4 = Float8e4m3 = Float8e4m3b11fnuz = Float8e4m3fn = Float8e4m3fnuz = Float8e5m2 = Float8e5m2fnuz = Float
    Float8e8m0fnu = Float
    Int2 = Int4 = Int8 = Int16 = Int32 = Int64 = SInt
    UInt2 = UInt4 = UInt8 = UInt16 = UInt32 = UInt64 = UInt
    Complex64 = Complex128 = Complex
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

    globals().update(_array_types.SIZED)

__all__ = [
    "Array", "ArraySpec", "Bool", "Complex", "DType", "ElementSpec", "Float", "Int", "NoActiveScopeError", "Num",
    "PRNGKey", "PRNGKeyArray", "PRNGKeyLike", "PyTree", "SInt", "Scalar", "ScalarBool", "ScalarComplex", "ScalarFloat",
    "ScalarInt", "Shape", "TypeCheckError", "UInt", "check_type", "dim", "isinstance", "shape", "typechecked",
    "BFloat16", "Float16", "Float32", "Float64", "Float4e2m1fn", "Float6e2m3fn", "Float6e3m2fn", "Float8e3m4",
    "Float8e4m3", "Float8e4m3b11fnuz", "Float8e4m3fn", "Float8e4m3fnuz", "Float8e5m2", "Float8e5m2fnuz",
    "Float8e8m0fnu", "Int2", "Int4", "Int8", "Int16", "Int32", "Int64", "UInt2", "UInt4", "UInt8", "UInt16", "UInt32",
    "UInt64", "Complex64", "Complex128",
]  # fmt: skip
