"""States travel to the host bit for bit and merge there in 64 bits."""

from __future__ import annotations

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from kauldron_core import kd
from kauldron_core.evals.packing import merged, pack
from kauldron_core.forward import AuxiliariesState


@flax.struct.dataclass
class Everything(kd.metrics.AutoState):
    """Leaves of all kinds: small and large, of 32 bits and of others."""

    rows: jax.Array = kd.metrics.concat_field()
    flags: jax.Array = kd.metrics.max_field()
    half: jax.Array = kd.metrics.sum_field()
    least: jax.Array = kd.metrics.min_field()


def _batch(number: int) -> AuxiliariesState:
    rows = jnp.arange(100, dtype=jnp.int32) - number
    everything = Everything(
        rows=rows,
        flags=jnp.array([number == 2, False]),
        half=jnp.bfloat16(number),
        least=jnp.float32(-number),
    )
    mean = kd.metrics.AverageState(total=jnp.float32(16_777_216.0), count=jnp.int32(16_777_217))
    return AuxiliariesState(loss_states={"mean": mean}, metric_states={"all": everything})


def test_m08_many_batches_merge_as_one_by_one() -> None:
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
