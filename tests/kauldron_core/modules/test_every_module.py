"""What every layer and model promises."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax
import numpy as np
import pytest

from kauldron_core import kd
from tests.kauldron_core.modules.cases import CASES

# Compiling is what these tests do most of the time; the code they make runs once.
_jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
every_module = pytest.mark.parametrize("name", CASES)


@dataclasses.dataclass(frozen=True)
class Run:
    """What one module computed.

    Attributes:
      variables: Made up, with the shapes of initialisation.
      evaluated: Outputs in evaluation.
      evaluated_among_others: The same, with other examples in the place of all but the first.
      trained: Outputs in training: with one key, with the same once more, and with another.
      changed: Collections after a training step, inner outputs among them.
    """

    variables: Any
    evaluated: Any
    evaluated_among_others: Any
    trained: tuple[Any, Any, Any]
    changed: Any


@functools.cache
def _run(name: str) -> Run:
    module, x = CASES[name].module, CASES[name].inputs
    with kd.nn.set_train_property(True):
        shapes = jax.eval_shape(module.init, {"params": jax.random.key(0), "default": jax.random.key(1)}, x)
    variables = _made_up(shapes)
    evaluate, train = (_jit(functools.partial(function, module)) for function in (_evaluate, _train))
    others = np.concatenate([x[:1], x[1:] + 1])
    # This generator compiles in a fraction of the time.
    keys = jax.random.split(jax.random.key(0, impl="unsafe_rbg"), 2)
    trained = [jax.device_get(train(variables, x, key)) for key in (keys[0], keys[0], keys[1])]
    return Run(
        variables=variables,
        evaluated=jax.device_get(evaluate(variables, x)),
        evaluated_among_others=jax.device_get(evaluate(variables, others)),
        trained=tuple(outputs for outputs, _ in trained),
        changed=trained[0][1],
    )


def _evaluate(module: nn.Module, variables: Any, x: Any) -> Any:
    with kd.nn.set_train_property(False):
        return module.apply(variables, x)


def _train(module: nn.Module, variables: Any, x: Any, key: Any) -> Any:
    mutable = [*(name for name in variables if name != "params"), "intermediates"]
    with kd.nn.set_train_property(True):
        return module.apply(variables, x, rngs={"dropout": key}, mutable=mutable, capture_intermediates=True)


def _made_up(shapes: Any) -> Any:
    generator = np.random.default_rng(0)
    numbers = jax.tree.map(lambda shape: 0.5 * generator.normal(size=shape.shape).astype(shape.dtype), shapes)
    # Variances are among the others.
    return {name: tree if name == "params" else jax.tree.map(np.abs, tree) for name, tree in numbers.items()}


def _equal(left: Any, right: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True))


def _close(left: Any, right: Any) -> bool:
    pairs = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    return all(np.allclose(a, b, rtol=2e-4, atol=2e-5) for a, b in pairs)


def test_every_public_module_is_among_the_cases() -> None:
    public = {name: getattr(kd.nn, name) for name in kd.nn.__all__}
    modules = {name for name, value in public.items() if isinstance(value, type) and issubclass(value, nn.Module)}
    parts_of_others = {"ResNetBlock", "TransformerBlock", "DummyModel"}
    assert modules - parts_of_others <= set(CASES)


@every_module
def test_an_example_is_evaluated_as_if_it_were_alone(name: str) -> None:
    run = _run(name)
    first, again = (jax.tree.map(lambda leaf: leaf[0], out) for out in (run.evaluated, run.evaluated_among_others))
    assert _close(first, again)


@every_module
def test_training_follows_from_the_key_and_differs_from_evaluation_if_it_has_modes(name: str) -> None:
    run, has_modes = _run(name), CASES[name].has_modes
    once, again, other_key = run.trained
    assert _equal(once, again)
    assert _close(once, run.evaluated) != has_modes
    assert _equal(once, other_key) or has_modes


@every_module
def test_parameters_have_single_precision_and_outputs_are_finite(name: str) -> None:
    run = _run(name)
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(run.variables))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((run.evaluated, run.trained)))


@every_module
def test_what_a_step_changes_has_the_structure_of_what_it_started_from(name: str) -> None:
    run = _run(name)
    collections = {key: value for key, value in run.changed.items() if key != "intermediates"}
    before = {key: value for key, value in run.variables.items() if key != "params"}
    assert jax.tree.structure(collections) == jax.tree.structure(before)
    assert not jax.tree.leaves(before) or not _equal(collections, before)


@every_module
def test_the_output_is_among_the_inner_outputs_where_key_paths_look_for_it(name: str) -> None:
    run = _run(name)
    assert _equal(run.changed["intermediates"]["__call__"][-1], run.trained[0])


@every_module
def test_modules_are_values(name: str) -> None:
    module = CASES[name].module
    assert module == module.clone()
    assert type(module).__name__ in repr(module)
