"""Packs are kept where they are faster, and are no larger than memory; their data is kept once."""

from __future__ import annotations

import json
import re
from typing import Any

import flax.linen as nn
import jax
import numpy as np
import pytest

from kauldron_core import kd as kd_
from kauldron_core import konfig, kontext, packs
from kauldron_core.packs.planning import refining, timing
from kauldron_core.packs.running import data
from tests.kauldron_core import experiments
from tests.kauldron_core.packs.test_packs import config

with konfig.imports():
    from kauldron_core import kd
    from tests.kauldron_core.packs import test_timing as here

pytestmark = pytest.mark.slow


class Convolutions(nn.Module):
    """A few convolutions whose weights, one set for each trial, a CPU does not multiply together."""

    image: kontext.Key = "batch.image"

    @nn.compact
    def __call__(self, image):
        x = image
        for _ in range(2):
            x = nn.relu(nn.Conv(16, (3, 3))(x))
        return nn.Dense(3)(x.mean(axis=(-3, -2)))


def load_images() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    labels = generator.integers(3, size=64).astype(np.int32)
    return {"image": generator.normal(size=(64, 12, 12, 3)).astype(np.float32), "label": labels}


def convolutional(rate: float) -> Any:
    cfg = config(optimizer__learning_rate=rate, model=here.Convolutions(), evals={}, num_train_steps=10_000)
    cfg.train_ds = kd.data.InMemoryPipeline(loader=here.load_images, batch_size=8)
    return cfg


NUMBER = r"[0-9.e+]+ ms"


def rates(count: int) -> list[Any]:
    return [config(optimizer__learning_rate=rate, evals={}) for rate in np.logspace(-4, -1, count).tolist()]


@pytest.mark.parametrize(
    ("packed_s", "num_steps", "is_faster"),
    [(0.05, 10_000, False), (0.005, 10_000, True), (0.013, 100, True)],
    ids=["slower", "faster", "slower, but starting each takes longer"],
)
def test_a_pack_is_kept_where_it_is_faster(
    monkeypatch: pytest.MonkeyPatch, packed_s: float, num_steps: int, is_faster: bool
) -> None:
    def given(configs: Any, arguments: Any, *, concurrency: int) -> timing.Timing:
        return timing.Timing(len(configs), num_steps, packed_s, 0.002, len(configs), concurrency)

    monkeypatch.setattr(refining, "timed", given)
    configs = rates(6)
    plan = packs.refine(configs, packs.plan(configs), confirm=False)
    lines = list(plan.explain())
    if is_faster:
        assert [len(pack.members) for pack in plan.packs] == [6], plan.notes
    else:
        assert [pack.members for pack in plan.packs] == [(index,) for index in range(6)], plan.notes
        assert lines[0] == "alone: trials 0-5"
        assert lines[1].startswith("optimizer.learning_rate: could be packed")
    assert f"packed {packed_s * 1e3:.3g} ms a step for all" in re.sub(r"(\d)\.0+ ", r"\1 ", plan.notes[0])


def test_a_pack_is_timed_beside_its_trials_alone() -> None:
    configs = [convolutional(rate) for rate in np.logspace(-4, -1, 6).tolist()]
    plan = packs.refine(configs, packs.plan(configs), confirm=False)
    figures = rf"6 trials: packed {NUMBER} a step for all, alone 6 x {NUMBER} on 1 worker = {NUMBER}"
    assert re.fullmatch(f"{figures}(, so they train alone)?", plan.notes[0]), plan.notes


@pytest.mark.soak
def test_a_pack_that_is_faster_stays() -> None:
    fast = rates(40)
    plan = packs.refine(fast, packs.plan(fast), confirm=False, concurrency=2)
    assert [len(pack.members) for pack in plan.packs] == [40], plan.notes
    assert re.search(rf"\(from 32\), alone 40 x {NUMBER} on 2 workers = {NUMBER}$", plan.notes[0]), plan.notes


class Outside(nn.Module):
    """A model that asks the host, which can't be done for many at once."""

    x: kontext.Key = "batch.x"

    @nn.compact
    def __call__(self, x):
        x = nn.Dense(experiments.CLASSES)(x)
        return x + jax.pure_callback(np.zeros_like, x, jax.lax.stop_gradient(x))


def test_trials_whose_packed_steps_fail_are_alone() -> None:
    configs = [config(optimizer__learning_rate=rate, model=here.Outside(), evals={}) for rate in (1e-3, 1e-2)]
    plan = packs.Plan((packs.Pack((0, 1), ("optimizer.learning_rate",)),), packs.plan(configs).leaves)
    refined = packs.refine(configs, plan)
    assert [pack.members for pack in refined.packs] == [(0,), (1,)]
    assert "packed steps fail" in refined.leaves[0].reason
    assert "packed steps fail" in packs.refine(configs, plan, confirm=False).notes[0]


