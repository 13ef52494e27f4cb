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


def start(folder, *arguments, devices, program=TRAIN):
    environment = {
        **os.environ,
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "PYTHONPATH": str(ROOT),
        "FOLDER": str(folder),
    }
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
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


SHARES = """
import json, sys
import jax

jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(sys.argv[1], num_processes=2, process_id=int(sys.argv[2]))
from kauldron_core import kd
from kauldron_core.errors import ConfigError
from tests.kauldron_core import experiments

host = jax.process_index()


def fewer():
    return {name: column[: 70 - 6 * host] for name, column in experiments.load_points().items()}


def broken():
    return experiments.load_points() if host == 0 else {"x": 1 / 0}


CASES = {
    "doubled": {"shard_index": 0, "shard_count": 1},
    "same index": {"shard_index": 1, "shard_count": 2},
    "seed": {"seed": host},
    "batch size": {"batch_size": 16 + 2 * host},
    "examples": {"loader": fewer},
    "broken": {"loader": broken},
}
found = {}
for name, fields in CASES.items():
    trainer = experiments.trainer(train_ds=experiments.points(shuffle=True, **fields), checkpointer=None)
    try:
        next(trainer.iter_train())
    except Exception as error:
        found[name] = f"{type(error).__name__}: {error}"
try:
    next(experiments.trainer(seed=host, train_ds=experiments.points(seed=0), checkpointer=None).iter_train())
except ConfigError as error:
    found["trainer's seed"] = str(error)
evals = {"val": kd.evals.Evaluator(run=kd.evals.EveryNSteps(1), ds=experiments.points(loader=fewer))}
events = experiments.trainer(checkpointer=None, evals=evals).iter_train()
try:
    next(events)
except ConfigError as error:
    found["evaluator"] = str(error)
print("RESULT", json.dumps(found), flush=True)
"""


@pytest.mark.process
def test_hosts_with_other_shares_are_refused_at_the_start_on_every_host():
    """F12: hosts with one share, another seed, batch size or number of examples trained on doubled data in silence."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    hosts = [start(".", address, str(index), devices=1, program=SHARES) for index in range(2)]
    first, second = map(result, hosts)
    for found in (first, second):
        assert found["doubled"].startswith(
            "ConfigError: train_ds.shard_index: the shares of 2 hosts are 0 of 1 on hosts 0, 1"
        )
        assert "shares of 2 hosts are 1 of 2 on hosts 0, 1; each needs one of its own" in found["same index"]
        assert "train_ds.seed: hosts differ: 0 on host 0, 1 on host 1" in found["seed"]
        assert "train_ds.batch_size: hosts differ: 16 on host 0, 18 on host 1" in found["batch size"]
        assert "train_ds.num_examples: hosts differ: 70 on host 0, 64 on host 1" in found["examples"]
        assert found["trainer's seed"].startswith("seed: hosts differ: 0 on host 0, 1 on host 1")
        assert found["evaluator"].startswith("evals.val.ds.num_examples: hosts differ: 70 on host 0, 64 on host 1")
    assert "not every host can open its data: fine on host 0, ZeroDivisionError" in first["broken"]
    assert "ZeroDivisionError" in second["broken"]


def assert_like(case, other):
    np.testing.assert_allclose(case["losses"], other["losses"], rtol=1e-4)
    np.testing.assert_allclose(case["test"], other["test"], rtol=1e-4)
    assert case["examples"] == [70]
