"""Every ratio of this folder in five minutes, beside those that `results.md` holds: what a change did to speed.

    make bench-quick [BENCH_ARGS='--only=step,save']
    python -m benchmarks.quick [--only=step,save] [--write]

Each row is the time of ours over that of what stands in `against`, measured in turns in one process of its own: 1 is as
fast, less is faster. Other work on the machine reaches both, so a ratio is comparable where a time is not. Exit status
1 when a ratio is slower than the committed one by more than 15 % and by more than its own spread. `--write` makes
the figures the committed ones; do it on a quiet machine.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import copy
import dataclasses
import datetime
import json
import multiprocessing
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import metadata

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("NPROC", "1")

from rich import console, table

ROOT = pathlib.Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results.md"
MARGIN = 0.15


@dataclasses.dataclass(frozen=True)
class Ratio:
    """How long ours takes over what it is measured against, in each of several rounds."""

    what: str
    against: str
    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    @property
    def quartiles(self) -> tuple[float, float]:
        if len(self.rounds) < 2:
            return self.median, self.median
        low, _, high = statistics.quantiles(self.rounds, n=4, method="inclusive")
        return low, high

    def is_slower_than(self, committed: float) -> bool:
        return self.quartiles[0] > committed * (1 + MARGIN)


def step() -> Iterator[Ratio]:
    """Yields what a training step costs over a hand-written one."""
    from benchmarks import step_overhead

    for model in ("mlp", "convnet", "transformer"):
        # A loop around convolutions is slow on a CPU, so it would take a minute of the five.
        without = (step_overhead.SEVERAL,) if model == "convnet" else ()
        _, found = step_overhead.measure(model, None, rounds=5, without=without)
        for variant, pairs in found.items():
            yield Ratio(f"step, {model}, {variant}", "jax.jit loop", tuple(pair.wall for pair in pairs))


def evaluation() -> Iterator[Ratio]:
    """Yields what an evaluation costs over a hand-written one."""
    from benchmarks import eval_throughput

    for model, examples in (("mlp", 16_401), ("mlp_in_memory", 16_401), ("convnet", 4_113)):
        pairs = eval_throughput.pairs_of(model, 9, examples)
        rounds = tuple(ours.wall / hand.wall for hand, ours in pairs)
        yield Ratio(f"evaluation, {model}", "jax.jit loop", rounds)


def data() -> Iterator[Ratio]:
    """Yields what a batch costs over one made by hand."""
    import tempfile

    from absl import flags

    from benchmarks import data as pipelines

    flags.FLAGS.mark_as_parsed()  # Grain's workers read them.
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "images.parquet")
        pipelines.write_images(path)
        for what, against, ours, theirs in (
            ("InMemoryPipeline", "NumPy", pipelines.in_memory, pipelines.fancy_indexing),
            ("DataSource", "Grain", pipelines.data_source, pipelines.plain_grain),
            ("Parquet", "PyArrow", lambda: pipelines.parquet(path), lambda: pipelines.arrow_loop(path)),
        ):
            speeds = pipelines.rates({"ours": ours, "theirs": theirs}, num_batches=30, rounds=12)
            yield Ratio(f"batch, {what}", against, (speeds["theirs"] / speeds["ours"],))


def sweep() -> Iterator[Ratio]:
    """Yields what a sweep of 64 trials of 200 steps takes over loops by hand, one after the other, each compiled."""
    from benchmarks import packs
    from kauldron_core import konfig

    count, by_hand_count = 64, 6
    lead = konfig.resolve(packs.configs(1)[0])
    ready = iter(lead.train_ds)
    batches = [next(ready) for _ in range(packs.NUM_STEPS)]
    hand_s, _ = packs.by_hand(packs.rates(by_hand_count), batches, lead.init_state().params)
    all_by_hand_s = hand_s * count / by_hand_count
    trials = packs.configs(count, steps_per_call=20)
    rounds = tuple(packs.packed(trials)[0] / all_by_hand_s for _ in range(3))
    yield Ratio(f"sweep, {count} trials in one program", "loops by hand", rounds)
    rounds = tuple(packs.planned(trials)[0] / all_by_hand_s for _ in range(2))
    yield Ratio(f"planning of {count} trials", "loops by hand", rounds)
    alone_s = packs.alone(packs.configs(by_hand_count))
    yield Ratio("trial alone, not the first", "loop by hand", tuple(s / (hand_s / by_hand_count) for s in alone_s[1:]))
    yield Ratio(f"kdr sweep with {count} trials", "loops by hand", (packs.command_seconds(count) / all_by_hand_s,))


def expansion() -> Iterator[Ratio]:
    """Yields what 2,500 configs cost over copies of a plain dictionary, each written as JSON."""
    from benchmarks import konfig_expand
    from kauldron_core import konfig

    cfg, count = konfig_expand.make_config(), 2_500

    def plain_s() -> float:
        tree = json.loads(konfig.to_json(cfg))
        began = time.process_time()
        for _ in range(count):
            json.dumps(copy.deepcopy(tree))
        return time.process_time() - began

    rounds = tuple(sum(konfig_expand.measure(cfg, count)[:2]) / plain_s() for _ in range(3))
    yield Ratio(f"expansion of {count:,} trials", "copies of a dict", rounds)


def imports() -> Iterator[Ratio]:
    """Yields what importing `kd` and the first step take over JAX, Flax and Optax alone."""
    from benchmarks import step_overhead

    plain, ours = "import jax, flax.linen, optax", "from kauldron_core import kd"
    for code in (plain, ours):
        _python_s(code)
    rounds = tuple(_python_s(ours) / _python_s(plain) for _ in range(5))
    yield Ratio("import kd", "jax, flax, optax", rounds)
    found = step_overhead.first_steps(None, repeats=2)
    pairs = zip(found["walk-through"], found["plain script"], strict=True)
    yield Ratio("first step of a process", "plain script", tuple(ours / plain for ours, plain in pairs))


def _python_s(code: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - began


def save() -> Iterator[Ratio]:
    """Yields what an asynchronous checkpoint costs over one made with Orbax by hand."""
    from benchmarks import checkpoint_stall

    found = checkpoint_stall.rounds_of(width=512, rounds=7)
    pairs = list(zip(found["ours"], found["by hand"], strict=True))
    yield Ratio("save, the call", "Orbax", tuple(ours[1] / hand[1] for ours, hand in pairs))
    yield Ratio("save, steps around it", "Orbax", tuple(ours[0] / hand[0] for ours, hand in pairs))


def recording() -> Iterator[Ratio]:
    """Yields what the recorder takes over bare calls of MLflow."""
    from benchmarks import recorder

    pairs = [recorder.pair() for _ in range(2)]
    yield Ratio("recording 20,000 points", "log_batch", tuple(ours / bare for ours, bare in pairs))


def checking() -> Iterator[Ratio]:
    """Yields what checked annotations cost a jitted step."""
    from benchmarks import typechecked

    yield Ratio("jitted step, @typechecked", "without", tuple(typechecked.jitted_ratios()))


MEASUREMENTS: tuple[Callable[[], Iterator[Ratio]], ...] = (
    step,
    evaluation,
    data,
    sweep,
    expansion,
    imports,
    save,
    recording,
    checking,
)


def measured(name: str) -> list[Ratio]:
    """Returns what one measurement finds; runs in a process of its own."""
    return list(globals()[name]())


def committed() -> dict[str, float]:
    """Returns the ratios of `results.md` by what they measure."""
    if not RESULTS.exists():
        return {}
    rows = (line.strip("| \n").split(" | ") for line in RESULTS.read_text().splitlines() if line.startswith("| "))
    return {row[0]: float(row[2]) for row in rows if row[0] != "what"}


def write(found: list[Ratio]) -> None:
    """Makes the figures the committed ones."""
    versions = ", ".join(
        f"{name} {metadata.version(name)}" for name in ("jax", "flax", "optax", "orbax-checkpoint", "ray")
    )
    lines = [
        "# Ratios",
        "",
        "Time of ours over that of what it is measured against, in turns in one process: 1 is as fast, less is faster.",
        "Made by `make bench-quick BENCH_ARGS=--write`; `make bench-quick` shows what a change did to them.",
        "",
        f"{datetime.date.today():%Y-%m-%d}, {os.cpu_count()} cores ({platform.machine()}), Python "
        f"{platform.python_version()}, {versions}.",
        "",
        "| what | against | ratio | quartiles |",
        "|---|---|---|---|",
    ]
    for ratio in found:
        low, high = ratio.quartiles
        lines.append(f"| {ratio.what} | {ratio.against} | {ratio.median:.2f} | {low:.2f} to {high:.2f} |")
    RESULTS.write_text("\n".join(lines) + "\n")


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [measurement.__name__ for measurement in MEASUREMENTS]
    parser.add_argument("--only", default=",".join(names), help="of " + ", ".join(names))
    parser.add_argument("--write", action="store_true", help="make the figures the committed ones")
    arguments = parser.parse_args()
    chosen = arguments.only.split(",")
    if unknown := sorted(set(chosen) - set(names)):
        parser.error(f"--only: unknown measurement {unknown[0]!r}. Available: {', '.join(names)}.")
    if arguments.write and chosen != names:
        parser.error("--write: needs all measurements. Leave --only out.")
    before, found, began = committed(), [], time.monotonic()
    grid = table.Table("what", "against", "ratio", "quartiles", "committed", "")
    for name in chosen:
        spawned = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawned) as pool:
            found += pool.submit(measured, name).result()
        print(f"{name}: done after {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    slower = [ratio for ratio in found if ratio.what in before and ratio.is_slower_than(before[ratio.what])]
    for ratio in found:
        low, high = ratio.quartiles
        old = f"{before[ratio.what]:.2f}" if ratio.what in before else ""
        mark = "slower" if ratio in slower else ""
        grid.add_row(ratio.what, ratio.against, f"{ratio.median:.2f}", f"{low:.2f} to {high:.2f}", old, mark)
    console.Console(width=120).print(grid)
    if arguments.write:
        write(found)
        return 0
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
