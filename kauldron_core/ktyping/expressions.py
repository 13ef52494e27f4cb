"""Arithmetic between dimension names (`h*w`, `(c+1)//2`), read with `ast` and computed without `eval`."""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_CALLS: dict[str, Callable[..., Any]] = {"min": min, "max": max, "sum": sum, "len": len, "abs": abs}


class Unbound(LookupError):
    """A name of the expression has no size yet."""


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> ast.expr:
    """Returns the syntax tree of a dimension expression.

    Raises:
      ValueError: If `text` is more than arithmetic, names, attributes, indices and min, max, sum, len, abs.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        raise ValueError(f"dimension {text!r} is not an expression") from None
    _check(tree, text)
    return tree


def names(tree: ast.expr) -> set[str]:
    """Returns the names that the expression needs."""
    found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    return found - called


def evaluate(tree: ast.expr, values: Mapping[str, Any]) -> Any:
    """Returns the value of the expression.

    Raises:
      Unbound: If a name is not among `values`.
    """
    match tree:
        case ast.Constant():
            return tree.value
        case ast.Name():
            if tree.id not in values:
                raise Unbound(tree.id)
            return values[tree.id]
        case ast.BinOp():
            return _BINARY[type(tree.op)](evaluate(tree.left, values), evaluate(tree.right, values))
        case ast.UnaryOp():
            return -evaluate(tree.operand, values)
        case ast.Attribute():
            return getattr(evaluate(tree.value, values), tree.attr)
        case ast.Subscript():
            return evaluate(tree.value, values)[evaluate(tree.slice, values)]
        case ast.Call(func=ast.Name(id=name)):
            return _CALLS[name](*(evaluate(argument, values) for argument in tree.args))
        case _:  # `parse` has refused everything else.
            raise TypeError(ast.dump(tree))


def _check(tree: ast.expr, text: str) -> None:
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=int() | str()) | ast.Name() | ast.Subscript() | ast.expr_context() | ast.operator():
                continue
            case ast.BinOp(op=op) if type(op) in _BINARY:
                continue
            case ast.UnaryOp(op=ast.USub()) | ast.USub():
                continue
            case ast.Attribute(attr=attr) if not attr.startswith("_"):
                continue
            case ast.Call(func=ast.Name(id=name), keywords=[]) if name in _CALLS:
                continue
            case _:
                raise ValueError(f"dimension {text!r} holds more than arithmetic between dimensions")
