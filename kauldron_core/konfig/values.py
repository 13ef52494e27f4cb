"""The value rule: what the text of an override means for the field that it is meant for. Nothing is ever `eval`-ed.

In this order: a text field takes the text as it is; `a.b(...)` is a call; a dotted name whose first part is an alias
exists or is an error; a Python literal is itself; anything else is text, where a text can be meant.
"""

from __future__ import annotations

import ast
import io
import math
import shlex
import tokenize
from typing import Any

from kauldron_core.errors import ConfigError
from kauldron_core.konfig import annotations
from kauldron_core.konfig.annotations import Misfit
from kauldron_core.konfig.calls import call_node, constant_node
from kauldron_core.konfig.names import Names
from kauldron_core.konfig.refusal import refusal, shown
from kauldron_core.konfig.slots import Slot
from kauldron_core.konfig.splitting import depth_of, inside

_MAX_CHARS = 1_000_000
_MAX_DEPTH = 50
_PREFIX = "py::"
_OTHER_SPELLINGS = {
    **dict.fromkeys(("true", "yes", "on"), "True"),
    **dict.fromkeys(("false", "no", "off"), "False"),
    **dict.fromkeys(("null", "none", "nil", "nothing", "undefined"), "None"),
}
_NON_FINITE = {"inf": math.inf, "nan": math.nan, "Infinity": math.inf, "NaN": math.nan}
_TYPOGRAPHIC = {"\u2212": "-", "\u2013": "-", "\u2014": "-", "\u201c": '"', "\u201d": '"', "\u2018": "'", "\u2019": "'"}


class _NotALiteral(Exception):
    """Text that is Python, but not a literal, a call or a known name."""


def read_value(text: str, slot: Slot, names: Names) -> Any:
    """Returns the value that `text` means at `slot`.

    Raises:
      ConfigError: When it means nothing there; the message says what would.
    """
    if slot.takes_raw_text and not text.startswith(_PREFIX):
        return _read_raw(text, slot, names)
    return _fitted(_read_python(text.strip(), slot, names), slot, text)


def unquoted(text: str) -> str:
    """Returns what one full string literal holds; any other text as it is."""
    stripped = text.strip()
    if stripped[-1:] not in ("'", '"') or len(stripped) > _MAX_CHARS:
        return text
    try:
        kinds = [token.type for token in tokenize.generate_tokens(io.StringIO(stripped).readline)]
        if kinds[:1] != [tokenize.STRING] or kinds.count(tokenize.STRING) != 1:
            return text
        value = ast.literal_eval(stripped)
    except (tokenize.TokenError, SyntaxError, ValueError):
        return text
    return value if isinstance(value, str) and len(kinds) <= 3 else text


def _read_raw(text: str, slot: Slot, names: Names) -> Any:
    """Returns the text for a text field; None and containers only where its annotation names them as well."""
    if text.strip() == "None" and slot.takes_none:
        return None
    is_container = any(inside(text, bracket) is not None for bracket in "[({")
    if is_container and not annotations.is_text(slot.annotation) and slot.annotation is not annotations.UNKNOWN:
        try:
            return slot.fit(_read_python(text.strip(), slot, names))
        except (Misfit, ConfigError):
            pass
    return _fitted(unquoted(text), slot, text)


def _read_python(text: str, slot: Slot, names: Names) -> Any:
    is_python = text.startswith(_PREFIX)
    text = text.removeprefix(_PREFIX)
    if not text:
        raise ConfigError(refusal(slot.at, f"a value is missing (expected {slot.expects})", write=_flag(slot, "VALUE")))
    if text in _OTHER_SPELLINGS or (text.lower() in _OTHER_SPELLINGS and text not in ("True", "False", "None")):
        raise ConfigError(_other_spelling(text, slot))
    node = _parsed(text, slot)
    if node is None:
        return _as_text(text, slot, is_python)
    try:
        return _Reader(slot, names, text).read(node)
    except _NotALiteral as error:
        return _as_text(text, slot, is_python, str(error))


