"""Turns the syntax tree of a value into the value: literals, calls and names; no arithmetic, nothing is run."""

from __future__ import annotations

import ast
import math
from typing import Any

from kauldron_core.errors import ConfigError, one_line, shown
from kauldron_core.konfig.overrides.names import Names, constant, is_callable
from kauldron_core.konfig.overrides.refusal import Refused
from kauldron_core.konfig.overrides.slots import Slot
from kauldron_core.konfig.trusting.rules import UntrustedError
from kauldron_core.konfig.writing.proxies import Proxy

OTHER_SPELLINGS = {
    **dict.fromkeys(("true", "yes", "on"), "True"),
    **dict.fromkeys(("false", "no", "off"), "False"),
    **dict.fromkeys(("none", "null", "nil", "undefined"), "None"),
}
"""How other languages, and tired people, write Python's constants."""

AXIS_FUNCTIONS = frozenset(
    ("range", "linspace", "logspace", "uniform", "loguniform", "quniform", "randint", "normal", "choice")
)
"""What an axis is written with (`kauldron_core.sweeps` reads it), and a value is not."""

_NON_FINITE = {"inf": math.inf, "nan": math.nan, "infinity": math.inf}


class NotAValue(Exception):
    """Python that is no literal, call or known name; the text says why."""


class LiteralReader:
    """Reads one value text.

    Args:
      slot: Where the value is meant for.
      names: What names in it stand for.
      text: The whole text, for messages.
    """

    def __init__(self, slot: Slot, names: Names, text: str) -> None:
        self.slot, self.names, self.text = slot, names, text

    def read(self, node: ast.expr) -> Any:
        """Returns the value of a syntax tree.

        Raises:
          NotAValue: When it is something else than a literal, a call or a name.
          ConfigError: When it is one that is certainly wrong.
        """
        match node:
            case ast.Constant():
                return self._constant(node)
            case ast.List():
                return [self.read(element) for element in node.elts]
            case ast.Tuple():
                return tuple(self.read(element) for element in node.elts)
            case ast.Set():
                return self._hashed(node)
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
            case ast.BinOp():
                raise NotAValue("arithmetic is not done; write the result")
            case _:
                raise NotAValue("only literals, calls and names are values")

    def _constant(self, node: ast.Constant) -> Any:
        value = node.value
        parts = (value.real, value.imag) if isinstance(value, complex) else (value,)
        if any(isinstance(part, float) and not math.isfinite(part) for part in parts):
            source = ast.get_source_segment(self.text, node) or self.text
            raise self._refused(f"{shown(source)} is too large for a number")
        return value

    def _hashed(self, node: ast.Set) -> set[Any]:
        items = [self.read(element) for element in node.elts]
        try:
            return set(items)
        except TypeError as error:
            raise self._refused(f"a set cannot hold this ({error})") from None

    def _dict(self, node: ast.Dict) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for key_node, value_node in zip(node.keys, node.values, strict=True):
            if key_node is None:
                raise NotAValue("** is not allowed")
            key = self.read(key_node)
            try:
                is_twice = key in result
            except TypeError as error:
                raise self._refused(f"a key of a dict cannot be this ({error})") from None
            if is_twice:
                raise self._refused(f"the dict has the key {shown(repr(key))} twice")
            result[key] = self.read(value_node)
        return result

    def _signed(self, node: ast.UnaryOp) -> Any:
        value = self.read(node.operand)
        if type(value) not in (int, float, complex):
            raise NotAValue("a sign needs a number after it")
        return -value if isinstance(node.op, ast.USub) else value

    def _complex(self, node: ast.BinOp) -> Any:
        left, right = self.read(node.left), self.read(node.right)
        if type(left) not in (int, float):
            raise NotAValue("arithmetic is not done; write the result")
        return left + right if isinstance(node.op, ast.Add) else left - right

    def _call(self, node: ast.Call) -> Any:
        dotted = dotted_name(node.func)
        if dotted is None:
            raise NotAValue("only a name can be called")
        if any(isinstance(argument, ast.Starred) for argument in node.args) or any(not k.arg for k in node.keywords):
            raise NotAValue("* and ** are not allowed")
        target = self._find_target(dotted)
        if not is_callable(target, trusted=self.names.trusted):
            raise self._refused(f"{dotted} is nothing that can be called")
        positional = [self.read(argument) for argument in node.args]
        named = {str(keyword.arg): self.read(keyword.value) for keyword in node.keywords}
        try:
            return target(*positional, **named)
        except (ConfigError, TypeError, ValueError) as error:
            raise self._refused(one_line(str(error)).rstrip(".")) from None

    def _find_target(self, dotted: str) -> Proxy:
        if "." not in dotted and not self.names.knows(dotted):
            if dotted in AXIS_FUNCTIONS and self.slot.at.startswith("--cfg."):
                flag = f"--sweep.{self.slot.at.removeprefix('--cfg.')}"
                raise Refused(self.slot.at, f"{dotted}(...) is an axis", right=self.text, text=self.text, flag=flag)
            full = next(iter(self.names.full_names_of(dotted)), None)
            right = self.text.replace(f"{dotted}(", f"{full}(") if full else None
            raise self._refused(f"{dotted}(...) is a call without its module", right=right)
        return self._find(dotted)

    def _name(self, node: ast.Name | ast.Attribute) -> Any:
        dotted = dotted_name(node)
        if dotted is None:
            raise NotAValue("only literals, calls and names are values")
        if dotted.lower() in _NON_FINITE:
            return _NON_FINITE[dotted.lower()]
        # Where no text can be meant, a dotted name may be one of any package, as in a call.
        is_name = self.names.knows(dotted) or (not self.slot.may_hold_text and self.names.can_import(dotted))
        if "." in dotted and is_name:
            return constant(self._find(dotted), trusted=self.names.trusted)
        if right := OTHER_SPELLINGS.get(dotted.lower()):
            # Only where it is a part of a larger value; alone it was refused before.
            raise self._refused(f"{shown(dotted)} in {shown(self.text)} is written {right} here")
        raise NotAValue(f"{dotted} is not a known name" if dotted != self.text else "")

    def _find(self, dotted: str) -> Proxy:
        try:
            return self.names.find(dotted)
        except UntrustedError:
            raise
        except ConfigError as error:
            raise self._refused(str(error).rstrip(".")) from None

    def _refused(self, what: str, right: str | None = None) -> Refused:
        return Refused(self.slot.at, what, right=right, or_text=self.slot.may_hold_text, text=self.text)


def dotted_name(node: ast.expr) -> str | None:
    """Returns `a.b.c` for a chain of names, None for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        left = dotted_name(node.value)
        return None if left is None else f"{left}.{node.attr}"
    return None
