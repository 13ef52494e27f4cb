"""Reads the marked dicts of a file back into the values they stand for."""

from __future__ import annotations

import ast
import base64
import enum
import pathlib
import re
from typing import Any, Final, Protocol, cast

from kauldron_core import paths
from kauldron_core.errors import ConfigError, unknown_name
from kauldron_core.konfig.calls.targets import find_target
from kauldron_core.konfig.tree import markers, operations
from kauldron_core.konfig.tree.references import OpRef, PathRef, Placeholder
from kauldron_core.konfig.trusting.rules import UntrustedError

MARKED: Final = frozenset(
    {
        markers.REF,
        markers.OP,
        markers.PLACEHOLDER,
        markers.TUPLE,
        markers.SET,
        markers.FROZENSET,
        markers.SLICE,
        markers.ELLIPSIS,
        markers.BYTES,
        markers.COMPLEX,
        markers.ENUM,
        markers.PATH,
        markers.DTYPE,
        markers.SCALAR,
        markers.FLOAT,
        markers.UNSAVED,
    }
)
MAX_MARKED: Final = 5
"""Marked dicts have no more keys than this, so that larger ones need no look."""
_BESIDE: Final = {
    markers.OP: ("args", "kwargs"),
    markers.PATH: ("class",),
    markers.PLACEHOLDER: ("required", "value", markers.ID),
}
"""What may stand beside a marker."""
_DTYPE: Final = re.compile(r"[<>|=]?\w+(\[\w+\])?", re.ASCII)


_PATH_CLASSES: Final = (
    "etils.epath:Path",
    "pathlib:Path",
    "pathlib:PurePath",
    "pathlib:PurePosixPath",
    "pathlib:PureWindowsPath",
)


class Reader(Protocol):
    """Reads what a marked dict holds, and knows the config around it."""

    @property
    def root(self) -> Any:
        """The outermost node: what references of a file start from."""
        ...

    @property
    def shared(self) -> dict[Any, Any]:
        """What files share, by the number that they gave it."""
        ...

    @property
    def is_trusted(self) -> bool:
        """Whether the nodes were written by code that runs here."""
        ...

    def place(self) -> str:
        """Returns where the marked dict stands, for messages."""
        ...

    def convert(self, value: Any) -> Any:
        """Returns the config form of a value."""
        ...

    def below(self, key: Any, value: Any) -> Any:
        """Returns the config form of a value that lies at `key` of the marked dict."""
        ...


