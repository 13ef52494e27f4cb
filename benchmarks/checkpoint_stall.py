"""What an asynchronous save costs the training loop: ours, and an Orbax AsyncCheckpointer called by hand.

    python benchmarks/checkpoint_stall.py [--width=1024] [--rounds=5]

Each round trains the same steps three times: without a save, with one of ours, with one by hand; the save is made in
the middle and goes on in the background. Prints how long the loop waits in the call that saves, and how much longer
all the steps take than without a save (on few cores the background work takes them from the steps), with the spread.
"""

import argparse
import pathlib
import shutil
import statistics
import tempfile
import time

import jax
import jax.numpy as jnp
import optax
import orbax.checkpoint as ocp

from kauldron_core import ckpts

STEPS, SAVED_AT, LAYERS, BATCH = 40, 10, 4, 64


def make_training(width: int):
    """Returns a state with Adam, and the jitted step that takes it."""
    optimizer = optax.adam(1e-3)
    keys = jax.random.split(jax.random.key(0), LAYERS)
    params = [jax.random.normal(key, (width, width)) / width**0.5 for key in keys]
    batch = jax.random.normal(jax.random.key(1), (BATCH, width))

    def loss(params):
        hidden = batch
        for kernel in params:
            hidden = jnp.tanh(hidden @ kernel)
        return jnp.mean(hidden**2)

    def step(state):
        params, opt_state = state["params"], state["opt_state"]
        updates, opt_state = optimizer.update(jax.grad(loss)(params), opt_state)
        return {"params": optax.apply_updates(params, updates), "opt_state": opt_state}

    return {"params": params, "opt_state": optimizer.init(params)}, jax.jit(step, donate_argnums=0)


class Nothing:
    """Saves nothing."""

    def save(self, state, step):
        pass

    def poll(self):
        pass

    def wait(self):
        pass

    def close(self):
        pass


class Ours(Nothing):
    """The checkpointer of this package."""

    def __init__(self, folder: pathlib.Path):
        self._checkpointer = ckpts.Checkpointer(workdir=folder, max_to_keep=1)
        self.wait, self.close = self._checkpointer.wait, self._checkpointer.close
        self.poll = self._checkpointer.finished  # As a training loop does at each step.

    def save(self, state, step):
        self._checkpointer.save(state, {"next": step}, step=step)


class ByHand(Nothing):
    """What a loop without this package would do."""

    def __init__(self, folder: pathlib.Path):
        self._folder = folder
        self._checkpointer = ocp.AsyncCheckpointer(ocp.CompositeCheckpointHandler())
        self.wait, self.close = self._checkpointer.wait_until_finished, self._checkpointer.close

    def save(self, state, step):
        arguments = ocp.args.Composite(state=ocp.args.PyTreeSave(state), data=ocp.args.JsonSave({"next": step}))
        self._checkpointer.save(self._folder / f"ckpt_{step}", args=arguments)


def measure(saver, state, step, *, first):
    """Returns the seconds of all steps, and those spent in the call that saves."""
    state = jax.block_until_ready(jax.tree.map(jnp.copy, state))
    began = time.perf_counter()
    stall = 0.0
    for number in range(first, first + STEPS):
        state = jax.block_until_ready(step(state))
        if number == first + SAVED_AT:
            save_began = time.perf_counter()
            saver.save(state, number)
            stall = time.perf_counter() - save_began
        saver.poll()
    total = time.perf_counter() - began
    saver.wait()
    return total, stall


def spread(values, unit="ms", *, factor=1e3):
    """Returns the median and the range as text."""
    ordered = sorted(factor * value for value in values)
    return f"{statistics.median(ordered):.2f} {unit} ({ordered[0]:.2f} to {ordered[-1]:.2f})"


def rounds_of(width: int, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Returns for each kind of saver what `measure` found in each round."""
    state, step = make_training(width)
    kinds = {"none": lambda folder: Nothing(), "ours": Ours, "by hand": ByHand}
    found = {kind: [] for kind in kinds}
    folders = {kind: pathlib.Path(tempfile.mkdtemp()) for kind in kinds}
    savers = {kind: make(folders[kind]) for kind, make in kinds.items()}
    for number in range(rounds + 1):
        for kind in list(kinds)[number % 3 :] + list(kinds)[: number % 3]:
            result = measure(savers[kind], state, step, first=1 + number * STEPS)
            if number:  # The first round compiles, imports and starts threads.
                found[kind].append(result)
    for kind in kinds:
        savers[kind].close()
        shutil.rmtree(folders[kind])
    return found


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    megabytes = 3 * LAYERS * arguments.width**2 * 4 / 1e6  # the parameters and Adam's two moments
    print(f"state {megabytes:.0f} MB, {STEPS} steps, one save at step {SAVED_AT}, {arguments.rounds} rounds")
    found = rounds_of(arguments.width, arguments.rounds)
    print(f"a step without a save: {spread([total / STEPS for total, _ in found['none']])}")
    for kind in ("ours", "by hand"):
        pairs = list(zip(found[kind], found["none"], strict=True))
        print(f"{kind}: the call that saves {spread([stall for _, stall in found[kind]])}")
        print(f"{kind}: all steps, more than without {spread([one[0] - none[0] for one, none in pairs])}")
    for what, index in (("the call that saves", 1), ("all steps", 0)):
        ratios = [ours[index] / hand[index] for ours, hand in zip(found["ours"], found["by hand"], strict=True)]
        print(f"{what}, ours over by hand: {spread(ratios, 'x', factor=1)}")


if __name__ == "__main__":
    main()
