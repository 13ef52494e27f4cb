"""What the training loop costs over a hand-written one: three models, in one run, pair by pair.

    python benchmarks/step_overhead.py [--peer=PYTHON] [--models=mlp,convnet] [--rounds=21]
    python benchmarks/step_overhead.py --first-step [--peer=PYTHON]

Prints the time of a step relative to that of a `jax.jit` loop that returns its loss: median and quartiles of the ratios
of pairs that ran right after each other, by the clock, and the median by processor time, which other work on the
machine disturbs less. `ignore` is `on_nonfinite='ignore'`, `20 a call` is `steps_per_call=20`.

`--peer` is the Python of an environment with Kauldron, whose `trainstep.step` is measured against a hand-written loop
in its own process. `--first-step` compares the time from the start of Python until the loss of the first step is known
with that of a script of plain JAX, Flax and Optax.
"""

# No `annotations` from `__future__`: `Key` in the models below is the one of whichever library measures.
import argparse
import dataclasses
import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("NPROC", "1")

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

ENDLESS = 10**9
WINDOW_S = 0.15
STEPS_PER_CALL = 20
SEVERAL = f"{STEPS_PER_CALL} a call"


@dataclasses.dataclass(frozen=True)
class Case:
    """One model with its data.

    Attributes:
      module: Makes the module; its argument is found at `batch.x`.
      examples: All examples, in `x` and `y`.
      batch_size: Examples in a batch.
      loss: From predictions and targets to a loss for each example or position.
    """

    module: Callable[[], nn.Module]
    examples: dict[str, np.ndarray]
    batch_size: int
    loss: Callable[[Any, Any], Any]


def cases(Key: Any) -> dict[str, Case]:
    """Returns the models, wired by `Key`, the type of key paths."""

    class Mlp(nn.Module):
        x: Key = "batch.x"

        @nn.compact
        def __call__(self, x):
            return nn.Dense(16)(nn.relu(nn.Dense(32)(x)))

    class ConvNet(nn.Module):
        x: Key = "batch.x"

        @nn.compact
        def __call__(self, x):
            for features in (16, 32, 32):
                x = nn.relu(nn.Conv(features, (3, 3), strides=2)(x))
            return nn.Dense(10)(x.reshape(x.shape[0], -1))

    class Transformer(nn.Module):
        x: Key = "batch.x"

        @nn.compact
        def __call__(self, x):
            x = nn.Embed(64, 64)(x) + self.param("positions", nn.initializers.normal(0.02), (32, 64))
            for _ in range(2):
                x = x + nn.MultiHeadDotProductAttention(4)(nn.LayerNorm()(x), mask=nn.make_causal_mask(x[..., 0]))
                x = x + nn.Dense(64)(nn.gelu(nn.Dense(256)(nn.LayerNorm()(x))))
            return nn.Dense(64)(nn.LayerNorm()(x))

    rng = np.random.default_rng(0)
    points = rng.normal(size=(1024, 16)).astype(np.float32)
    images = rng.normal(size=(512, 28, 28, 1)).astype(np.float32)
    tokens = rng.integers(0, 64, (512, 33), dtype=np.int32)
    return {
        "mlp": Case(Mlp, {"x": points, "y": points}, 32, log_cosh),
        "convnet": Case(ConvNet, {"x": images, "y": rng.integers(0, 10, 512, dtype=np.int32)}, 32, cross_entropy),
        "transformer": Case(Transformer, {"x": tokens[:, :-1], "y": tokens[:, 1:]}, 16, cross_entropy),
    }


def log_cosh(preds, targets):
    """Returns log(cosh(preds - targets))."""
    return jnp.logaddexp(preds - targets, targets - preds) - jnp.log(2.0)


def cross_entropy(logits, labels):
    """Returns the cross entropy of each label."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels)


def loss_class(Loss: Any, Key: Any, function: Callable[[Any, Any], Any]) -> Any:
    """Returns a loss of a library that computes what `function` does."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Wired(Loss):
        preds: Key = "preds"
        targets: Key = "batch.y"

        def get_values(self, preds, targets):
            return function(preds, targets)

    return Wired


