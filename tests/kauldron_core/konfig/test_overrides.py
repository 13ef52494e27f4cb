"""Overrides mean what the field says, and what cannot be meant is refused in one line with the right form."""

from __future__ import annotations

import copy
import dataclasses
import enum
import math
import typing
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from kauldron_core import konfig, paths, sweeps
from kauldron_core.errors import ConfigError
from kauldron_core.sweeps.trial_names import encoded

with konfig.imports():
    import optax


class Mode(enum.Enum):
    FAST = 1
    SLOW = 2


@dataclasses.dataclass
class Typed:
    """A target with one field of each kind of annotation."""

    rate: float | None = None
    count: int | None = None
    label: str = ""
    tag: str | None = None
    path: str | list[int] = "a"
    mode: Mode = Mode.FAST
    split: typing.Literal["train", "val"] = "train"
    switch: typing.Literal["auto", "off"] | int = "auto"
    pair: tuple[int, float] = (1, 1.0)
    many: tuple[int, ...] = ()
    table: dict[str, list[tuple[str, int]]] = dataclasses.field(default_factory=dict)
    number: int | float = 1
    child: Typed | None = None


def untyped(a, b=2, **rest):  # pyright: ignore[reportMissingParameterType]
    return a, b, rest


TYPED = f"{__name__}:Typed"


def typed(**fields: Any) -> konfig.ConfigDict:
    return konfig.ConfigDict({"__qualname__": TYPED, **fields})


def applied(cfg: Any, *overrides: str) -> Any:
    cfg = copy.deepcopy(cfg)
    konfig.apply_overrides(cfg, overrides)
    return cfg


def refused(cfg: Any, *overrides: str) -> str:
    before = konfig.to_json(cfg)
    with pytest.raises(ConfigError) as caught:
        konfig.apply_overrides(cfg, overrides, read_axis=sweeps.parse_axis)
    assert konfig.to_json(cfg) == before  # nothing is half applied
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def cfg() -> konfig.ConfigDict:
    return konfig.ConfigDict(
        {
            "seed": 0,
            "name": "base",
            "note": None,
            "rate": 0.1,
            "debug": False,
            "layers": [64, 32],
            "model": {"width": 8, "rate": 0.1, "bias": True},
            "groups": {"a": [("x", 1)]},
            "optimizer": optax.adam(learning_rate=1e-3),
        }
    )


def test_digits_with_an_e_stay_text_in_a_text_field(cfg: Any) -> None:
    """O02: digits with an e stay text in a text field."""
    assert applied(cfg, "name=123E456").name == "123E456"
    assert applied(typed(), "label=123E456").label == "123E456"
    assert applied(typed(), "tag=123E456").tag == "123E456"
    assert applied(cfg, "note='123E456'").note == "123E456"
    assert "too large" in refused(cfg, "note=123E456")
    assert "too large" in refused(cfg, "rate=123E456")
    assert "too large" in refused(cfg, "note=[1, (2, 123E456)]")
    assert "too large" in refused(cfg, "note=-123E456")
    assert "too large" in refused(cfg, "note=optax.sgd(123E456)")


def test_spaces_in_nested_lists_mean_nothing(cfg: Any) -> None:
    """O06: spaces in nested lists mean nothing."""
    assert applied(cfg, "note=[[1, 2], [3,  4]]").note == applied(cfg, "note=[[1,2],[3,4]]").note == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    "text", ["a#b", "# a", "50%", "me@example.org", "a: b", "two words", " padded ", "=x", "-x", "~"]
)
def test_special_signs_stay_text_in_a_text_field(cfg: Any, text: str) -> None:
    """O08: special signs stay text in a text field."""
    assert applied(cfg, f"name={text}").name == text
    assert applied(typed(), f"label={text}").label == text


def test_swapped_letters_name_the_nearest_key_first(cfg: Any) -> None:
    """O10: swapped letters name the nearest key first."""
    message = refused(cfg, "otpimizer.learning_rate=1")
    assert "unknown key 'otpimizer'. Did you mean 'optimizer'?" in message
    assert message.index("Did you mean") < message.index("A new key")
    assert "Did you mean 'learning_rate'?" in refused(cfg, "optimizer.laerning_rate=1")


def test_one_element_of_a_list(cfg: Any) -> None:
    """O12: one element of a list."""
    assert applied(cfg, "layers[0]=7").layers == [7, 32]
    assert applied(cfg, "layers[-1]=7").layers == [64, 7]
    assert "index 9 is out of range, layers has 2 elements (0 to 1)" in refused(cfg, "layers[9]=7")
    assert "index -3 is out of range" in refused(cfg, "layers[-3]=7")


