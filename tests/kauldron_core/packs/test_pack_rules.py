"""Rules that compare the trials of a pack, against their published forms."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kauldron_core import ckpts, konfig, packs, rundir
from kauldron_core.errors import ConfigError
from kauldron_core.packs.running.points import Points
from kauldron_core.train import Done, Evaluated, Logged
from tests.kauldron_core.packs.test_packs import OPTIMIZERS, config

with konfig.imports():
    import optax

    from kauldron_core import kd

pytestmark = pytest.mark.slow

RATES = (1e-4, 3e-2, 1e-3, 1e38, 1e-2, 3e-3, 1e-1)


def configs(folder: Any, rates: Any = RATES, *, is_evaluated: bool = False) -> list[Any]:
    found = []
    for index, rate in enumerate(rates):
        cfg = config(num_train_steps=12, workdir=str(folder / f"t{index}"), model__dropout=0.0)
        cfg.optimizer = optax.sgd(learning_rate=rate)
        cfg.evals.test.run = kd.evals.EveryNSteps(2)
        if not is_evaluated:
            cfg.evals = {}
        cfg.checkpointer = kd.ckpts.Checkpointer(save_interval_steps=5)
        rundir.make_folder(cfg.workdir)
        konfig.save(cfg, folder / f"t{index}" / "config.json")
        found.append(cfg)
    return found


def train(
    trials: list[Any], folder: Any, rule: Any, *, until: int | None = None
) -> tuple[list[Any], packs.Packed | None]:
    """Trains to the end, or until the metrics of a step were told: as if killed there."""
    training, events = packs.iter_train(trials, folder=folder / "pack", rule=rule), []
    while True:
        try:
            events.append(next(training))
        except StopIteration as end:
            return events, end.value
        if until is not None and events[-1].event.step > until and isinstance(events[-1].event, Logged | Evaluated):
            training.close()
            return events, None


def halving_by_hand(
    events: list[Any], name: type, rungs: tuple[int, ...], eta: int, sign: int
) -> dict[int, tuple[int, str]]:
    """Returns step and status with which each trial ends: plain successive halving over the values that were told."""
    values = {(e.member, e.event.step): e.event.values["losses/total"] for e in events if isinstance(e.event, name)}
    ended = {e.member: (e.event.step, "diverged") for e in events if getattr(e.event, "status", "") == "diverged"}
    running = [index for index in range(len(RATES)) if index not in ended]
    for rung in rungs:
        order = sorted(running, key=lambda index: (math.isnan(values[index, rung]), sign * values[index, rung], index))
        keep = max(1, len(order) // eta)
        ended |= {index: (rung, "pruned") for index in order[keep:]}
        running = [index for index in running if index in order[:keep]]
    return ended | {index: (12, "done") for index in running}


@pytest.mark.parametrize(
    ("metric", "kind"),
    [
        ("train/losses/total", Logged),
        pytest.param("test/losses/total", Evaluated, marks=pytest.mark.soak),
    ],
)
def test_halving_is_successive_halving_and_goes_on_to_the_same_bits(tmp_path: Any, metric: str, kind: type) -> None:
    """F01: of a loss the lowest goes on, though nobody gave a mode."""
    rule = packs.Halving(metric=metric, eta=3, min_steps=2)

    def trials(name: str) -> list[Any]:
        return configs(tmp_path / name, is_evaluated=kind is Evaluated)

    events, packed = train(trials("whole"), tmp_path / "whole", rule)
    assert packed is not None
    ends = {e.member: (e.event.step, e.event.status) for e in events if isinstance(e.event, Done)}
    assert ends == halving_by_hand(events, kind, (2, 6), eta=3, sign=1)
    assert sorted(status for _, status in ends.values()) == ["diverged", "done"] + ["pruned"] * 5
    assert len(packed.rows) == 1 and packed.statuses[packed.rows[0]] == "done"
    reason = next(e.event.reason for e in events if isinstance(e.event, Done) and e.event.status == "pruned")
    assert reason.startswith(f"rung at step 2: {metric} ") and reason.endswith("of 6, and 2 went on")
    # What was pruned can be loaded, as it was.
    pruned = next(index for index, (step, status) in ends.items() if (step, status) == (6, "pruned"))
    trainer = konfig.resolve(trials("whole")[pruned])
    assert int(trainer.checkpointer.load(trainer.state_specs).state.step) == 6
    train(trials("cut"), tmp_path / "cut", rule, until=5)
    again, packed_again = train(trials("cut"), tmp_path / "cut", rule)
    assert packed_again is not None and packed_again.statuses == packed.statuses
    jax.tree.map(np.testing.assert_array_equal, packed_again.states, packed.states)
    assert {e.member: e.event.status for e in again if isinstance(e.event, Done)} == {
        i: s for i, (_, s) in ends.items()
    }


def test_a_population_inherits_and_explores_and_goes_on_to_the_same_bits(tmp_path: Any) -> None:
    rule = packs.Population(
        metric="train/losses/total",
        mode="min",
        every=4,
        quantile=0.34,
        bounds={"optimizer.learning_rate": (1e-4, 1e-1)},
    )
    rates = (1e-4, 3e-2, 1e-3)
    events, packed = train(configs(tmp_path / "whole", rates), tmp_path / "whole", rule)
    assert packed is not None and packed.statuses == ("done",) * 3
    heirs = [(e.member, e.event) for e in events if isinstance(e.event, packs.Inherited)]
    assert [event.step for _, event in heirs] == [4, 8]
    values = {(e.member, e.event.step): e.event.values["losses/total"] for e in events if isinstance(e.event, Logged)}
    now = dict(enumerate(rates))
    for member, event in heirs:
        # Of three the bottom third is one, and so is the top third.
        ranked = sorted(range(3), key=lambda index: values[index, event.step])
        assert (member, event.donor) == (ranked[-1], f"t{ranked[0]}")
        before, after = event.changes["optimizer.learning_rate"]
        assert before == now[member]
        is_perturbed = any(after == pytest.approx(min(max(now[ranked[0]] * f, 1e-4), 1e-1)) for f in (0.8, 1.2))
        assert is_perturbed or 1e-4 <= after <= 1e-1
        now[member] = after
        assert event.step in ckpts.all_steps(tmp_path / "whole" / f"t{member}" / "checkpoints")
    train(configs(tmp_path / "cut", rates), tmp_path / "cut", rule, until=6)
    # The configs that a restart reads say what was changed.
    changed = [konfig.load(tmp_path / "cut" / f"t{index}" / "config.json") for index in range(3)]
    assert sum(cfg.optimizer.learning_rate != rate for cfg, rate in zip(changed, rates, strict=True)) == 1
    for index, cfg in enumerate(changed):
        cfg.workdir = str(tmp_path / "cut" / f"t{index}")
    _, again = train(changed, tmp_path / "cut", rule)
    assert again is not None
    jax.tree.map(np.testing.assert_array_equal, again.states, packed.states)
    for index in range(3):
        cfg = konfig.load(tmp_path / "cut" / f"t{index}" / "config.json")
        assert cfg.optimizer.learning_rate == now[index]
        kinds = [e["kind"] for e in rundir.read_events(tmp_path / "cut" / f"t{index}" / "events")]
        assert kinds.count("inherited") == sum(member == index for member, _ in heirs)


@given(st.lists(st.floats(width=32), min_size=1, max_size=20), st.integers(2, 4), st.sampled_from(["min", "max"]))
def test_a_rung_keeps_the_best_and_at_least_one(scores: list[float], eta: int, mode: Any) -> None:
    rule = packs.Halving(metric="train/losses/total", mode=mode, eta=eta, min_steps=1)
    pruned = rule.decide(1, dict(enumerate(scores)), {}, {}).pruned
    kept = [index for index in range(len(scores)) if index not in pruned]
    assert len(kept) == max(len(scores) // eta, 1)
    bad = -math.inf if mode == "max" else math.inf
    values = [score if math.isfinite(score) else bad for score in scores]
    for index in pruned:
        for other in kept:
            is_worse = values[index] <= values[other] if mode == "max" else values[index] >= values[other]
            assert is_worse or not math.isfinite(scores[index])
    rungs = [step for step in range(1, 200) if packs.Halving(metric="a/b", eta=eta, min_steps=3).is_due(step)]
    assert rungs == [3 * eta**k for k in range(8) if 3 * eta**k < 200]


def test_an_exchange_is_truncation_selection_with_perturbed_or_new_numbers() -> None:
    rule = packs.Population(metric="train/losses/total", mode="max", every=5, perturb=(0.5, 2.0), seed=3)
    assert [step for step in range(16) if rule.is_due(step)] == [5, 10, 15]
    first = {index: {"lr": 10.0**-index, "wd": 0.1 * index} for index in range(8)}
    scores = {0: 5.0, 1: math.nan, 2: 7.0, 3: 1.0, 4: 6.0, 5: 2.0, 6: 3.0, 7: 4.0}
    donors, factors = [], []
    for step in range(5, 2005, 5):
        inherits = rule.decide(step, scores, first, first).inherits
        assert inherits == rule.decide(step, scores, first, first).inherits
        # The quarter of 8 trials without a number, and with the least, is bottom; 2 and 4 are best.
        assert set(inherits) == {1, 3}
        donors += [heir.donor for heir in inherits.values()]
        factors += [heir.point["lr"] / first[heir.donor]["lr"] for heir in inherits.values()]
        values = {point["wd"] for point in first.values()}
        assert all(heir.point["wd"] in values | {v * f for v in values for f in (0.5, 2)} for heir in inherits.values())
    assert set(donors) == {2, 4} and abs(donors.count(2) / len(donors) - 0.5) < 0.07
    halved, doubled = (sum(factor == pytest.approx(f) for factor in factors) / len(factors) for f in (0.5, 2))
    assert abs(halved - 0.375) < 0.07 and abs(doubled - 0.375) < 0.07
    one = {"lr": 1.0}
    drawn = packs.Population(metric="a/b", mode="max", every=1, resample_probability=1, bounds={"lr": (1e-4, 1e-2)})
    logs = [
        math.log10(drawn.decide(s, {0: 1.0, 1: 0.0}, {0: one, 1: one}, {}).inherits[1].point["lr"]) for s in range(400)
    ]
    assert all(-4 <= value <= -2 for value in logs) and abs(sum(logs) / 400 + 3) < 0.1
    assert not rule.decide(5, {0: math.nan, 1: math.nan}, first, first).inherits


def test_a_number_with_two_names_is_changed_once_and_its_tables_with_it() -> None:
    trials = [config(optimizer=OPTIMIZERS["warmup"](x)) for x in (1.0, 0.5)]
    for cfg in trials:
        cfg.schedules = {"rate": cfg.ref.optimizer.learning_rate}
    tables = ("optimizer.learning_rate", "schedules.rate")
    points = Points(trials, tables, num_steps=20, rule=population(metric="train/losses/total"))
    path = "optimizer.learning_rate.peak_value"
    assert points.now == {0: {path: 1e-2}, 1: {path: 5e-3}} and points.arguments == tables
    points.change(1, {path: 2e-2}, donor="0", step=4)
    for own, changed in zip(points.values(0), points.values(1), strict=True):
        np.testing.assert_allclose(np.asarray(own) * 2, changed, rtol=1e-6)
    again = Points(trials, tables, num_steps=20, rule=population(metric="train/losses/total"))
    again.restore(points.to_json())
    assert again.now == points.now and again.first == points.first
    assert list(again.inherited(4)) == [(1, packs.Inherited(4, "0", {path: [5e-3, 2e-2]}))]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"metric": "train/losses/totl"}, "Did you mean 'train/losses/total'?"),
        ({"metric": "tset/losses/total"}, "unknown evaluator 'tset'. Did you mean 'test'?"),
        ({"metric": "test/metrics/acuracy"}, "Did you mean 'test/metrics/accuracy'?"),
        ({"metric": "test/metrics/size"}, "rule.mode: unset, and nothing says whether more or less of 'test/metrics"),
        ({"metric": "late/losses/total"}, "'late' does not run at step 2"),
        ({"metric": "train/losses/total", "every": 1000}, "decides at no step before the last one"),
        ({"metric": "train/losses/total", "bounds": {"optimizer.rate": (0.1, 1.0)}}, "unknown path 'optimizer.rate'"),
        ({"metric": "train/losses/total", "bounds": {"optimizer.learning_rate": 3}}, "must be a pair"),
        ({"metric": "outside/losses/total"}, "'outside' runs outside of training"),
        (
            {"metric": "train/losses/total", "paths": ["optimizer.learning_rat"]},
            "Did you mean 'optimizer.learning_rate'?",
        ),
        ({"metric": "train/losses/total", "quantile": 0.6}, "quantile: must be above 0 and at most 0.5"),
    ],
)
def test_a_rule_that_can_not_work_is_refused_in_one_line(rule: dict[str, Any], message: str, tmp_path: Any) -> None:
    """F01: also one that nothing tells which end of its metric is the good one."""
    trials = configs(tmp_path, RATES[:2], is_evaluated=True)
    for cfg in trials:
        cfg.evals.test.metrics = {**cfg.train_metrics, "size": kd.metrics.Average(values="preds")}
        cfg.evals.late = kd.evals.Evaluator(run=kd.evals.Final())
        cfg.evals.outside = kd.evals.Evaluator(run=kd.evals.StandaloneLastCheckpoint())
        cfg.eval_ds = cfg.evals.test.ds
    with pytest.raises(ConfigError) as error:
        next(packs.iter_train(trials, packs.Pack((0, 1), ("optimizer.learning_rate",)), rule=population(**rule)))
    assert message in str(error.value) and "\n" not in str(error.value)


def population(**fields: Any) -> packs.Population:
    return packs.Population(**{"every": 2, **fields})
