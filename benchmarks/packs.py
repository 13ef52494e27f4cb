"""A sweep over learning rates, packed into one program, against one trial after the other.

    python benchmarks/packs.py [--trials=8,64,512] [--alone=8] [--peer=PYTHON] [--convnet=64] [--command=512]

Prints the seconds of a whole sweep, compilation included, in a process that has imported everything: ours packed, ours
alone (the second and later trials share the compiled step), a hand-written `jax.jit` loop that is compiled for each
trial, and with `--peer`, the Python of an environment with Kauldron 1.4.2, its trainer in a for loop. Where one by one,
`--alone` trials are run and the time is scaled, which is marked by a star. All write what they measure nowhere; `equal`
is the largest difference between the final parameters of ours and of the hand-written loop. `plan` is what planning
takes in a sweep: finding out what packs, three steps alone and packed, and a few steps timed. The last line says how
the time packed grows.

With `--convnet`, so many trials of a small convolutional net on the digits, packed and alone, and what the planner
says: on a CPU packed is slower. With `--command`, the whole command `kdr sweep` with so many trials of the first sweep:
Ray, its workers, a checkpoint for each trial and MLflow included.
"""

# No `annotations` from `__future__`: `Key` in the model below is the one of whichever library trains.
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("NPROC", "1")

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

NUM_STEPS = 200
BATCH_SIZE = 32


def load() -> dict[str, np.ndarray]:
    """Returns the points that the model learns to give back."""
    return {"x": np.random.default_rng(0).normal(size=(1024, 16)).astype(np.float32)}


def rates(count: int) -> list[float]:
    """Returns learning rates, evenly spaced in their logarithms."""
    return np.logspace(-4, -1, count).tolist()


def model_class(Key: Any) -> Any:
    """Returns the autoencoder of the walk-through, wired by `Key`."""

    class Autoencoder(nn.Module):
        x: Key = "batch.x"

        @nn.compact
        def __call__(self, x):
            return nn.Dense(16)(nn.relu(nn.Dense(32)(x)))

    return Autoencoder


try:
    from kauldron_core.kontext import Key
except ImportError:  # In the environment of the peer.
    from kauldron.kontext import Key

Model = model_class(Key)


def trainer_of(kd: Any, rate: float, **fields: Any) -> Any:
    """Returns the experiment of one trial, in the library `kd`."""
    return kd.train.Trainer(
        seed=0,
        num_train_steps=NUM_STEPS,
        train_ds=kd.data.InMemoryPipeline(loader=load, batch_size=BATCH_SIZE, shuffle=True),
        model=Model(),
        train_losses={"l2": kd.losses.L2(preds="preds", targets="batch.x")},
        optimizer=optax.adam(rate),
        **fields,
    )


def configs(count: int, **fields: Any) -> list[Any]:
    """Returns the sweep as configs."""
    from benchmarks import packs as here
    from kauldron_core import konfig

    with konfig.imports():
        import optax as optax_

        from kauldron_core import kd

    made = []
    for rate in rates(count):
        cfg = kd.train.Trainer(
            seed=0,
            num_train_steps=NUM_STEPS,
            log_metrics_every=NUM_STEPS,
            train_ds=kd.data.InMemoryPipeline(loader=here.load, batch_size=BATCH_SIZE, shuffle=True),
            train_losses={"l2": kd.losses.L2(preds="preds", targets="batch.x")},
            optimizer=optax_.adam(learning_rate=rate),
            checkpointer=None,
            **fields,
        )
        cfg.model = konfig.ConfigDict({"__qualname__": "benchmarks.packs:Model"})
        made.append(cfg)
    return made


def get_config() -> Any:
    """Returns one trial of the sweep, for `kdr sweep`; it saves its last state."""
    from kauldron_core import konfig

    with konfig.imports():
        from kauldron_core import kd
    cfg = configs(1, steps_per_call=20)[0]
    cfg.checkpointer = kd.ckpts.Checkpointer(save_interval_steps=NUM_STEPS)
    return cfg


