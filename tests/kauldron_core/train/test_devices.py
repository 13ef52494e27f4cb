"""Training over several devices, and over several processes: the same numbers as on one."""

import json
import os
import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[3]

TRAIN = """
import dataclasses, json, os, sys
import jax

if len(sys.argv) > 2:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(sys.argv[2], num_processes=2, process_id=int(sys.argv[3]))
import flax.linen as nn
from kauldron_core import kd, kontext
from kauldron_core.train import Evaluated, Logged
from tests.kauldron_core import experiments

def mesh(*axes, shape):
    return kd.sharding.MeshSpec(axes=axes, ici_shape=shape)

FSDP = kd.sharding.ShardingStrategy(
    mesh=mesh("data", "fsdp", shape=(2, -1)), params=kd.sharding.FSDPSharding(min_size_to_shard_mb=0)
)
TWO_BY_FOUR = kd.sharding.ShardingStrategy(
    mesh=mesh("data", "model", shape=(2, -1)),
    params=kd.sharding.PathRules(rules={"Dense_0.kernel": (None, "model"), "Dense_1.kernel": ("model", None)}),
)
class Named(nn.Module):
    # Says where an activation is, by the axes of the mesh.

    x: kontext.Key = "batch.x"

    @nn.compact
    def __call__(self, x):
        x = nn.tanh(nn.Dense(16)(x))
        return nn.Dense(experiments.CLASSES)(kd.sharding.with_sharding_constraint(x, ("data", "model")))


CASES = {
    "replicated": {},
    "fsdp": {"sharding": FSDP},
    "2x4": {"sharding": TWO_BY_FOUR},
    "calls": {"sharding": FSDP, "steps_per_call": 3},
    "named": {"sharding": TWO_BY_FOUR, "model": Named()},
    # Two hosts hold the rows of a batch in another order, in which dropout would hit others.
    "plain": {"model": kd.nn.MLP(hidden=16, features=experiments.CLASSES, x="batch.x")},
}
found = {}
for name in sys.argv[1].split(","):
    trainer = experiments.trainer(
        workdir=os.path.join(os.environ["FOLDER"], name),
        num_train_steps=8,
        log_metrics_every=2,
        evals={"test": kd.evals.Evaluator(run=kd.evals.Final())},
        **{"model": kd.nn.MLP(hidden=16, features=experiments.CLASSES, dropout=0.2, x="batch.x"), **CASES[name]},
    )
    events = list(trainer.iter_train())
    state = trainer.checkpointer.load(trainer.state_specs).state
    kernel = state.params["Dense_0"]["kernel"]
    mu = state.opt_state[0].mu["Dense_0"]["kernel"]
    found[name] = {
        "losses": [event.values["losses/total"] for event in events if isinstance(event, Logged)],
        "test": [event.values["losses/total"] for event in events if isinstance(event, Evaluated)],
        "examples": [event.num_examples for event in events if isinstance(event, Evaluated)],
        "kernel": list(kernel.addressable_shards[0].data.shape),
        "mu": list(mu.addressable_shards[0].data.shape),
    }
print("RESULT", json.dumps(found), flush=True)
"""


def start(folder, *arguments, devices):
    environment = {
        **os.environ,
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "PYTHONPATH": str(ROOT),
        "FOLDER": str(folder),
    }
    return subprocess.Popen(
        [sys.executable, "-c", TRAIN, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def result(child):
    output = child.communicate(timeout=110)[0]
    assert child.returncode == 0, output[-8000:]
    return json.loads(output.split("RESULT", 1)[1].splitlines()[0])


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return result(start(tmp_path_factory.mktemp("alone"), "replicated,plain", devices=1))


@pytest.mark.process
def test_eight_devices_train_like_one(alone, tmp_path):
    found = result(start(tmp_path, "replicated,fsdp,2x4,calls,named", devices=8))
    assert np.isfinite(found.pop("named")["test"]).all()
    for case in found.values():
        assert_like(case, alone["replicated"])
    assert found["replicated"]["kernel"] == [4, 16]
    # 4 devices along fsdp and model: each holds its part, and that of the moments, also after a restart.
    assert found["fsdp"]["kernel"] == found["fsdp"]["mu"] == found["calls"]["kernel"] == [4, 4]
    assert found["2x4"]["kernel"] == found["2x4"]["mu"] == [4, 4]


@pytest.mark.process
def test_two_processes_train_like_one(alone, tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    hosts = [start(tmp_path, "plain", address, str(index), devices=2) for index in range(2)]
    for found in map(result, hosts):
        assert_like(found["plain"], alone["plain"])


def assert_like(case, other):
    np.testing.assert_allclose(case["losses"], other["losses"], rtol=1e-4)
    np.testing.assert_allclose(case["test"], other["test"], rtol=1e-4)
    assert case["examples"] == [70]