class Marked:
    """Reads one marked dict.

    Args:
      reader: Reads what the dict holds.
      source: The dict.
    """

    def __init__(self, reader: Reader, source: dict[str, Any]) -> None:
        self._reader = reader
        self._source = source

    def read(self) -> Any:
        """Returns the value that the dict stands for."""
        marker = next(key for key in self._source if key in MARKED)
        for key in self._source:
            if key != marker and key not in (beside := _BESIDE.get(marker, ())):
                raise ConfigError(unknown_name(f"key beside {marker}", str(key), beside, at=self._reader.place()))
        try:
            return getattr(self, f"_read{marker.rstrip('_')}")(self._source[marker])
        except (TypeError, ValueError, AttributeError, OverflowError, LookupError) as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"{self._reader.place()}: not a valid {marker}: {error}") from None

    def _convert(self, value: Any, key: Any = 0) -> Any:
        return self._reader.below(key, value)

    def _read__tuple(self, value: list[Any]) -> tuple[Any, ...]:
        return tuple(self._convert(item, index) for index, item in enumerate(_list(value)))

    def _read__set(self, value: list[Any]) -> set[Any]:
        return {self._convert(item, index) for index, item in enumerate(_list(value))}

    def _read__frozenset(self, value: list[Any]) -> frozenset[Any]:
        return frozenset(self._convert(item, index) for index, item in enumerate(_list(value)))

    def _read__slice(self, value: list[Any]) -> slice:
        return slice(*(self._convert(item, index) for index, item in enumerate(_list(value))))

    def _read__ellipsis(self, value: Any) -> Any:
        return ...

    def _read__bytes(self, value: str) -> bytes:
        return base64.b64decode(value, validate=True)

    def _read__complex(self, value: list[float]) -> complex:
        parts: list[Any] = self._convert(_list(value))
        return complex(*parts)

    def _read__enum(self, value: str) -> Any:
        try:
            return enum_member(value, trusted=self._reader.is_trusted)
        except UntrustedError:
            return self._reader.convert({markers.CONST: value})  # Refused when it is resolved, not when it is read.

    def _read__path(self, value: str) -> pathlib.PurePath:
        name = self._source.get("class", "pathlib:Path")
        if name not in _PATH_CLASSES:
            raise ConfigError(unknown_name("class of paths", str(name), _PATH_CLASSES, at=self._reader.place()))
        return find_target(name, trusted=True)(value)

    def _read__dtype(self, value: Any) -> Any:
        return _numpy_dtype(value)

    def _read__scalar(self, value: list[Any]) -> Any:
        dtype, number = self._convert(_list(value))
        if isinstance(number, list):
            number = complex(*cast("list[float]", number))
        kind = _numpy_dtype(dtype)
        if kind.kind in "OSU" or kind.name.startswith("void") or not isinstance(number, (bool, int, float, complex)):
            raise TypeError(f"{dtype} {number!r}")
        if kind.kind in "mM" and isinstance(number, int):
            import numpy as np

            return np.int64(number).astype(kind)
        return kind.type(number)

    def _read__float(self, value: str) -> float:
        if value not in ("NaN", "Infinity", "-Infinity"):
            raise TypeError(f"{value!r} is none of NaN, Infinity, -Infinity")
        return float(value)

    def _read__unsaved(self, value: Any) -> Any:
        raise ConfigError(
            f"{self._reader.place()}: the file says {value!r}: it is a best-effort copy and cannot be read"
        )

    def _read__placeholder(self, value: str | None) -> Placeholder:
        shared_id = self._source.get(markers.ID)
        if value is None:
            known = self._reader.shared.get(shared_id)
            if not isinstance(known, Placeholder):
                raise ConfigError(f"{self._reader.place()}: no placeholder before it has the __id__ {shared_id!r}")
            return known
        kind = find_target(value, trusted=self._reader.is_trusted)
        if not isinstance(kind, type):
            raise ConfigError(f"{self._reader.place()}: {value} is not a type")
        made = Placeholder(kind, required=self._source.get("required") is True)
        made.value = self._convert(self._source.get("value"), "value")
        if shared_id is not None:
            self._reader.shared[shared_id] = made
        return made

    def _read__ref(self, value: Any) -> PathRef:
        if not isinstance(value, str):
            raise ConfigError(f"{self._reader.place()}: a reference is the text of a path")
        return PathRef(self._reader.root, paths.parse(value), trusted=self._reader.is_trusted)

    def _read__op(self, value: str) -> OpRef:
        if value not in operations.ALL:
            raise ConfigError(unknown_name("operation", str(value), sorted(operations.ALL), at=self._reader.place()))
        args = tuple(self._convert(arg, index) for index, arg in enumerate(_list(self._source.get("args", []))))
        given: dict[str, Any] = self._source.get("kwargs", {})
        kwargs = {name: self._convert(arg, name) for name, arg in given.items()}
        operations.check_operands(value, args, kwargs)
        return OpRef(value, args, kwargs, trusted=self._reader.is_trusted)


def enum_member(text: str, *, trusted: bool) -> enum.Enum:
    """Returns the member that `module:Class.NAME` names."""
    member = find_target(text, trusted=trusted)
    if not isinstance(member, enum.Enum):
        raise ConfigError(f"{text} is not a member of an enum")
    return member


def key(text: str, *, trusted: bool) -> Any:
    """Returns the key that a file writes as `__raw__=...`."""
    literal = text.removeprefix(markers.RAW)
    if literal.startswith("enum "):
        return enum_member(literal.removeprefix("enum "), trusted=trusted)
    try:
        value = ast.literal_eval(literal)
        hash(value)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise ConfigError(f"{text[:80]!r} is not the text of a key") from None
    return value


def is_number_of_numpy(value: Any) -> bool:
    """Returns whether `value` is a NumPy scalar or dtype (without importing NumPy)."""
    names = {f"{kind.__module__}.{kind.__name__}" for kind in type(value).__mro__}
    return bool(names & {"numpy.generic", "numpy.dtype"})


def dtype_text(dtype: Any) -> str | None:
    """Returns the text that a file keeps of a NumPy dtype, None where there is none that gives it back."""
    for text in (dtype.name, dtype.str):
        try:
            # Equal dtypes may differ in what they carry along.
            if _numpy_dtype(text) == dtype and dtype.metadata is None:
                return text
        except (ConfigError, TypeError, ValueError, AttributeError):
            continue
    return None


def refuse_unknown_marker(name: str, *, at: str) -> None:
    """Refuses a key of the form `__x__` that means nothing here: what it meant where it was written would be lost."""
    if name.startswith("__") and name.endswith("__") and len(name) > 4 and name not in _KEYS:
        raise ConfigError(unknown_name("marker", name, sorted({*_KEYS, *MARKED}), at=at))


_KEYS: Final = (markers.QUALNAME, markers.CONST, markers.ID)


def _numpy_dtype(name: Any) -> Any:
    """Returns the dtype of that name; NumPy is only imported for configs that hold one."""
    import numpy as np

    if not isinstance(name, str) or not _DTYPE.fullmatch(name):
        raise ConfigError(f"{name!r} is not the name of a dtype")
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("a list is expected")
    return value  # pyright: ignore[reportUnknownVariableType]
