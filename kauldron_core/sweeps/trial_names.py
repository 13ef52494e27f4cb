"""Names and identities of trials."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from kauldron_core import paths
from kauldron_core.konfig.calls import hints
from kauldron_core.sweeps.axes import Point

_UNSAFE = re.compile(r"[^A-Za-z0-9._+=-]+")
_MAX_NAME = 80
_MAX_VALUE = 20
_VAGUE = frozenset({"args", "kwargs", "n", "name", "scale", "value", "values", "weight", "x"})


class Namer:
    """Makes the names and identities of one sweep's trials.

    Args:
      swept: Every path that a trial may set.
      count: Number of trials.
    """

    def __init__(self, swept: Iterable[str], count: int) -> None:
        self._labels = _labels(list(swept))
        self._width = max(4, len(str(count - 1)))
        self._texts: dict[int, tuple[Any, str, str]] = {}

    def name(self, index: int, point: Point) -> str:
        """Returns `0007-lr=0.01`: the number makes it unique, the rest is for people and cut where it gets long."""
        name = f"{index:0{self._width}d}"
        for path, value in point:
            piece = f"-{self._labels[path]}={self._text(value)[0]}"
            if len(name) + len(piece) > _MAX_NAME:
                break
            name += piece
        return name.rstrip(".")

    def identity(self, point: Point) -> str:
        """Returns the text of which the fingerprint is made: paths and values, in the order of the paths."""
        return "\n".join(sorted(f"{path}={self._text(value)[1]}" for path, value in point))

    def _text(self, value: Any) -> tuple[str, str]:
        """Returns name and identity of a value; those of an axis come again and again, so they are kept."""
        known = self._texts.get(id(value))
        if known is None or known[0] is not value:
            is_number = isinstance(value, (bool, int, float))
            known = (value, short(value)[:_MAX_VALUE] if is_number else safe(short(value)), encoded(value))
            self._texts[id(value)] = known
        return known[1], known[2]


def canonical(point: Point) -> str:
    """Returns the identity of a point on its own."""
    return "\n".join(sorted(f"{path}={encoded(value)}" for path, value in point))


def short(value: Any) -> str:
    """Returns a value in a few characters, not necessarily all of it."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if hints.is_node(value):
        name = str(value["__qualname__"] if "__qualname__" in value else value["__const__"])
        return re.split(r"[.:]", name)[-1]
    if isinstance(value, (list, tuple)):
        return "-".join(short(item) for item in cast("list[Any]", value)) or "empty"
    if isinstance(value, Mapping):
        entries = cast("Mapping[Any, Any]", value)
        return "-".join(f"{key}-{short(entries[key])}" for key in entries) or "empty"
    return str(value)


def safe(text: str) -> str:
    """Returns `text` with everything replaced that some file system, shell or URL does not take."""
    return _UNSAFE.sub("-", text)[:_MAX_VALUE].strip("-.") or "-"


def encoded(value: Any) -> str:
    """Returns the whole value as text, equal for equal values of the same type and in every process."""
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, Mapping):
        entries = cast("Mapping[Any, Any]", value)
        items = sorted((repr(key), encoded(entries[key])) for key in entries)
        return "{" + ",".join(f"{key}:{item}" for key, item in items) + "}"
    if isinstance(value, (list, tuple, set, frozenset)):
        kind = type(cast("list[Any]", value)).__name__
        items = [encoded(item) for item in cast("list[Any]", value)]
        return f"{kind}[" + ",".join(sorted(items) if "set" in kind else items) + "]"
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}:{value.__qualname__}"
    return f"{type(value).__module__}:{type(value).__qualname__} {value}"


def _says_something(part: str) -> bool:
    """Whether the last part of a path tells on its own what is meant: `lr.value` needs the part before it."""
    return part not in _VAGUE and not part.isdecimal()


def _labels(swept: list[str]) -> dict[str, str]:
    """Returns the shortest end of each path that says something and that no other swept path has."""
    parts = {path: [safe(str(part)) for part in paths.parse(path)] for path in swept}
    labels: dict[str, str] = {}
    for path, own in parts.items():
        others = [other for name, other in parts.items() if name != path]
        least = next((n for n in range(1, len(own) + 1) if _says_something(own[-n])), 1)
        count = next((n for n in range(least, len(own)) if all(other[-n:] != own[-n:] for other in others)), len(own))
        labels[path] = ".".join(own[-count:])[-2 * _MAX_VALUE :]
    return labels