def shuffled(case: Case) -> Iterator[dict[str, np.ndarray]]:
    """Yields batches for ever, as one writes it by hand."""
    rng, count = np.random.default_rng(0), len(case.examples["x"])
    while True:
        order = rng.permutation(count)
        for start in range(0, count - case.batch_size + 1, case.batch_size):
            rows = order[start : start + case.batch_size]
            yield {name: array[rows] for name, array in case.examples.items()}


Run = Callable[[int], None]
"""Makes so many steps and waits for the last."""


class Seconds(NamedTuple):
    """How long something took, by the clock and in all threads of the process."""

    wall: float
    cpu: float


def seconds(run: Run, steps: int) -> Seconds:
    """Returns how long the steps take."""
    wall, cpu = time.perf_counter(), time.process_time()
    run(steps)
    return Seconds(time.perf_counter() - wall, time.process_time() - cpu)


def by_hand(case: Case) -> Run:
    """Returns a loop of plain JAX."""
    model, optimizer, batches = case.module(), optax.adam(1e-2), shuffled(case)

    def update(params, opt_state, batch):
        def loss(params):
            return jnp.mean(case.loss(model.apply({"params": params}, batch["x"]), batch["y"]))

        value, grads = jax.value_and_grad(loss)(params)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    step = jax.jit(update, donate_argnums=(0, 1))
    params = model.init(jax.random.key(0), next(batches)["x"])["params"]
    opt_state = optimizer.init(params)

    def run(steps: int) -> None:
        nonlocal params, opt_state
        for _ in range(steps):
            params, opt_state, loss = step(params, opt_state, next(batches))
        jax.block_until_ready((params, opt_state, loss))

    return run


def ours(case: Case, steps: int, **fields: Any) -> Run:
    """Returns the loop of `Trainer.iter_train`, which an evaluator that only waits stops every so many steps."""
    from kauldron_core import kd  # not in the environment of the peer

    class Wait(kd.evals.Evaluator):
        def evaluate(self, state, *, stop=None):
            jax.block_until_ready(state)
            return kd.evals.EvalResult(self.name, int(state.step), kd.train.AuxiliariesState(), {}, 0, 0.0)

    loss = loss_class(kd.losses.Loss, kd.kontext.Key, case.loss)
    trainer = kd.train.Trainer(
        train_ds=kd.data.InMemoryPipeline(loader=lambda: case.examples, batch_size=case.batch_size, shuffle=True),
        model=case.module(),
        train_losses={"loss": loss()},
        optimizer=optax.adam(1e-2),
        num_train_steps=ENDLESS,
        log_metrics_every=ENDLESS,
        evals={"wait": Wait(run=kd.evals.EveryNSteps(steps), losses={}, metrics={}, ds=())},
        **fields,
    )
    events = trainer.iter_train()

    def run(count: int) -> None:
        if count != steps:
            raise ValueError(f"the loop stops every {steps} steps, not after {count}")
        while not isinstance(next(events), kd.train.Evaluated):
            pass

    run(steps)  # step 0
    return run


def of_peer(case: Case) -> Run:
    """Returns a loop around Kauldron's `trainstep.step`, with the batches of the hand-written loop."""
    from kauldron import kd  # only in the environment of the peer

    loss = loss_class(kd.losses.Loss, kd.kontext.Key, case.loss)
    trainer = kd.train.Trainer(
        train_ds=kd.data.InMemoryPipeline(loader=lambda: case.examples, batch_size=case.batch_size),
        model=case.module(),
        train_losses={"loss": loss()},
        optimizer=optax.adam(1e-2),
        num_train_steps=ENDLESS,
        workdir="/nonexistent",
    )
    batches, step = shuffled(case), trainer.trainstep
    state = trainer.init_state()

    def run(steps: int) -> None:
        nonlocal state
        for _ in range(steps):
            state, _ = step.step(state=state, batch=next(batches))
        jax.block_until_ready(state.params)

    return run


def serve_peer(name: str) -> None:
    """Answers each line of the input, a kind of loop and a number of steps, with the seconds that they took."""
    from kauldron import kd  # only in the environment of the peer

    case = cases(kd.kontext.Key)[name]
    runs = {"hand": by_hand(case), "peer": of_peer(case)}
    for line in sys.stdin:
        kind, steps = line.split()
        print(json.dumps(seconds(runs[kind], int(steps))), flush=True)