def convnet_configs(count: int) -> list[Any]:
    """Returns a sweep of a convolutional net on the digits."""
    from kauldron_core import konfig
    from pipelines.configs import digits

    with konfig.imports():
        from kauldron_core import kd
    made = []
    for rate in rates(count):
        cfg = digits.get_config()
        cfg.num_train_steps = NUM_STEPS
        cfg.log_metrics_every = NUM_STEPS
        cfg.model = kd.nn.ConvNet(features=(16, 32), num_classes=10, image="batch.image")
        cfg.train_ds.transforms = [kd.data.Rearrange(key="image", pattern="h w -> h w 1")]
        cfg.optimizer.learning_rate = rate
        cfg.checkpointer = None
        cfg.evals = {}
        made.append(cfg)
    return made


def packed(sweep: list[Any]) -> tuple[float, Any]:
    """Returns the seconds of a sweep as one pack, tracing included, and how it ended."""
    from kauldron_core import packs

    jax.clear_caches()
    began = time.perf_counter()
    result = packs.train(sweep)
    jax.block_until_ready(result.states)
    return time.perf_counter() - began, result


def planned(sweep: list[Any]) -> tuple[float, Any]:
    """Returns the seconds that planning takes in a sweep, and the plan."""
    from kauldron_core import packs

    jax.clear_caches()
    began = time.perf_counter()
    plan = packs.refine(sweep, packs.plan(sweep))
    return time.perf_counter() - began, plan


def alone(sweep: list[Any]) -> list[float]:
    """Returns the seconds of each trial, one by one; only the first compiles."""
    from kauldron_core import konfig
    from kauldron_core.train.step import compiled

    jax.clear_caches()
    compiled.clear()
    seconds = []
    for cfg in sweep:
        began = time.perf_counter()
        jax.block_until_ready(konfig.resolve(cfg).train())
        seconds.append(time.perf_counter() - began)
    return seconds


def by_hand(chosen: list[float], batches: list[Any], params: Any) -> tuple[float, list[Any]]:
    """Returns the seconds of a hand-written loop for each rate, compiled each time, and the final parameters.

    Parameters are initialised each time, as one does, and then replaced by `params`, to compare what comes out.
    """
    module, finals = Model(), []
    began = time.perf_counter()
    for rate in chosen:
        optimizer = optax.adam(rate)

        @jax.jit
        def step(params, opt_state, batch, optimizer=optimizer):
            def loss(params):
                return jnp.mean((module.apply({"params": params}, batch["x"]) - batch["x"]) ** 2)

            value, grads = jax.value_and_grad(loss)(params)
            updates, opt_state = optimizer.update(grads, opt_state, params)
            return optax.apply_updates(params, updates), opt_state, value

        jax.block_until_ready(module.init(jax.random.key(0), batches[0]["x"]))
        own, opt_state = params, optimizer.init(params)
        for batch in batches:
            own, opt_state, _ = step(own, opt_state, batch)
        finals.append(jax.block_until_ready(own))
    return time.perf_counter() - began, finals


def peer_seconds(count: int) -> float:
    """Returns the seconds of so many trials of the other library, in this process."""
    from kauldron import kd

    began = time.perf_counter()
    for rate in rates(count):
        trainer = trainer_of(kd, rate, workdir="/nonexistent")
        state = trainer.init_state()
        for _, batch in zip(range(NUM_STEPS), trainer.train_ds, strict=False):
            state, _ = trainer.trainstep.step(state=state, batch=batch)
        jax.block_until_ready(state)
    return time.perf_counter() - began


def difference(states: Any, rows: list[int], finals: list[Any]) -> float:
    """Returns the largest difference between parameters of a pack and those made by hand."""
    pairs = [
        (np.asarray(a)[row], np.asarray(b))
        for row, final in zip(rows, finals, strict=True)
        for a, b in zip(jax.tree.leaves(states.params), jax.tree.leaves(final), strict=True)
    ]
    return max(float(np.max(np.abs(a - b))) for a, b in pairs)


