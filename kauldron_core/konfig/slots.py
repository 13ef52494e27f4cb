"""One place of a config: what is there, what its annotation says, and whether a value fits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kauldron_core.konfig import annotations
from kauldron_core.konfig.annotations import UNKNOWN, Misfit


@dataclass(frozen=True)
class Slot:
    """What an override may put at one place.

    Attributes:
      at: The place, for messages (`--cfg.optimizer.learning_rate`).
      current: What is there; None when nothing is.
      annotation: The annotation of the argument, or `UNKNOWN`.
      default: The default of the argument, or `UNKNOWN`.
    """

    at: str = ""
    current: Any = None
    annotation: Any = UNKNOWN
    default: Any = UNKNOWN

    @property
    def takes_raw_text(self) -> bool:
        """Whether the field holds a text, or its annotation says that it is one."""
        return isinstance(self.current, str) or (self.current is None and annotations.is_text(self.annotation))

    @property
    def takes_none(self) -> bool:
        """Whether None is among what the field was made for."""
        return self.default is None or (self.annotation is not UNKNOWN and annotations.accepts_none(self.annotation))

    @property
    def may_hold_text(self) -> bool:
        """Whether a text that is no literal may be meant as text."""
        if self.annotation is not UNKNOWN and self.annotation is not Any:
            return annotations.has_text(self.annotation)
        return self.current is None or isinstance(self.current, str)

    @property
    def expects(self) -> str:
        """What the field takes, for messages."""
        if self.annotation is not UNKNOWN and self.annotation is not Any:
            return annotations.described(self.annotation)
        return "any value" if self.current is None else _kind(self.current)

    def fit(self, value: Any) -> Any:
        """Returns `value` as the field takes it: what is there decides, or the annotation where it is known.

        Raises:
          Misfit: When it does not fit; the text says what would.
        """
        if value is None and self.default is None:
            return None
        if self.annotation is not UNKNOWN and (self.current is None or self._current_fits_annotation()):
            fitted = annotations.fit(value, self.annotation)
            return self._like_current(fitted)
        return _fit_current(value, self.current)

    def _current_fits_annotation(self) -> bool:
        try:
            annotations.fit(self.current, self.annotation)
        except Misfit:
            return False
        return unbound(self.annotation) is not UNKNOWN

    def _like_current(self, value: Any) -> Any:
        """Returns `value` in the type of what is there, where the annotation leaves both open (`int | float`)."""
        if type(value) is int and type(self.current) is float:
            return annotations.to_float(value)
        if isinstance(value, (list, tuple)) and isinstance(self.current, (list, tuple)):
            return type(self.current)(value)
        return value


def unbound(annotation: Any) -> Any:
    """Returns the annotation, `UNKNOWN` where it accepts everything."""
    annotation = annotations.unwrapped(annotation)
    return UNKNOWN if annotation is Any or annotation is object else annotation


def _fit_current(value: Any, current: Any) -> Any:
    """Returns `value` in the type of `current`, by the rules of a type-safe config."""
    if current is None or value is None:
        return value
    if annotations.is_node(current):
        if annotations.is_node(value) or ("__const__" in current and isinstance(value, str)):
            return value
        raise Misfit(f"a call like {_kind(current)}")
    if isinstance(current, Mapping):
        return _expect(value, isinstance(value, Mapping) and not annotations.is_node(value), "dict")
    if isinstance(current, (list, tuple)):
        _expect(value, isinstance(value, (list, tuple)), type(current).__name__)
        return type(current)(value)
    if type(current) is float and type(value) is int:
        return annotations.to_float(value)
    return _expect(value, type(value) is type(current), _kind(current))


def _expect(value: Any, condition: bool, expected: str) -> Any:
    if not condition:
        raise Misfit(expected)
    return value


def _kind(value: Any) -> str:
    if annotations.is_node(value):
        return str(value.get("__qualname__") or value.get("__const__"))
    return "dict" if isinstance(value, Mapping) else type(value).__name__


def is_same_number(first: Any, second: Any) -> bool:
    """Returns whether two values are the same number of the same type; NaN equals itself here."""
    if isinstance(first, float) and isinstance(second, float) and math.isnan(first):
        return math.isnan(second)
    return type(first) is type(second) and first == second