def test_memory_sets_the_size_of_packs_and_they_are_shared_out_evenly() -> None:
    configs = [config(optimizer__learning_rate=rate, evals={}) for rate in np.logspace(-4, -1, 64).tolist()]
    assert [len(pack.members) for pack in packs.plan(configs).packs] == [64]
    plan = packs.plan(configs, memory_bytes=100_000)
    sizes = [len(pack.members) for pack in plan.packs]
    assert len(sizes) > 1 and sum(sizes) == 64 and max(sizes) - min(sizes) <= 1
    counted, why = plan.notes[0].split(": ")
    assert counted == f"{len(sizes)} packs of {', '.join(map(str, sizes))}"
    assert re.fullmatch("a trial takes [0-9.]+ KiB, and memory_bytes is 97.66 KiB", why)
    assert [len(pack.members) for pack in packs.plan(configs, limit=30).packs] == [22, 21, 21]


def pipelines(**fields: Any) -> list[Any]:
    return [experiments.points(shuffle=True, seed=seed, **fields) for seed in (3, 5)]


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (data.GatheredData, {}),
        (data.GatheredData, {"num_epochs": 3, "transforms": [kd_.data.Elements(keep=("x",))]}),
        (data.StackedData, {"batch_drop_remainder": "pad"}),
    ],
)
def test_each_row_of_a_pack_reads_what_its_trial_would(kind: type, fields: dict[str, Any]) -> None:
    own = [iter(pipeline) for pipeline in pipelines(**fields)]
    packed = data.open_data(pipelines(**fields))
    assert type(packed) is kind and not packed.is_shared

    def assert_next(batch: Any, rows: tuple[int, ...]) -> None:
        want = [next(iterator) for iterator in own]
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *(want[row] for row in rows))
        jax.tree.map(np.testing.assert_array_equal, batch, stacked)

    for _ in range(5):
        assert_next(packed.next_batch(), (0, 1))
    # As the trials alone would save it.
    assert packed.get_state() == [iterator.get_state() for iterator in own]
    packed.keep((1, 0, 1))
    several = packed.take(2, size=3)
    for step in range(2):
        assert_next(jax.tree.map(lambda leaf, step=step: leaf[step], several), (1, 0, 1))
    again = data.open_data(pipelines(**fields))
    again.set_state([iterator.get_state() for iterator in own])
    assert_next(again.next_batch(), (0, 1))
    if "num_epochs" in fields:
        with pytest.raises(StopIteration):
            for _ in range(20):
                again.next_batch()


def test_the_order_of_the_data_packs_unless_it_takes_too_much() -> None:
    configs = [config(train_ds__seed=seed, evals={}) for seed in range(3)]
    (pack,) = packs.plan(configs).packs
    assert pack.members == (0, 1, 2) and packs.Pack.from_json(json.loads(json.dumps(pack.to_json()))) == pack
    for cfg in configs:
        cfg.train_ds.batch_drop_remainder = "pad"
    batch = 16 * (4 * 4 + 4 + 1)
    plan = packs.plan(configs, data_budget_bytes=2 * batch)
    assert [pack.members for pack in plan.packs] == [(0, 1), (2,)]
    assert plan.notes[0].startswith(f"2 packs of 2, 1: a batch for each trial takes {batch} B, and data_budget_bytes")


def test_worker_processes_are_not_multiplied(tmp_path: Any) -> None:
    (tmp_path / "points.jsonl").write_text("\n".join(json.dumps({"x": [0.0] * 4, "label": 1}) for _ in range(32)))
    configs = [config(train_ds__seed=seed, evals={}) for seed in range(2)]
    for cfg in configs:
        cfg.train_ds = kd.data.py.JsonLines(
            path=str(tmp_path / "points.jsonl"), batch_size=8, shuffle=True, seed=cfg.train_ds.seed, num_workers=1
        )
    plan = packs.plan(configs)
    assert [pack.members for pack in plan.packs] == [(0,), (1,)]
    assert plan.leaves[0].reason == "each trial would need worker processes of its own for its data"


def test_only_threefry_packs() -> None:
    configs = [config(optimizer__learning_rate=rate) for rate in (1e-3, 1e-2)]
    with jax.default_prng_impl("rbg"):
        plan = packs.plan(configs)
    assert [pack.members for pack in plan.packs] == [(0,), (1,)]
    assert "only threefry" in plan.leaves[0].reason
