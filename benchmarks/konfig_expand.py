"""How long a large sweep takes to expand: 2,500, 5,000 and 10,000 trials of a 300-leaf config from three axes.

    python benchmarks/konfig_expand.py

Each trial is expanded, checked against the config and written as JSON. The time should grow linearly, and 10,000
trials take less than 10 s and 1 GB. Times are of the processor, so that other work on the machine does not count.
"""

from __future__ import annotations

import resource
import time
from typing import Any

from kauldron_core import konfig, sweeps
from kauldron_core.konfig.overrides.places import leaf_paths

with konfig.imports():
    import optax
    from flax import linen as nn

LEAVES = 300


def make_config() -> konfig.ConfigDict:
    """Returns a config of calls, lists and references with 300 leaves."""
    cfg = konfig.ConfigDict({"seed": 0, "num_train_steps": 1000})
    cfg.optimizer = optax.adamw(
        learning_rate=optax.warmup_cosine_decay_schedule(0.0, 1e-3, 100, decay_steps=cfg.ref.num_train_steps),
        weight_decay=1e-4,
    )
    cfg.blocks = [nn.Dense(features=64 + number, use_bias=True, name=f"block{number}") for number in range(60)]
    cfg.evals = {f"set{number}": {"every": 100, "batch_size": 32, "split": "test"} for number in range(30)}
    cfg.extra = {f"value{number}": number / 2 for number in range(LEAVES - len(leaf_paths(cfg)))}
    return cfg


def make_axes(cfg: konfig.ConfigDict, count: int) -> list[Any]:
    """Returns three axes with `count` points together."""
    rates = count // 100
    return sweeps.from_strings(
        cfg,
        [
            f"optimizer.weight_decay=logspace(1e-6, 1e-2, {rates})",
            "seed=range(10)",
            "blocks[3].features=linspace(10, 100, 10)",
        ],
    )


def measure(cfg: konfig.ConfigDict, count: int) -> tuple[float, float, int]:
    """Returns the seconds of processor time to expand, those to write, and the characters written."""
    start = time.process_time()
    trials = sweeps.expand(cfg, make_axes(cfg, count))
    expanded = time.process_time()
    written = sum(len(konfig.to_json(trial_cfg)) for _, trial_cfg in sweeps.configs(cfg, trials))
    return expanded - start, time.process_time() - expanded, written


def main() -> None:
    cfg = make_config()
    print(f"{len(leaf_paths(cfg))} leaves, {len(konfig.to_json(cfg))} characters of JSON")
    print("| trials | expand and check | write JSON | a trial | peak memory |")
    print("|---|---|---|---|---|")
    for count in (2_500, 5_000, 10_000):
        expand_s, write_s, _ = measure(cfg, count)
        memory_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        each_ms = (expand_s + write_s) / count * 1e3
        print(f"| {count:,} | {expand_s:.2f} s | {write_s:.2f} s | {each_ms:.2f} ms | {memory_gib:.2f} GiB |")


if __name__ == "__main__":
    main()
