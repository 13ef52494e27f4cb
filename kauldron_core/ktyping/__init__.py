"""Shapes and dtypes in annotations, checked when a function is called: `Float["*b n c"]` and `@typechecked`."""

from typing import TYPE_CHECKING, Any, Protocol

from kauldron_core.ktyping import array_types as _array_types
from kauldron_core.ktyping.decorator import typechecked
from kauldron_core.ktyping.messages import TypeCheckError
from kauldron_core.ktyping.queries import NoActiveScopeError, check_type, dim, isinstance, shape

if TYPE_CHECKING:
    # A type checker takes `Float["b n"]` for a subscripted class. At run time these are `ArrayType` objects.
    # Any with an empty protocol: whatever JAX and NumPy return fits it, and it fits whatever they take.
    import jax

    class Array(Any, Protocol):
        """Arrays; a type checker does not tell dtypes apart."""

        def __class_getitem__(cls, spec: str) -> type[Any]: ...

    Float = Int = SInt = UInt = Bool = Complex = Num = Array
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
