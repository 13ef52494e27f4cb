"""A part of a checkpoint can be read alone, and what can't be read is said once."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import optax
import pytest

from kauldron_core import ckpts
from kauldron_core.errors import ConfigError
from tests.kauldron_core.ckpts import states

WITHOUT_OPTIMIZER = ("step", "params", "collections")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    workdir = tmp_path_factory.mktemp("saved")
    states.save(workdir, 3, 8)
    return workdir / "checkpoints"


def test_parts_can_be_read_without_the_optimizer(saved: pathlib.Path) -> None:
    found = ckpts.load(saved, jax.eval_shape(states.train_state), only=WITHOUT_OPTIMIZER)
    assert (found.step, found.data_state) == (8, {"next": 8})
    assert states.equal(found.state.params, states.train_state(8).params)
    assert states.equal(found.state.collections, states.train_state(8).collections)
    assert found.state.opt_state is None
    assert found.state.health is None


def test_parts_that_are_not_read_need_not_fit(saved: pathlib.Path) -> None:
    template = states.train_state(optimizer=optax.sgd(0.1, momentum=0.9))
    with pytest.raises(ckpts.StateMismatch, match="opt_state"):
        ckpts.load(saved, template)
    assert ckpts.load(saved, template, only=WITHOUT_OPTIMIZER).step == 8
    with pytest.raises(ckpts.StateMismatch, match=r"params\.encoder\.kernel") as refused:
        ckpts.load(saved, states.train_state(width=5), only=("params",))
    assert "opt_state" not in str(refused.value)


def test_a_part_that_the_state_lacks_is_refused(saved: pathlib.Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown part of the state 'param'\. Did you mean 'params'"):
        ckpts.load(saved, states.train_state(), only=("param",))


def test_a_dictionary_can_be_read_in_parts(tmp_path: pathlib.Path) -> None:
    checkpointer = ckpts.Checkpointer(workdir=tmp_path)
    checkpointer.save({"a": jnp.ones(2), "b.c": [jnp.zeros(3)]}, step=1)
    checkpointer.wait()
    found = ckpts.load(tmp_path / "checkpoints", {"a": jnp.zeros(2), "b.c": [jnp.ones(3)]}, only=("a",))
    assert found.state["a"].tolist() == [1, 1]
    assert found.state["b.c"] is None


@pytest.mark.process
def test_a_failed_read_is_told_in_one_line(tmp_path: pathlib.Path) -> None:
    """TensorStore prints a traceback for each array whose answer comes after Orbax has closed its event loop."""
    program = (
        "import pathlib, sys\n"
        "import jax.numpy as jnp\n"
        "from kauldron_core import ckpts\n"
        "checkpointer = ckpts.Checkpointer(workdir=sys.argv[1])\n"
        "state = {f'a{i}': jnp.full((100, 100), i) for i in range(60)}\n"
        "for step in (1, 2):\n"
        "    checkpointer.save(state, step=step)\n"
        "checkpointer.wait()\n"
        "for file in pathlib.Path(sys.argv[1], 'checkpoints', 'ckpt_2', 'state').rglob('d/*'):\n"
        "    file.write_bytes(b'')\n"
        "for _ in range(3):\n"
        "    print(checkpointer.load(state).step)\n"
        "print(len(ckpts.verify(checkpointer.directory / 'ckpt_2')) > 0)\n"
        "print(checkpointer.load(state, only=['a0', 'a1']).step)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=100, check=False
    )
    assert ended.stdout.split() == ["1", "1", "1", "True", "1"], ended.stderr
    assert ended.stderr.count("ckpt_2: damaged") == 4
    assert "Event loop is closed" not in ended.stderr
    assert "Traceback" not in ended.stderr
