"""What a checked call costs: an eager call with three array arguments, and a jitted step.

    python benchmarks/typechecked.py

Prints microseconds a call, and the ratio of the jitted step with the check to the one without.
"""

import statistics
import timeit

import jax
import jax.numpy as jnp
import numpy as np

from kauldron_core.ktyping import Float, Int, typechecked

ROUNDS = 9


def plain(x: Float["*b n c"], y: Float["*b n"], z: Int["n"]) -> Float["*b c"]:
    return x[..., 0, :]


def step(x: Float["b n"], y: Float["n m"]) -> Float["b m"]:
    return jnp.tanh(x @ y)


def measure(function, *arguments, calls: int) -> float:
    """Returns the median over rounds of microseconds a call."""
    rounds = [timeit.timeit(lambda: jax.block_until_ready(function(*arguments)), number=calls) for _ in range(ROUNDS)]
    return statistics.median(rounds) / calls * 1e6


def jitted_ratios(rounds: int = 5) -> list[float]:
    """Returns the time of the jitted step with the check over that without, ascending."""
    arrays = [jnp.ones((8, 16)), jnp.ones((16, 4))]
    bare, checked = jax.jit(step), jax.jit(typechecked(step))
    pairs = [(measure(bare, *arrays, calls=500), measure(checked, *arrays, calls=500)) for _ in range(rounds)]
    return sorted(b / a for a, b in pairs)


def main() -> None:
    """Prints the figures."""
    for name, make in (("numpy", np.asarray), ("jax", jnp.asarray)):
        arrays = [make(np.ones((2, 3, 4, 5))), make(np.ones((2, 3, 4))), make(np.ones(4, np.int32))]
        bare, checked = (measure(f, *arrays, calls=2000) for f in (plain, typechecked(plain)))
        print(f"eager call, three {name} arguments: {bare:.1f} us bare, {checked:.1f} us checked")
    ratios = jitted_ratios()
    print(f"jitted step, checked over bare: {statistics.median(ratios):.2f} (from {ratios[0]:.2f} to {ratios[-1]:.2f})")


if __name__ == "__main__":
    main()