class Peer:
    """The process in the environment of the peer. It sleeps while others measure, and ends when its input does."""

    def __init__(self, python: str, name: str):
        command = [python, __file__, "--serve-peer", name]
        pipe = subprocess.PIPE
        self._child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)

    def seconds(self, kind: str, steps: int) -> Seconds:
        """Returns how long the steps took there."""
        print(kind, steps, file=self._child.stdin, flush=True)
        answer = self._child.stdout.readline()
        if not answer:
            raise RuntimeError(f"the peer ended with status {self._child.wait()}")
        return Seconds(*json.loads(answer))


def variants(case: Case, steps: int) -> dict[str, Callable[[], Run]]:
    """Returns what makes our loops, by name."""
    return {
        "ignore": lambda: ours(case, steps, on_nonfinite="ignore"),
        "default": lambda: ours(case, steps),
        SEVERAL: lambda: ours(case, steps, steps_per_call=STEPS_PER_CALL),
    }


def measure(
    name: str, peer: str | None, rounds: int, *, without: Sequence[str] = ()
) -> tuple[float, dict[str, list[Seconds]]]:
    """Returns the median seconds of a hand-written step, and for each variant its ratio to that in every round."""
    from kauldron_core import kd  # not in the environment of the peer

    case = cases(kd.kontext.Key)[name]
    hand = by_hand(case)
    hand(STEPS_PER_CALL)
    steps = max(1, round(WINDOW_S / seconds(hand, STEPS_PER_CALL).wall)) * STEPS_PER_CALL
    runs = {variant: make() for variant, make in variants(case, steps).items() if variant not in without}
    pairs = {
        variant: (lambda: seconds(hand, steps), functools.partial(seconds, run, steps)) for variant, run in runs.items()
    }
    if peer:
        other = Peer(peer, name)
        pairs["Kauldron"] = tuple(functools.partial(other.seconds, kind, steps) for kind in ("hand", "peer"))
    ratios: dict[str, list[Seconds]] = {variant: [] for variant in pairs}
    times = []
    for number in range(rounds + 1):
        for variant, (by_hand_seconds, variant_seconds) in pairs.items():
            # Right after each other and in either order, so that what else the machine does is the same for both.
            took = variant_seconds() if number % 2 else None
            base = by_hand_seconds()
            took = took or variant_seconds()
            if number:  # The first round compiles.
                times.append(base.wall)
                ratios[variant].append(Seconds(took.wall / base.wall, took.cpu / base.cpu))
    return statistics.median(times) / steps, ratios


PLAIN_SCRIPT = """
import flax.linen as nn, jax, jax.numpy as jnp, numpy as np, optax
class Mlp(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(16)(nn.relu(nn.Dense(32)(x)))
x = np.random.default_rng(0).normal(size=(1024, 16)).astype(np.float32)
y = x
model, optimizer = Mlp(), optax.adam(1e-2)
params = model.init(jax.random.key(0), x[:32])
opt_state = optimizer.init(params)
@jax.jit
def step(params, opt_state, x, y):
    def loss(params):
        error = model.apply(params, x) - y
        return jnp.mean(jnp.logaddexp(error, -error) - jnp.log(2.0))
    value, grads = jax.value_and_grad(loss)(params)
    updates, opt_state = optimizer.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, value
params, opt_state, loss = step(params, opt_state, x[:32], y[:32])
print(float(loss), flush=True)
"""