def _parsed(text: str, slot: Slot) -> ast.expr | None:
    """Returns the syntax tree of `text`, or None when it is not Python."""
    if len(text) > _MAX_CHARS:
        raise ConfigError(refusal(slot.at, f"a value of {len(text)} characters is too long (at most {_MAX_CHARS})"))
    if depth_of(text) > _MAX_DEPTH:
        raise ConfigError(refusal(slot.at, f"brackets nest deeper than {_MAX_DEPTH}"))
    try:
        node = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    comment = _comment(text)
    if comment:
        kept = text[: text.rindex(comment)].strip()
        what = f"the comment {shown(comment)} is not part of a value"
        raise ConfigError(refusal(slot.at, what, write=_flag(slot, kept)))
    return node


def _comment(text: str) -> str:
    if "#" not in text:
        return ""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return ""
    return next((token.string for token in tokens if token.type == tokenize.COMMENT), "")


def _as_text(text: str, slot: Slot, is_python: bool, why: str = "") -> str:
    """Returns `text` itself, where it can be meant as text."""
    looks_broken = text[0] in "[({'\"" or any(sign in text for sign in _TYPOGRAPHIC if text[0] == sign)
    if is_python or looks_broken or not slot.may_hold_text:
        raise ConfigError(_no_value(text, slot, why))
    return text


def _no_value(text: str, slot: Slot, why: str) -> str:
    """Returns the message for text that is not a value of the field, with what was probably meant."""
    plain = "".join(_TYPOGRAPHIC.get(char, char) for char in text)
    if plain != text:
        return refusal(slot.at, f"{shown(text)} has typographic signs", write=_flag(slot, plain))
    if text.startswith("="):
        return refusal(slot.at, "one equals sign is enough", write=_flag(slot, text.lstrip("= ")))
    what = f"expected {slot.expects}, got the text {shown(text)}" + (f" ({why})" if why else "")
    if slot.may_hold_text:
        return refusal(
            slot.at, f"{shown(text)} is not a value" + (f" ({why})" if why else ""), write=_quoted(slot, text)
        )
    return refusal(slot.at, what)


def _other_spelling(text: str, slot: Slot) -> str:
    right = _OTHER_SPELLINGS[text.lower()]
    message = refusal(slot.at, f"{shown(text)} is written {right} here", write=_flag(slot, right))
    return f"{message} (or {_quoted(slot, text)} for the text)" if slot.may_hold_text else message


def _fitted(value: Any, slot: Slot, text: str) -> Any:
    try:
        return slot.fit(value)
    except Misfit as misfit:
        raise ConfigError(_misfit(value, slot, text, str(misfit))) from None


def _misfit(value: Any, slot: Slot, text: str, expected: str) -> str:
    what = f"expected {expected}, got {annotations.kind_of(value)}"
    if isinstance(value, (list, range)) and slot.at.startswith("--cfg."):
        return refusal(slot.at, f"{what}; several values are an axis", write=_sweep_flag(slot, text))
    if isinstance(value, tuple) and "," in text and "(" not in text:
        return refusal(slot.at, f"{what}: a comma makes a tuple", write=_flag(slot, text.replace(",", "").strip()))
    if type(value) is int and value in (0, 1) and expected == "bool":
        return refusal(slot.at, what, write=_flag(slot, str(bool(value))))
    if type(value) is float and value.is_integer() and expected == "int" and abs(value) < 1e15:
        return refusal(slot.at, what, write=_flag(slot, str(int(value))))
    return refusal(slot.at, what)


def _flag(slot: Slot, text: str) -> str:
    return shlex.quote(f"{slot.at}={text}")


def _quoted(slot: Slot, text: str) -> str:
    return shlex.quote(f"{slot.at}={text!r}")


def _sweep_flag(slot: Slot, text: str) -> str:
    return shlex.quote(f"--sweep.{slot.at.removeprefix('--cfg.')}={text}")


