"""Keys fold by name, split and make seeds, the same in every process and every version."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kauldron_core import random as kd_random
from kauldron_core.random import PRNGKey


def data(key):
    return np.asarray(jax.random.key_data(key.rng))


def test_every_public_name():
    assert kd_random.__all__ == ["PRNGKey"]


def test_a_name_folds_in_as_the_first_four_bytes_of_its_sha1():
    # sha1('dropout') = faca6eb1..., by sha1sum.
    assert np.array_equal(data(PRNGKey(3).fold_in("dropout")), data(PRNGKey(3).fold_in(0xFACA6EB1)))
    assert not np.array_equal(data(PRNGKey(3).fold_in("dropout")), data(PRNGKey(3).fold_in("params")))


def test_the_same_streams_as_jax():
    assert np.array_equal(data(PRNGKey(5)), jax.random.PRNGKey(5))
    assert np.array_equal(data(PRNGKey(5).fold_in(7)), jax.random.fold_in(jax.random.PRNGKey(5), 7))
    assert np.array_equal(PRNGKey(5).normal((3,)), jax.random.normal(jax.random.PRNGKey(5), (3,)))
    assert np.array_equal(data(PRNGKey(5).next()), jax.random.split(jax.random.PRNGKey(5), 1)[0])


def test_split_unpacks_indexes_and_counts():
    keys = PRNGKey(0).split(3)
    first, second, third = keys
    assert len(keys) == 3
    assert len({data(key).tobytes() for key in (first, second, third)}) == 3
    assert np.array_equal(data(keys[1]), data(second))


def test_a_seed_fits_32_bits_and_is_repeatable():
    seeds = [PRNGKey(seed).as_seed() for seed in range(50)]
    assert all(0 <= seed < 2**32 for seed in seeds)
    assert seeds == [PRNGKey(seed).as_seed() for seed in range(50)]
    assert len(set(seeds)) == 50
    assert PRNGKey(1).as_seed() == int(jax.random.bits(jax.random.PRNGKey(1)))


@pytest.mark.parametrize("key", [jax.random.key(4), jax.random.PRNGKey(4), PRNGKey(4), jnp.asarray(4), np.int64(4), 4])
def test_seeds_and_raw_and_typed_keys_are_accepted(key):
    assert np.array_equal(data(PRNGKey(key)), jax.random.PRNGKey(4))


def test_a_key_is_a_pytree_under_jit_and_vmap():
    draw = jax.jit(lambda key, step: key.fold_in("noise").fold_in(step).uniform())
    assert draw(PRNGKey(0), 3) == draw(PRNGKey(0), 3)
    rows = jax.vmap(lambda key: key.uniform((2,)))(PRNGKey(0).split(4))
    assert rows.shape == (4, 2)
    seeds = jax.vmap(lambda seed: PRNGKey(seed).fold_in("params").rng)(jnp.arange(3))
    assert np.array_equal(seeds[2], data(PRNGKey(2).fold_in("params")))


def test_numpy_sees_the_words_and_unknown_names_are_refused():
    assert np.array_equal(np.asarray(PRNGKey(0)), [0, 0])
    assert "normal" in dir(PRNGKey(0))
    with pytest.raises(AttributeError, match="no attribute 'gaussian'"):
        PRNGKey(0).gaussian  # noqa: B018