TRAINER_SCRIPT = """
import dataclasses
import flax.linen as nn, jax.numpy as jnp, numpy as np, optax
from PACKAGE import kd
class Mlp(nn.Module):
    x: kd.kontext.Key = "batch.x"
    @nn.compact
    def __call__(self, x):
        return nn.Dense(16)(nn.relu(nn.Dense(32)(x)))
@dataclasses.dataclass(frozen=True, kw_only=True)
class LogCosh(kd.losses.Loss):
    preds: kd.kontext.Key = "preds"
    targets: kd.kontext.Key = "batch.y"
    def get_values(self, preds, targets):
        error = preds - targets
        return jnp.logaddexp(error, -error) - jnp.log(2.0)
def load():
    x = np.random.default_rng(0).normal(size=(1024, 16)).astype(np.float32)
    return {"x": x, "y": x}
with kd.konfig.imports(lazy=True):
    import optax as o
    from PACKAGE import kd as k
    import __main__ as main
cfg = k.train.Trainer(
    train_ds=k.data.InMemoryPipeline(loader=main.load, batch_size=32),
    model=main.Mlp(),
    train_losses={"loss": main.LogCosh()},
    optimizer=o.adam(1e-2),
    num_train_steps=300,
)
"""
OUR_END = """
trainer = kd.konfig.resolve(cfg)
print(next(trainer.iter_train()).values["losses/total"], flush=True)
"""
PEER_END = """
cfg.workdir = "/nonexistent"
trainer = kd.konfig.resolve(cfg)
state = trainer.init_state()
_, aux = trainer.trainstep.step(state=state, batch=next(iter(trainer.train_ds)), return_losses=True)
print(list(aux.compute().loss_values.values()), flush=True)
"""


def until_first_step(python: str, script: str) -> float:
    """Returns the seconds from the start of Python until the loss of the first step is printed."""
    began = time.perf_counter()
    child = subprocess.Popen([python, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    answer = child.stdout.readline()
    took = time.perf_counter() - began
    _, errors = child.communicate()
    if not answer:
        raise RuntimeError(errors)
    return took


def first_steps(peer: str | None, repeats: int = 3) -> dict[str, list[float]]:
    """Returns the seconds until the first step, by who trains."""
    ours_script = TRAINER_SCRIPT.replace("PACKAGE", "kauldron_core") + OUR_END
    scripts = {"plain script": (sys.executable, PLAIN_SCRIPT), "walk-through": (sys.executable, ours_script)}
    if peer:
        scripts["Kauldron"] = (peer, TRAINER_SCRIPT.replace("PACKAGE", "kauldron") + PEER_END)
    found: dict[str, list[float]] = {name: [] for name in scripts}
    for warm in (True, *(False,) * repeats):
        for name, (python, script) in scripts.items():
            took = until_first_step(python, script)
            if not warm:
                found[name].append(took)
    return found


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="Python of an environment with Kauldron")
    parser.add_argument("--models", default="mlp,convnet,transformer")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--first-step", action="store_true")
    parser.add_argument("--serve-peer", help=argparse.SUPPRESS)
    args = parser.parse_args()
    os.environ["PYTHONPATH"] = str(pathlib.Path(__file__).parents[1])
    if args.serve_peer:
        serve_peer(args.serve_peer)
    elif args.first_step:
        show_first_steps(first_steps(args.peer))
    else:
        show_steps({name: measure(name, args.peer, args.rounds) for name in args.models.split(",")})


def show_steps(figures: dict[str, tuple[float, dict[str, list[Seconds]]]]) -> None:
    """Prints the table of step times."""
    from rich import console, table  # not in the environment of the peer

    title = "time of a step, relative to by hand"
    grid = table.Table("model", "by hand", "variant", "ratio", "quartiles", "processor", title=title)
    for name, (by_hand_s, ratios) in figures.items():
        for variant, pairs in ratios.items():
            low, middle, high = statistics.quantiles([pair.wall for pair in pairs], n=4)
            cpu = statistics.median(pair.cpu for pair in pairs)
            row = f"{middle:.2f}", f"{low:.2f} to {high:.2f}", f"{cpu:.2f}"
            grid.add_row(name, f"{by_hand_s * 1e3:.3f} ms", variant, *row)
    console.Console().print(grid)


def show_first_steps(found: dict[str, list[float]]) -> None:
    """Prints the table of times until the first step."""
    from rich import console, table  # not in the environment of the peer

    grid = table.Table("", "seconds", "from", "to", "ratio", title="from the start of Python to the first step")
    base = statistics.median(found["plain script"])
    for name, values in found.items():
        middle = statistics.median(values)
        grid.add_row(name, f"{middle:.2f}", f"{min(values):.2f}", f"{max(values):.2f}", f"{middle / base:.2f}")
    console.Console().print(grid)


if __name__ == "__main__":
    main()