class _Reader:
    """Turns a syntax tree into a value, node by node."""

    def __init__(self, slot: Slot, names: Names, text: str) -> None:
        self.slot, self.names, self.text = slot, names, text

    def read(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant():
                return self._constant(node)
            case ast.List() | ast.Tuple() | ast.Set():
                kind = {ast.List: list, ast.Tuple: tuple, ast.Set: set}[type(node)]
                return self._hashable(kind, [self.read(element) for element in node.elts])
            case ast.Dict():
                return self._dict(node)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
                return self._signed(node)
            case ast.BinOp(op=ast.Add() | ast.Sub(), right=ast.Constant(value=complex())):
                return self._complex(node)
            case ast.Call():
                return self._call(node)
            case ast.Name() | ast.Attribute():
                return self._name(node)
            case _:
                raise _NotALiteral("only literals, calls and names are values; arithmetic is not done")

    def _constant(self, node: ast.Constant) -> Any:
        value = node.value
        parts = (value.real, value.imag) if isinstance(value, complex) else (value,)
        if any(isinstance(part, float) and not math.isfinite(part) for part in parts):
            source = ast.get_source_segment(self.text, node) or self.text
            what = f"{shown(source)} is too large for a number"
            raise ConfigError(refusal(self.slot.at, what, write=f"{_quoted(self.slot, source)} for the text"))
        return value

    def _hashable(self, kind: type, items: list[Any]) -> Any:
        try:
            return kind(items)
        except TypeError as error:
            raise ConfigError(refusal(self.slot.at, f"a set cannot hold this ({error})")) from None

    def _dict(self, node: ast.Dict) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for key_node, value_node in zip(node.keys, node.values, strict=True):
            if key_node is None:
                raise _NotALiteral("** is not allowed")
            key = self.read(key_node)
            try:
                is_twice = key in result
            except TypeError as error:
                raise ConfigError(refusal(self.slot.at, f"a key of a dict cannot be this ({error})")) from None
            if is_twice:
                raise ConfigError(refusal(self.slot.at, f"the dict has the key {shown(repr(key))} twice"))
            result[key] = self.read(value_node)
        return result

    def _signed(self, node: ast.UnaryOp) -> Any:
        value = self.read(node.operand)
        if type(value) not in (int, float, complex):
            raise _NotALiteral("a sign needs a number after it")
        return -value if isinstance(node.op, ast.USub) else value

    def _complex(self, node: ast.BinOp) -> Any:
        left, right = self.read(node.left), self.read(node.right)
        if type(left) not in (int, float):
            raise _NotALiteral("arithmetic is not done")
        return left + right if isinstance(node.op, ast.Add) else left - right

    def _call(self, node: ast.Call) -> Any:
        dotted = _dotted(node.func)
        if dotted is None:
            raise _NotALiteral("only a name can be called")
        qualname, target = self._find(dotted, is_call=True)
        if not callable(target):
            raise ConfigError(refusal(self.slot.at, f"{dotted} is a {type(target).__name__} and cannot be called"))
        if any(isinstance(argument, ast.Starred) for argument in node.args) or any(not k.arg for k in node.keywords):
            raise _NotALiteral("* and ** are not allowed")
        positional = [self.read(argument) for argument in node.args]
        named = {str(keyword.arg): self.read(keyword.value) for keyword in node.keywords}
        return call_node(qualname, positional, named, at=self.slot.at)

    def _name(self, node: ast.Name | ast.Attribute) -> Any:
        dotted = _dotted(node)
        if dotted in _NON_FINITE:
            return _NON_FINITE[dotted]
        if dotted is not None and "." in dotted and self.names.knows(dotted):
            qualname, value = self._find(dotted, is_call=False)
            # Numbers and texts behind a name (`np.pi`) are plain leaves, so that they can be swept and packed.
            return value if type(value) in (bool, int, float, str) else constant_node(qualname, at=self.slot.at)
        if dotted and dotted.lower() in _OTHER_SPELLINGS:
            right = _OTHER_SPELLINGS[dotted.lower()]
            raise ConfigError(refusal(self.slot.at, f"{shown(dotted)} in {shown(self.text)} is written {right} here"))
        raise _NotALiteral(f"{dotted} is not a known name" if dotted != self.text else "")

    def _find(self, dotted: str, *, is_call: bool) -> tuple[str, Any]:
        try:
            if "." not in dotted and is_call:
                raise ConfigError(refusal(self.slot.at, f"{dotted}(...) is a call, and its module is missing"))
            return self.names.find(dotted, self.slot.at)
        except ConfigError as error:
            if not self.slot.may_hold_text:
                raise
            raise ConfigError(f"{error} To give the text, write: {_quoted(self.slot, self.text)}") from None


def _dotted(node: ast.expr) -> str | None:
    """Returns `a.b.c` for a chain of names, None for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        left = _dotted(node.value)
        return None if left is None else f"{left}.{node.attr}"
    return None