def convnet(count: int, num_alone: int) -> str:
    """Returns what a sweep of the convolutional net takes."""
    sweep = convnet_configs(count)
    own = alone(sweep[:num_alone])
    ours = own[0] + float(np.median(own[1:])) * (count - 1)
    seconds, _ = packed(sweep)
    _, plan = planned(sweep)
    star = "*" if num_alone < count else ""
    return (
        f"{count} trials of a convolutional net on the digits: packed {seconds:.1f} s, alone {ours:.1f}{star} s\n"
        + "\n".join(plan.explain())
    )


def command_seconds(count: int, *words: str) -> float:
    """Returns the seconds of the whole command `kdr sweep` with so many trials."""
    with tempfile.TemporaryDirectory() as root:
        command = [sys.executable, "-m", "pipelines.sweep", __file__, f"--run.root={root}/runs", "--run.name=packs"]
        axis = f"--sweep.optimizer.learning_rate=logspace(1e-4, 1e-1, {count})"
        env = {**os.environ, "MLFLOW_TRACKING_URI": f"sqlite:///{root}/mlflow.db"}
        env.pop("NPROC")
        began = time.perf_counter()
        subprocess.run([*command, axis, *words], check=True, stdout=subprocess.DEVNULL, env=env)
        return time.perf_counter() - began


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", default="8,64,512")
    parser.add_argument("--alone", type=int, default=8, help="trials to run one by one")
    parser.add_argument("--peer", help="Python of an environment with Kauldron 1.4.2")
    parser.add_argument("--convnet", type=int, default=0, help="trials of a convolutional net")
    parser.add_argument("--command", type=int, default=0, help="trials of the whole command")
    parser.add_argument("--as-peer", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.as_peer:
        print(json.dumps(peer_seconds(arguments.as_peer)))
        return
    from rich.console import Console
    from rich.table import Table

    from kauldron_core import konfig

    peer = None
    if arguments.peer:
        command = [arguments.peer, __file__, f"--as-peer={arguments.alone}"]
        peer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    own = alone(configs(arguments.alone))
    lead = konfig.resolve(configs(1)[0])
    data = iter(lead.train_ds)
    batches = [next(data) for _ in range(NUM_STEPS)]
    params = lead.init_state().params
    table = Table(title=f"a sweep of trials with {NUM_STEPS} steps, in seconds", title_justify="left")
    for name in (
        "trials",
        "packed",
        "plan",
        "alone",
        "by hand",
        "Kauldron",
        "alone / packed",
        "by hand / packed",
        "equal",
    ):
        table.add_column(name, justify="right")
    growth = {}
    for count in map(int, arguments.trials.split(",") if arguments.trials else ()):
        sweep = configs(count, steps_per_call=20)
        seconds, result = packed(sweep)
        growth[count] = seconds
        rows = np.linspace(0, count - 1, min(arguments.alone, count)).astype(int).tolist()
        hand, finals = by_hand([rates(count)[row] for row in rows], batches, params)
        hand *= count / len(rows)
        ours = own[0] + float(np.median(own[1:])) * (count - 1)
        theirs = None if peer is None else peer * count / arguments.alone
        star = "" if count <= arguments.alone else "*"
        table.add_row(
            str(count),
            f"{seconds:.2f}",
            f"{planned(sweep)[0]:.1f}",
            f"{ours:.1f}{star}",
            f"{hand:.1f}{star}",
            "" if theirs is None else f"{theirs:.1f}{star}",
            f"{ours / seconds:.1f}",
            f"{hand / seconds:.1f}",
            "" if theirs is None else f"{theirs / seconds:.0f}",
            f"{difference(result.states, rows, finals):.1e}",
        )
    console = Console(width=120)
    console.print(table)
    if len(growth) > 1:
        (few, first), (many, last) = min(growth.items()), max(growth.items())
        console.print(f"packed, {many} trials take {last / first:.2f} times as long as {few}")
    if arguments.convnet:
        console.print(convnet(arguments.convnet, arguments.alone), highlight=False)
    if arguments.command:
        whole = command_seconds(arguments.command)
        theirs = None if peer is None else peer * arguments.command / arguments.alone
        against = (
            "" if theirs is None else f"; Kauldron in a for loop {theirs:.0f}* s, {theirs / whole:.1f} times as long"
        )
        console.print(f"kdr sweep with {arguments.command} trials: {whole:.1f} s{against}")


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    main()
