"""States travel to the host bit for bit and merge there in 64 bits."""

from __future__ import annotations

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from kauldron_core import kd
from kauldron_core.evals.packing import Stack, gathered, merged, merged_rows, pack, split
from kauldron_core.forward import AuxiliariesState


@flax.struct.dataclass
class Everything(kd.metrics.AutoState):
    """Leaves of all kinds: small and large, of 32 bits and of others."""

    rows: jax.Array = kd.metrics.concat_field()
    flags: jax.Array = kd.metrics.max_field()
    half: jax.Array = kd.metrics.sum_field()
    least: jax.Array = kd.metrics.min_field()


def _batch(number: Any) -> AuxiliariesState:
    rows = jnp.arange(100, dtype=jnp.int32) - number
    everything = Everything(
        rows=rows,
        flags=jnp.stack([jnp.asarray(number == 2), jnp.asarray(False)]),
        half=jnp.asarray(number, jnp.bfloat16),
        least=jnp.asarray(-number, jnp.float32),
    )
    mean = kd.metrics.AverageState(total=jnp.float32(16_777_216.0), count=jnp.int32(16_777_217))
    return AuxiliariesState(loss_states={"mean": mean}, metric_states={"all": everything})


def test_many_batches_merge_as_one_by_one() -> None:
    """M08: many batches merge as one by one."""
    packed = [jax.jit(lambda states: pack(states))(_batch(number)) for number in range(5)]
    found = merged(packed)
    mean = found.loss_states["mean"]
    assert (mean.total, mean.count) == (5 * 16_777_216, 5 * 16_777_217)
    assert mean.total.dtype == np.float64 and mean.count.dtype == np.int64
    values = found.metric_states["all"].compute()
    one_by_one = AuxiliariesState()
    for number in range(5):
        one_by_one = one_by_one.merge(_batch(number).to_host())
    expected = one_by_one.metric_states["all"].compute()
    for name in ("rows", "flags", "half", "least"):
        np.testing.assert_array_equal(getattr(values, name), getattr(expected, name))


def test_small_leaves_are_one_array() -> None:
    packed = jax.jit(lambda states: pack(states))(_batch(7))
    assert packed.small.shape == (3,)
    assert sorted(leaf.shape for leaf in packed.large) == [(), (2,), (100,)]


def test_several_batches_in_a_call_are_what_they_are_alone() -> None:
    """M08: Groups of 4 and 3 (filled up) merge as five and two by themselves, and in the same order."""
    numbers = jnp.arange(7, dtype=jnp.int32)
    alone = [jax.jit(lambda number: pack(_batch(number)))(number) for number in numbers]
    many = jax.jit(lambda some: jax.lax.map(lambda number: pack(_batch(number)), some))
    groups = [Stack(many(numbers[:4]), 4), Stack(many(jnp.array([4, 5, 6, 6])), 3)]
    first, second = split(gathered(groups), 5)
    for rows, expected in ((first, merged(alone[:5])), (second, merged(alone[5:])), (gathered(groups), merged(alone))):
        jax.tree.map(np.testing.assert_array_equal, merged_rows(rows), expected)