def test_tuples_in_lists_in_dicts_stay_tuples(cfg: Any) -> None:
    """O14: tuples in lists in dicts stay tuples."""
    changed = applied(cfg, "groups={'a': [('x', 1), ('y', 2)], 'b': []}")
    assert changed.groups.a == [("x", 1), ("y", 2)]
    assert changed.groups.b == []
    assert applied(typed(), "table={'a': [('x', 1)]}").table.a == [("x", 1)]
    assert "expected" in refused(typed(), "table={'a': [('x', 'y')]}")


def test_an_optional_float() -> None:
    """O16: an optional float."""
    zero = applied(typed(), "rate=0").rate
    assert (zero, type(zero)) == (0.0, float)
    assert applied(typed(), "rate=0.5").rate == 0.5
    assert applied(typed(rate=0.5), "rate=None").rate is None
    assert "expected float | None, got the text 'abc'" in refused(typed(), "rate=abc")


def test_keys_of_dict_literals_keep_their_type(cfg: Any) -> None:
    """O18: keys of dict literals keep their type."""
    note = applied(cfg, "note={'a.b': 1, 2: 'two', (3, 4): None}").note
    assert note["a.b"] == 1
    assert note[2] == "two"
    assert note[3, 4] is None
    assert "'2'" not in konfig.to_json(note)


def test_nested_fields_get_the_right_type_from_text(cfg: Any) -> None:
    """O20: nested fields get the right type from text."""
    changed = applied(cfg, "model.bias=False", "model.rate=1")
    assert changed.model.bias is False
    assert (changed.model.rate, type(changed.model.rate)) == (1.0, float)
    for text in ("false", "0", "no", "off", "None.", ""):
        refused(cfg, f"model.bias={text}")


@pytest.mark.parametrize("text", ["true", "yes", "null", "none", "on", "off", "FALSE", "Null", "nil"])
def test_other_languages_constants_are_refused_outside_of_text(cfg: Any, text: str) -> None:
    for field in ("seed", "rate", "debug", "note", "layers"):
        assert "is written" in refused(cfg, f"{field}={text}")
    assert applied(cfg, f"name={text}").name == text


def test_annotations_decide_where_they_are_known() -> None:
    assert applied(typed(count=1), "number=0.5").number == 0.5
    assert applied(typed(number=1.0), "number=2").number == 2.0
    assert applied(typed(), "pair=[3, 4]").pair == (3, 4.0)
    assert "tuple[int, float]" in refused(typed(), "pair=(1, 2, 3)")
    assert applied(typed(), "many=[1, 2]").many == (1, 2)
    assert "Write: --cfg.split=train" in refused(typed(), "split=trian")
    assert applied(typed(), "split=val").split == "val"
    # `off` is one of its values, so it is not the False of another language.
    assert [applied(typed(), f"switch={text}").switch for text in ("off", "auto", "3")] == ["off", "auto", 3]
    assert "'on' is written True here" in refused(typed(), "switch=on")
    assert applied(typed(path="a"), "path=[1, 2]").path == [1, 2]
    assert applied(typed(path="a"), "path=1").path == "1"
    assert applied(typed(tag="x"), "tag=None").tag is None
    assert "expected int | None" in refused(typed(), "count=[1]")
    assert "Write: --cfg.count=1000" in refused(typed(), "count=1e3")


def test_what_is_there_decides_where_no_annotation_is_known() -> None:
    node = konfig.ConfigDict({"__qualname__": f"{__name__}:untyped", "a": 1, "b": "x", "other": (1, 2)})
    assert applied(node, "a=2").a == 2
    assert "expected int" in refused(node, "a=0.5")
    assert applied(node, "b=5").b == "5"
    assert applied(node, "other=[3]").other == (3,)
    assert applied(node, "new=5").new == 5  # **kwargs take any name
    assert applied(konfig.ConfigDict({"__qualname__": "no.such:module", "x": 1}), "y=2").y == 2


