"""Keys: which fields they are, what they lead to, and every way in which they can be wrong."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar, Optional

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from kauldron_core import kontext
from kauldron_core.kontext import REQUIRED, Key, KeyTree, resolve_from_keyed_obj
from kauldron_core.kontext import Key as Renamed

if TYPE_CHECKING:
    from somewhere import Unknown


@dataclasses.dataclass(frozen=True, kw_only=True)
class Base:
    image: Key = REQUIRED
    label: kontext.Key | None = None
    size: int = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Child(Base):
    extra: Optional[Renamed] = None  # noqa: UP045 - the old spelling has to work
    several: dict[str, Key] = dataclasses.field(default_factory=dict)
    tree: KeyTree = None
    path: str = "not.a.key"
    unknown: Unknown = None
    either: Unknown | Key = None
    count: ClassVar[int] = 0


CONTEXT = {"batch": {"image": 1, "label": [2, 3]}, "preds": {"aux": (4, {"x": 5})}, "step": 7}


def test_keys_are_found_by_annotation_inherited_ones_too():
    assert list(kontext.get_keypaths(Child())) == ["image", "label", "extra", "several", "tree", "either"]
    assert kontext.get_keypaths(Base(image="a")) == {"image": "a", "label": None}


def test_a_field_that_stops_being_a_key_in_a_subclass_is_none():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Fixed(Base):
        label: int = 0

    assert list(kontext.get_keypaths(Fixed())) == ["image"]


def test_local_classes_and_evaluated_annotations_have_keys_too():
    from kauldron_core.kontext import Key as LocalKey

    class Local:
        a: kontext.Key = "x"
        b: LocalKey = "y"

    Evaluated = dataclasses.make_dataclass("Evaluated", [("a", Key), ("b", Key | None), ("c", int)])
    assert list(kontext.get_keypaths(Local())) == ["a"]
    assert list(kontext.get_keypaths(Evaluated("p", None, 1))) == ["a", "b"]


def test_is_key_annotated():
    class Dynamic:
        def __kontext_keys__(self):
            return {}

    assert kontext.is_key_annotated(Base)
    assert kontext.is_key_annotated(Child())
    assert kontext.is_key_annotated(Dynamic)
    assert not kontext.is_key_annotated(int)
    assert not kontext.is_key_annotated("batch.image")


def test_values_come_by_name_and_unset_keys_are_left_out():
    assert resolve_from_keyed_obj(CONTEXT, Base(image="batch.image")) == {"image": 1}
    assert resolve_from_keyed_obj(CONTEXT, Base(image="step", label="batch.label[1]")) == {"image": 7, "label": 3}


def test_keys_can_be_trees():
    obj = Child(
        image="step",
        several={"a": "batch.image", "b": "batch.label"},
        tree=["preds.aux[0]", ({"deep": "preds.aux[1].x"}, None)],
    )
    assert resolve_from_keyed_obj(CONTEXT, obj) == {
        "image": 7,
        "several": {"a": 1, "b": [2, 3]},
        "tree": [4, ({"deep": 5}, None)],
    }


def test_paths_and_builders_are_keys_too():
    batch = kontext.path_builder_from("batch", dict)
    obj = Base(image=batch["image"], label=kontext.Path("batch", "label", 0))
    assert resolve_from_keyed_obj(CONTEXT, obj) == {"image": 1, "label": 2}


def test_required_keys_are_named_all_at_once():
    @dataclasses.dataclass
    class Two:
        a: Key = REQUIRED
        b: Key = "step"
        c: KeyTree = dataclasses.field(default_factory=lambda: {"x": [REQUIRED]})

    with pytest.raises(ValueError, match=r"Two: required keys are not set: a, c\."):
        resolve_from_keyed_obj(CONTEXT, Two())


def test_a_missing_value_names_class_key_path_and_the_closest_path():
    with pytest.raises(KeyError) as caught:
        resolve_from_keyed_obj(CONTEXT, Base(image="batch.imgae", label="preds.auxx"))
    first, second = str(caught.value).splitlines()
    assert first == (
        "Base.image: batch.imgae: 'batch' (dict) has no 'imgae'. Did you mean 'batch.image'? Available: image, label."
    )
    assert second.startswith("Base.label: preds.auxx: 'preds' (dict) has no 'auxx'. Did you mean 'preds.aux'?")


def test_a_missing_value_in_a_tree_of_keys_is_named_by_its_place():
    with pytest.raises(KeyError, match=r"Child\.several\['a'\]: nope: the root \(dict\) has no 'nope'"):
        resolve_from_keyed_obj(CONTEXT, Child(image="step", several={"a": "nope"}))


def test_the_signature_of_the_function_is_checked():
    def takes_image(image, size=3): ...

    def takes_anything(**kwargs): ...

    assert resolve_from_keyed_obj(CONTEXT, Base(image="step"), func=takes_image) == {"image": 7}
    assert resolve_from_keyed_obj(CONTEXT, Base(image="step", label="step"), func=takes_anything)
    with pytest.raises(TypeError, match=r"unknown key 'label'\..* Available: image, size"):
        resolve_from_keyed_obj(CONTEXT, Base(image="step", label="step"), func=takes_image)


def test_dynamic_keys_and_the_function_protocol():
    @dataclasses.dataclass
    class Wrapper:
        inner: Base
        func: object

        def __kontext_keys__(self):
            return {**kontext.get_keypaths(self.inner), "now": "step"}

        def __kontext_func__(self):
            return self.func

    wrapper = Wrapper(Base(image="batch.image"), lambda image, now, label=None: None)
    assert kontext.get_keypaths(wrapper) == {"image": "batch.image", "label": None, "now": "step"}
    assert resolve_from_keyed_obj(CONTEXT, wrapper) == {"image": 1, "now": 7}
    with pytest.raises(TypeError, match="unknown key 'now'"):
        resolve_from_keyed_obj(CONTEXT, dataclasses.replace(wrapper, func=lambda image: None))


def test_linen_modules_have_keys():
    class Model(nn.Module):
        image: kontext.Key = kontext.REQUIRED
        mask: kontext.Key | None = None
        width: int = 3

        @nn.compact
        def __call__(self, image, mask=None):
            return nn.Dense(self.width)(image)

    model = Model(image="batch.image")
    kwargs = resolve_from_keyed_obj({"batch": {"image": jnp.ones((2, 5))}}, model, func=model.__call__)
    assert list(kwargs) == ["image"]
    assert model.init_with_output(jax.random.key(0), **kwargs)[0].shape == (2, 3)


def test_nnx_modules_have_keys():
    class Model(nnx.Module):
        image: kontext.Key = "batch.image"

        def __init__(self, rngs):
            self.dense = nnx.Linear(5, 3, rngs=rngs)

        def __call__(self, image):
            return self.dense(image)

    model = Model(nnx.Rngs(0))
    kwargs = resolve_from_keyed_obj({"batch": {"image": jnp.ones((2, 5))}}, model, func=model.__call__)
    assert model(**kwargs).shape == (2, 3)


def test_resolve_from_keypaths():
    assert kontext.resolve_from_keypaths(CONTEXT, {"a": "step", "b": None}) == {"a": 7}
    with pytest.raises(ValueError, match="required keys are not set: a"):
        kontext.resolve_from_keypaths(CONTEXT, {"a": REQUIRED})
