"""A class or function where what it makes is meant is refused at once, with the call."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from kauldron_core import kd, konfig
from kauldron_core.errors import ConfigError
from pipelines.configs import digits
from tests.kauldron_core import experiments

with konfig.imports():
    from kauldron_core import kd as lazy_kd
    from tests.kauldron_core.konfig import test_uncalled as here


class Part:
    """Something that is made."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Holder:
    """Fields that take what is made, and fields that take what makes it."""

    part: Part | None = None
    parts: Sequence[Part] = ()
    by_name: Mapping[str, Part] = dataclasses.field(default_factory=dict)
    make: Callable[..., Any] | None = None
    kind: type[Part] | None = None
    either: Part | type[Part] | None = None
    dtype: Any = None
    number_type: np.dtype | None = None
    anything: Any = None


@pytest.mark.parametrize("at", ["part", r"parts\[1\]", r"by_name\.a"])
def test_a_class_is_refused_where_the_annotation_wants_what_it_makes(at: str) -> None:
    """F50: the whole kind, also in classes of the user's own."""
    fields: dict[str, Any] = {"part": here.Part, "parts": [here.Part(), here.Part], "by_name": {"a": here.Part}}
    name = at.partition("\\")[0]
    with pytest.raises(ConfigError, match=rf"cfg\.{at}: the class .*Part stands .* Call it: .*Part\(\)\."):
        konfig.resolve(here.Holder(**{name: fields[name]}))


def test_a_class_stays_where_it_is_meant() -> None:
    """F50: activations, types and callables are untouched."""
    fields: dict[str, Any] = {"make": here.Part, "kind": here.Part, "either": here.Part, "anything": here.Part}
    types = {"dtype": "jax.numpy:bfloat16", "number_type": "jax.numpy:float32"}
    fields |= {name: konfig.ConfigDict({"__const__": place}) for name, place in types.items()}
    built = konfig.resolve(here.Holder(**fields, part=here.Part()))
    assert (built.make, built.kind, built.either, built.anything) == (Part, Part, Part, Part)
    assert (built.dtype, built.number_type) == (jnp.bfloat16, jnp.float32)


def test_the_case_of_the_command_line() -> None:
    """F50: it passed `validate`, the dry run and the start, and there was a traceback after all training."""
    cfg = digits.get_config()
    cfg.evals.test.run = lazy_kd.evals.StandaloneLastCheckpoint
    with pytest.raises(ConfigError, match=r"^cfg\.evals\.test\.run: the class .*Call it: .*LastCheckpoint\(\)"):
        konfig.resolve(cfg)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: kd.evals.Evaluator(run=kd.evals.Final), r"run: the class Final .*Call it: Final\(\)"),
        (lambda: experiments.trainer(optimizer=optax.adam), r"optimizer: the function adam .*adam\(\.\.\.\)"),
        (lambda: experiments.trainer(model=kd.nn.MLP), r"model: the class MLP .*MLP\(\.\.\.\)"),
        (lambda: experiments.trainer(evals={"val": kd.evals.Evaluator}), r"evals\.val: the class Evaluator"),
        (lambda: experiments.trainer(train_losses={"l2": kd.losses.L2}), r"train_losses\.l2: the class L2"),
        (lambda: experiments.trainer(train_metrics={"a": kd.metrics.Accuracy}), r"train_metrics\.a: the class"),
        (lambda: experiments.points(transforms=[kd.data.Elements]), r"transforms\[0\]: the class Elements"),
    ],
)
def test_python_is_told_as_well(make: Callable[[], Any], message: str) -> None:
    """F50: in Python too, in lists and dicts of evaluators, losses, metrics and transforms."""
    with pytest.raises(ConfigError, match=message):
        make()
