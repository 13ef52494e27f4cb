"""Targets for the tests of konfig: classes and functions that a config can name."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, NamedTuple

CALLS: list[str] = []
"""What was called, in order: the tests look whether anything ran too early."""


class Color(enum.Enum):
    RED = 1
    GREEN = "green"


class Size(enum.IntEnum):
    SMALL = 1


@dataclasses.dataclass(frozen=True)
class Layer:
    size: int
    scale: float = 1.0
    inner: Any = None

    @classmethod
    def doubled(cls, size: int) -> Layer:
        return cls(2 * size)

    class Nested:
        def __init__(self, x: int = 0) -> None:
            self.x = x


class Point(NamedTuple):
    x: int
    y: int = 0


class Anything:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args, self.kwargs = args, kwargs


class Hooked:
    """A target with every hook."""

    __konfig_resolve_exclude_fields__ = ("raw",)

    def __init__(self, raw: Any = None, other: Any = None) -> None:
        self.raw, self.other, self.cfg = raw, other, None

    def __post_konfig_resolve__(self, cfg: Any) -> None:
        self.cfg = cfg

    def __konfig_export__(self) -> dict[str, Any]:
        return {"__qualname__": f"{__name__}:Hooked", "other": self.other}


class Described:
    """An object that knows the config it came from."""

    def __as_konfig__(self) -> dict[str, Any]:
        return {"__qualname__": f"{__name__}:Layer", "size": 7}


def record(name: str, **_: Any) -> str:
    CALLS.append(name)
    return name


def fail(*_: Any) -> None:
    raise ZeroDivisionError("this target always fails")


def double(x: Any) -> Any:
    return x + x


def load() -> list[int]:
    return [1, 2, 3]