def test_calls(cfg: Any) -> None:
    assert applied(cfg, "optimizer=optax.sgd(0.05)").optimizer == optax.sgd(0.05)
    assert applied(cfg, "note=py::optax.sgd(0.05)").note == optax.sgd(0.05)
    nested = applied(cfg, "optimizer=optax.chain(optax.clip(1.0), optax.sgd(0.1, momentum=0.9))").optimizer
    assert nested == optax.chain(optax.clip(1.0), optax.sgd(0.1, momentum=0.9))
    assert applied(
        cfg,
        f"note={__name__}.Typed(count=3)",
    ).note == typed(count=3)
    assert "Did you mean 'sgd'" in refused(cfg, "optimizer=optax.sdg(0.1)")
    assert "Did you mean 'momentum'" in refused(cfg, "optimizer=optax.sgd(0.1, momentun=0.9)")
    assert "unknown module 'optaxx'" in refused(cfg, "optimizer=optaxx.sgd(0.1)")
    assert "Write: '--cfg.optimizer=optax.sgd(0.1)'" in refused(cfg, "optimizer=sgd(0.1)")
    for text in (
        "optax.sgd(*[0.1])",
        "optax.sgd(**{})",
        "optax.sgd(0.1)(0.2)",
        "(lambda: 1)()",
        "optax.sgd(x for x in y)",
    ):
        refused(cfg, f"optimizer={text}")


def test_unknown_calls_show_how_to_give_the_text(cfg: Any) -> None:
    message = refused(cfg, "note=foo.bar(1)")
    assert "unknown module 'foo'" in message
    assert "Write: '--cfg.note=\"foo.bar(1)\"' (to keep the text)" in message


def test_nothing_is_evaluated(cfg: Any) -> None:
    for text in ("__import__('os').getcwd()", "[x for x in (1,)]", "lambda: 1", "f'{1}'", "1 if 1 else 2", "(1).real"):
        refused(cfg, f"seed={text}")
    assert applied(cfg, "name=__import__('os').getcwd()").name == "__import__('os').getcwd()"


@pytest.mark.parametrize(
    "text",
    [
        "[" * 10_000,
        "[" * 40 + "]" * 40,
        "-" * 50_000 + "1",
        "9" * 5000,
        "1" * 100_000,
        "x" * 1_100_000,
        "{" + "'a': {" * 60 + "}" * 61,
        "((((((((((" * 20,
        "1" + "+1" * 20_000,
        "a" + ".a" * 20_000,
        "'" * 9999,
        "\x00",
        "\ud800",
    ],
)
def test_huge_and_odd_literals_are_refused(cfg: Any, text: str) -> None:
    assert len(refused(cfg, f"seed={text}")) < 2000


def test_slips_of_the_finger_are_answered(cfg: Any) -> None:
    assert "Write: --cfg.seed=5" in refused(cfg, "seed==5")
    assert "Write: --cfg.seed=5" in refused(cfg, "seed=5;")
    assert "Write: --cfg.seed=5" in refused(cfg, "seed=5,")
    assert "Write: --cfg.seed=-5" in refused(cfg, "seed=\u22125")
    assert "Write: --cfg.seed=5000" in refused(cfg, "seed=5,000")
    assert "Write: --cfg.seed=5" in refused(cfg, "seed=5 # five")
    assert "Write: --cfg.seed=7" in refused(cfg, "seed=007")
    assert "Write: '--cfg.note=\"a\"'" in refused(cfg, "note=\u201ca\u201d")
    assert "Write: '--sweep.seed=[1, 2]'" in refused(cfg, "seed=[1, 2]")
    assert "Write: '--sweep.seed=[1, 2]'" in refused(cfg, "seed=(1, 2)")
    assert "PATH=VALUE" in refused(cfg, "seed")
    assert "the path is missing" in refused(cfg, "=5")


def test_overrides_that_undo_each_other_are_refused(cfg: Any) -> None:
    applied(cfg, "optimizer=optax.sgd(0.1)", "optimizer.momentum=0.9")
    assert "would undo" in refused(cfg, "optimizer.b1=0.8", "optimizer=optax.sgd(0.1)")
    assert "would undo" in refused(cfg, "seed=1", "seed=2")


def test_none_switches_an_entry_off() -> None:
    table = konfig.ConfigDict({"evals": {"a": typed(), "b": 1}})
    assert applied(table, "evals.a=None").evals.to_dict() == {"a": None, "b": 1}
    node = typed(table={"a": [("x", 1)], "b": []})
    assert list(applied(node, "table.a=None").table) == ["b"]  # the annotation leaves no room for None


