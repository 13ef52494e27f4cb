"""One place of a config: what is there, what its annotation says, and whether a value fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from kauldron_core.konfig.calls import hints
from kauldron_core.konfig.calls.hints import UNKNOWN, Misfit
from kauldron_core.konfig.tree.markers import CONST


@dataclass(frozen=True)
class Slot:
    """What an override may put at one place.

    Attributes:
      at: The place, for messages (`--cfg.optimizer.learning_rate`).
      current: What is there; None when nothing is.
      annotation: The annotation of the argument, or `UNKNOWN`.
      default: The default of the argument, or `UNKNOWN`.
      is_entry: Whether it is an entry of a plain dict, which None switches off.
    """

    at: str = ""
    current: Any = None
    annotation: Any = UNKNOWN
    default: Any = UNKNOWN
    is_entry: bool = False

    @property
    def is_annotated(self) -> bool:
        """Whether the annotation says anything."""
        return not hints.is_anything(self.annotation)

    @property
    def takes_raw_text(self) -> bool:
        """Whether the field holds a text, or its annotation says that it is one."""
        if self.current is not None:
            return isinstance(self.current, str)
        if self.is_annotated:
            return hints.is_text(self.annotation)
        return isinstance(self.default, str)

    @property
    def takes_none(self) -> bool:
        """Whether the argument was made to be None at times."""
        return self.default is None or (self.is_annotated and hints.accepts_none(self.annotation))

    @property
    def may_hold_text(self) -> bool:
        """Whether a text that is no literal may be meant as text: the field is a text, None, or untyped."""
        if self.is_annotated:
            return hints.has_text(self.annotation)
        return self.current is None or isinstance(self.current, str)

    @property
    def is_deleted_by_none(self) -> bool:
        """Whether None means that the entry goes away, because the dict takes no None."""
        return self.is_entry and self.is_annotated and not hints.accepts_none(self.annotation)

    @property
    def expects(self) -> str:
        """What the field takes, for messages."""
        if self.is_annotated:
            return hints.described(self.annotation)
        return "any value" if self.current is None else _kind(self.current)

    def fit(self, value: Any) -> Any:
        """Returns `value` as the field takes it: the annotation decides where it is known, else what is there.

        Raises:
          Misfit: When it does not fit; the text says what would.
        """
        if value is None and (self.is_entry or self.takes_none):
            return None
        if self.is_annotated and self._is_annotation_kept():
            return self._like_current(hints.fit(value, self.annotation))
        return _fit_current(value, self.current)

    def _is_annotation_kept(self) -> bool:
        """Whether what is there fits the annotation; where it does not, the annotation is not to be relied on."""
        if self.current is None:
            return True
        try:
            hints.fit(self.current, self.annotation)
        except Misfit:
            return False
        return True

    def _like_current(self, value: Any) -> Any:
        """Returns `value` in the type of what is there, where the annotation leaves both open (`int | float`)."""
        if type(value) is int and type(self.current) is float:
            return hints.to_float(value)
        if isinstance(value, (list, tuple)) and isinstance(self.current, (list, tuple)):
            return type(cast("list[Any]", self.current))(cast("list[Any]", value))
        return cast(Any, value)


def _fit_current(value: Any, current: Any) -> Any:
    """Returns `value` in the type of `current`, by the rules of a type-safe config."""
    if current is None:
        return value
    if hints.is_node(current):
        is_constant = CONST in current and isinstance(value, str)
        return _expect(value, hints.is_node(value) or is_constant, f"a call like {_kind(current)}")
    if isinstance(current, Mapping):
        return _expect(value, isinstance(value, Mapping) and not hints.is_node(value), "dict")
    if isinstance(current, (list, tuple)):
        kind = type(cast("list[Any]", current))
        return kind(_expect(value, isinstance(value, (list, tuple)), kind.__name__))
    if type(current) is float and type(value) is int:
        return hints.to_float(value)
    return _expect(value, type(value) is type(current), _kind(current))


def _expect(value: Any, condition: bool, expected: str) -> Any:
    if not condition:
        raise Misfit(expected)
    return value


def _kind(value: Any) -> str:
    """Returns the type of what is there, for messages."""
    if hints.is_node(value):
        return hints.kind_of(value)
    return "dict" if isinstance(value, Mapping) else type(value).__name__
