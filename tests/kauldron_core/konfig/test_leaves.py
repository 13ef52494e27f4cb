"""The schema of a config, and where its documentation comes from."""

from __future__ import annotations

import dataclasses
from typing import Any

from kauldron_core import konfig
from kauldron_core.konfig.calls.docstrings import argument_lines
from kauldron_core.konfig.showing.leaves import Leaf, leaves_of

with konfig.imports():
    import optax


@dataclasses.dataclass
class Base:
    """A base.

    Attributes:
      rate: How fast. Usually small.
      name: What it is called;
        over two lines.
    """

    rate: float = 0.1
    name: str = "x"


@dataclasses.dataclass
class Derived(Base):
    """More.

    Args:
      extra (int): With a type in brackets.
      *items: Several.

    Returns:
      rate: not an argument.
    """

    extra: int | None = None
    items: list[Any] = dataclasses.field(default_factory=list)


def needs(size: int, *, other=None):
    """Returns nothing.

    Args:
      size: Its size.
        rate: an indented line of the same entry.
    """
    return size, other


def by_path(cfg: Any) -> dict[str, Leaf]:
    return {leaf.path: leaf for leaf in leaves_of(cfg)}


def test_docstrings_of_classes_include_those_of_their_bases() -> None:
    assert argument_lines(Derived) == {
        "rate": "How fast",
        "name": "What it is called",
        "extra": "With a type in brackets",
        "items": "Several",
    }
    assert argument_lines(needs) == {"size": "Its size"}
    assert argument_lines(len) == {}


def test_leaves_have_type_value_and_documentation() -> None:
    cfg = konfig.ConfigDict({"one": {"__qualname__": f"{__name__}:Derived", "extra": 5}, "plain": {"a": 1, "b": None}})
    leaves = by_path(cfg)
    assert leaves["one.extra"] == Leaf("one.extra", "int | None", "5", "With a type in brackets", True)
    assert leaves["one.rate"] == Leaf("one.rate", "float", "0.1", "How fast", False)
    assert leaves["one.items"].value == "(made when built)"
    assert leaves["plain.a"] == Leaf("plain.a", "int", "1", "", True)
    assert leaves["plain.b"].type == "any"


def test_references_constants_lists_and_empty_calls_are_leaves() -> None:
    cfg = konfig.ConfigDict({"seed": 1, "parts": [optax.identity(), optax.sgd(0.1)], "numbers": [1, 2], "none": {}})
    cfg.twice = cfg.ref.seed * 2
    cfg.dtype = konfig.ConfigDict({"__const__": "jax.numpy:bfloat16"})
    cfg.later = konfig.placeholder(int)
    leaves = by_path(cfg)
    assert leaves["twice"].value == "cfg.ref.seed * 2"
    assert leaves["dtype"].value == "jnp.bfloat16"
    assert leaves["parts[0]"].value == "optax.identity()"
    assert leaves["parts[1][0]"].value == "0.1"
    assert leaves["parts[1].momentum"].is_set is False
    assert leaves["numbers"].value == "[1, 2]"
    assert leaves["none"].value == "{}"
    assert leaves["later"].type == "int"


def test_required_arguments_are_marked_and_shared_nodes_come_once() -> None:
    node = konfig.ConfigDict({"__qualname__": f"{__name__}:needs"})
    cfg = konfig.ConfigDict({"a": node, "b": node})
    leaves = by_path(cfg)
    assert leaves["a.size"].value == "(required)"
    assert "b.size" not in leaves


def test_nothing_is_imported_for_a_config_from_a_file() -> None:
    cfg = konfig.from_json('{"__qualname__": "no_such_module:Thing", "rate": 0.1}')
    assert [leaf.path for leaf in leaves_of(cfg)] == ["rate"]