def test_references_follow_and_are_left_alone(cfg: Any) -> None:
    cfg.twice = cfg.ref.seed * 2
    assert applied(cfg, "seed=4").twice == 8
    changed = applied(cfg, "twice=3")
    assert (changed.seed, changed.twice) == (0, 3)
    assert "expected int" in refused(cfg, "twice=abc")


def test_shared_nodes_and_placeholders(cfg: Any) -> None:
    cfg.a = cfg.b = konfig.ConfigDict({"x": 1})
    assert applied(cfg, "a.x=2").b.x == 2
    cfg.needed = konfig.placeholder(float)
    cfg.also = konfig.required(int)
    changed = applied(cfg, "needed=1", "also=3")
    assert (changed.needed, type(changed.needed), changed.also) == (1.0, float, 3)
    assert "expected int" in refused(cfg, "needed=1", "also=x")


def test_positional_arguments_go_by_name_and_by_number() -> None:
    cfg = konfig.ConfigDict({"optimizer": optax.adam(1e-3)})
    assert applied(cfg, "optimizer.learning_rate=0.5").optimizer == optax.adam(0.5)
    assert applied(cfg, "optimizer[0]=0.5").optimizer == optax.adam(0.5)
    assert "has 1 positional arguments" in refused(cfg, "optimizer[1]=0.5")


def test_elements_inside_of_tuples_are_replaced() -> None:
    cfg = konfig.ConfigDict({"shape": ((1, 2), [3, (4, 5)])})
    assert applied(cfg, "shape[0][1]=9").shape == ((1, 9), [3, (4, 5)])
    assert applied(cfg, "shape[1][1][0]=9").shape == ((1, 2), [3, (9, 5)])
    assert "expected int" in refused(cfg, "shape[0][1]=x")


def test_a_config_from_a_file_can_be_overridden_without_importing_anything() -> None:
    cfg = konfig.from_json('{"__qualname__": "no_such_module:Thing", "rate": 0.1, "inner": {"__const__": "no.such:x"}}')
    assert applied(cfg, "rate=2").rate == 2.0
    assert "has nothing inside" in refused(cfg, "inner.x=2")


# Laws

_leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
# Keys such as `__qualname__` have a meaning of their own in a config.
_names = st.text().filter(lambda name: not name.startswith("__"))
_keys = _names | st.integers() | st.tuples(st.integers(), st.text())
_values = st.recursive(
    _leaves,
    lambda inner: (
        st.lists(inner, max_size=4) | st.lists(inner, max_size=4).map(tuple) | st.dictionaries(_keys, inner, max_size=4)
    ),
    max_leaves=12,
)


@hypothesis.settings(deadline=None)
@hypothesis.given(_values)
def test_a_printed_value_is_read_back_as_it_was(value: Any) -> None:
    cfg = konfig.ConfigDict({"it": None})
    konfig.apply_overrides(cfg, [f"it={value!r}"])
    expected = konfig.ConfigDict({"it": value})["it"]
    assert encoded(cfg["it"]) == encoded(expected)


@hypothesis.settings(deadline=None)
@hypothesis.given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_any_text_goes_into_a_text_field_whole(text: str) -> None:
    cfg = konfig.ConfigDict({"it": "text"})
    konfig.apply_overrides(cfg, [f"it={text!r}"])
    assert cfg["it"] == text
    if not text.strip().endswith(("'", '"')):
        konfig.apply_overrides(cfg, [f"it={text}"])
        assert cfg["it"] == text


@hypothesis.settings(deadline=None)
@hypothesis.given(st.lists(_keys, min_size=1, max_size=4))
def test_a_printed_path_leads_to_its_place(parts: list[Any]) -> None:
    cfg: Any = 1
    for part in reversed(parts):
        cfg = {part: cfg}
    node = konfig.ConfigDict(cfg)
    konfig.apply_overrides(node, [f"{paths.format(parts)}=2"])
    for part in parts:
        node = node[part]
    assert node == 2


@hypothesis.settings(deadline=None)
@hypothesis.given(st.text())
def test_any_text_is_a_value_or_one_line(text: str) -> None:
    cfg = konfig.ConfigDict({"number": 1, "any": None, "list": [1]})
    for field in ("number", "any", "list"):
        try:
            konfig.apply_overrides(cfg, [f"{field}={text}"])
        except ConfigError as error:
            assert str(error).isprintable()
    assert cfg.number is None or type(cfg.number) is int
    assert cfg.list is None or isinstance(cfg.list, list)
    assert not (isinstance(cfg["any"], float) and math.isinf(cfg["any"]) and "inf" not in text.lower())
