"""The same values over any number of devices and hosts."""

import pathlib
import socket
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from kauldron_core import metrics

REPOSITORY = pathlib.Path(__file__).parents[3]

MEASURED = """
import dataclasses, flax.struct, jax, jax.numpy as jnp, numpy as np
from kauldron_core import kontext, losses, metrics

@dataclasses.dataclass(frozen=True, kw_only=True)
class Closeness(metrics.Metric):
    preds: kontext.Key = "x"
    targets: kontext.Key = "y"

    @flax.struct.dataclass
    class State(metrics.AverageState): ...

    def get_state(self, preds, targets, mask=None):
        return self.State.from_values(jnp.exp(-((preds - targets) ** 2)), mask)

@dataclasses.dataclass(frozen=True, kw_only=True)
class Quartic(losses.Loss):
    preds: kontext.Key = "x"
    targets: kontext.Key = "y"

    def get_values(self, preds, targets):
        return (preds - targets) ** 4

METRICS = [
    Closeness(),
    Quartic(mask="m"),
    losses.Contrastive(preds="x", targets="y"),
    metrics.Accuracy(labels="label", logits="x"),
    metrics.F1(labels="label", logits="x"),
    metrics.Std(values="x"),
    metrics.RocAuc(labels="label", logits="x"),
    metrics.Histogram(values="x", range=(-1, 1)),
]

def data():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 16, 3)).astype(np.float32)
    label = np.concatenate([np.arange(3), rng.integers(0, 3, 13)]).astype(np.int32)
    return {"x": x, "y": y, "label": label, "m": rng.random(16) < 0.8}, np.arange(16) < 13

@jax.jit
def states(context, mask):
    return [metric.get_state_from_context(context, padding_mask=mask) for metric in METRICS]
"""


def sharded(tree, mesh):
    return jax.device_put(tree, NamedSharding(mesh, PartitionSpec("batch")))


def numbers(states):
    return jax.tree.map(np.asarray, [metrics.to_host(state).compute() for state in states])


def agree(left, right):
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


def test_sharded_over_the_devices_there_are():
    scope = {}
    exec(MEASURED, scope)
    mesh = Mesh(np.array(jax.devices()), ("batch",))
    batch = scope["data"]()
    whole, split = scope["states"](*batch), scope["states"](*sharded(batch, mesh))
    agree(numbers(whole), numbers(split))
    assert int(whole[3].count) == int(split[3].count) == 13


def test_a_state_may_span_devices_and_still_merge():
    mesh = Mesh(np.array(jax.devices()), ("batch",))
    state = metrics.AverageState.from_values(sharded(jnp.arange(16.0), mesh))
    assert metrics.to_host(state).merge(state).compute() == 7.5


def run(code, *arguments, devices):
    environment = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        env={"PATH": "", "PYTHONPATH": str(REPOSITORY), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(*children):
    results = [child.communicate(timeout=100) for child in children]
    for child, (_, errors) in zip(children, results, strict=True):
        assert child.returncode == 0, errors[-3000:]
    # Gloo talks on the standard output too.
    return [output.split()[-1] for output, _ in results]


@pytest.mark.process
def test_eight_devices_give_the_values_of_one():
    code = (
        MEASURED
        + """
from jax.sharding import Mesh, NamedSharding, PartitionSpec
assert len(jax.devices()) == 8
sharding = NamedSharding(Mesh(np.array(jax.devices()), ("batch",)), PartitionSpec("batch"))
one = states(*data())
context, mask = data()
pad = lambda array: jax.device_put(array, sharding)
eight = states({name: pad(array) for name, array in context.items()}, pad(mask))
for left, right in zip(one, eight, strict=True):
    assert len(jax.tree.leaves(right)[0].sharding.device_set) == 8
    left, right = metrics.to_host(left).compute(), metrics.to_host(right).compute()
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)
loss = lambda x: Quartic()(preds=x, targets=context["y"])
np.testing.assert_allclose(jax.grad(loss)(pad(context["x"])), jax.grad(loss)(context["x"]), rtol=1e-6)
print("agreed")
"""
    )
    assert finish(run(code, devices=8)) == ["agreed"]


@pytest.mark.process
def test_two_hosts_gather_what_they_collected():
    code = (
        MEASURED
        + """
import sys
from jax.sharding import Mesh, NamedSharding, PartitionSpec
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(sys.argv[1], num_processes=2, process_id=int(sys.argv[2]))
sharding = NamedSharding(Mesh(np.array(jax.devices()), ("batch",)), PartitionSpec("batch"))
context, mask = data()
wanted = [metrics.to_host(state).compute() for state in states(context, mask)]
split = lambda array: jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])
spread = states({name: split(array) for name, array in context.items()}, split(mask))
assert any(not leaf.is_fully_addressable for leaf in jax.tree.leaves(spread))
for left, right in zip(wanted, spread, strict=True):
    right = metrics.to_host(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right.merge(type(right).empty()).compute()), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)
print("agreed")
"""
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    assert finish(*(run(code, address, str(index), devices=2) for index in range(2))) == ["agreed", "agreed"]
