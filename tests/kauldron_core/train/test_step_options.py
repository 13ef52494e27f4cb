"""What changes how a step is computed and not what comes out, and what only looks at it."""

from __future__ import annotations

import dataclasses
import json
import time
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from kauldron_core import kd, kontext, rundir
from kauldron_core.errors import ConfigError
from kauldron_core.train import Evaluated, Logged, Saved, Summarized
from kauldron_core.train.loop.memory import biggest_arrays, explained
from kauldron_core.train.loop.progress import TimeLeft
from kauldron_core.train.loop.speed import Speed
from kauldron_core.train.loop.watchdog import Watchdog
from tests.kauldron_core import experiments


class Plain(nn.Module):
    """A model whose examples do not depend on each other."""

    x: kontext.Key = "batch.x"

    @nn.compact
    def __call__(self, x):
        return nn.Dense(experiments.CLASSES)(jnp.tanh(nn.Dense(8)(x)))


def trainer(**fields: Any) -> kd.train.Trainer:
    defaults = {"model": Plain(), "checkpointer": None, "num_train_steps": 7, "log_metrics_every": 3}
    return experiments.trainer(**{**defaults, **fields})


def logged(trainer: kd.train.Trainer) -> dict[int, float]:
    events = list(trainer.iter_train())
    return {event.step: event.values["losses/total"] for event in events if isinstance(event, Logged)}


@pytest.fixture(scope="module")
def plain() -> dict[int, float]:
    return logged(trainer())


def test_a_batch_in_parts_gives_what_the_whole_gives(plain: dict[int, float]) -> None:
    parts = logged(trainer(microbatches=4))
    assert list(parts) == list(plain)
    np.testing.assert_allclose(list(parts.values()), list(plain.values()), rtol=1e-5)


def short_of(num_examples: int, **fields: Any) -> kd.data.InMemoryPipeline:
    """Returns the first examples of one epoch, with what is left of them in a last batch of its own."""

    def load() -> dict[str, np.ndarray]:
        return {name: column[:num_examples] for name, column in experiments.load_points().items()}

    return kd.data.InMemoryPipeline(load, **{"num_epochs": 1, "batch_drop_remainder": False, **fields})


def test_a_shorter_last_batch_that_has_no_parts_is_refused_at_the_start() -> None:
    """F14: 66 examples, batch 20, five microbatches: all but the last batch were trained, and nothing was saved."""
    fields = {"num_train_steps": None, "microbatches": 5}
    short = short_of(66, batch_size=20)
    with pytest.raises(ConfigError, match=r"batch_drop_remainder: False.* last batch has 6 .*microbatches=5.*'pad'"):
        next(trainer(train_ds=short, **fields).iter_train())
    from_iterator = kd.data.FromIterator(
        lambda: ({"x": np.zeros(4, np.float32), "label": np.int32(0)} for _ in range(66)),
        num_epochs=1,
        batch_drop_remainder=False,
        batch_size=20,
    )
    with pytest.raises(ConfigError, match=r"the last batch may be shorter.*'pad'"):
        next(trainer(train_ds=from_iterator, **{**fields, "num_train_steps": 4}).iter_train())
    # What it advises works, and what does not get there, or fits, is no mistake.
    advised = dataclasses.replace(short, batch_drop_remainder="pad")
    assert logged(
        trainer(train_ds=advised, eval_ds=short, evals={"val": kd.evals.Evaluator(run=kd.evals.Final())}, **fields)
    )
    assert trainer(train_ds=short, **{**fields, "num_train_steps": 3}).last_step == 3
    assert trainer(train_ds=short_of(65, batch_size=20), **fields).last_step == 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Count(kd.metrics.Metric):
    """How many examples there are, in a type that a user chose."""

    values: kontext.Key = "batch.x"
    dtype: Any = jnp.float32

    @flax.struct.dataclass
    class State(kd.metrics.AutoState):
        count: jax.Array = kd.metrics.sum_field()

    def get_state(self, values):
        return self.State(count=jnp.asarray(values.shape[0], self.dtype))


def test_counts_and_norms_are_exact_in_few_bits() -> None:
    """F06: with 512 parts a count in bfloat16 said 512 for 1,024, one in int8 said 0."""
    types = {"bfloat16": jnp.bfloat16, "float16": jnp.float16, "int8": jnp.int8, "uint8": jnp.uint8}
    metrics: dict[str, Any] = {name: Count(dtype=dtype) for name, dtype in types.items()}
    batch = {"x": np.ones((1024, experiments.FEATURES), np.float32), "label": np.zeros(1024, np.int32)}
    step = trainer(train_metrics=metrics, microbatches=512).trainstep
    _, aux = step.step(step.init(batch), batch, return_metrics=True)
    assert {name: int(state.compute().count) for name, state in aux.metric_states.items()} == dict.fromkeys(types, 1024)
    norm = kd.metrics.GlobalNorm(tree="tree")(tree={"a": jnp.ones(10_000, jnp.bfloat16)})
    assert float(norm) == pytest.approx(100)


def test_parts_with_different_numbers_of_examples_count_as_in_one_batch() -> None:
    losses = {
        "masked": kd.losses.SoftmaxCrossEntropyWithIntLabels(logits="preds", labels="batch.label", mask="batch.use"),
        "group": {"size": kd.losses.L2(preds="preds", targets="batch.target", weight=0.1)},
    }
    metrics = {
        "accuracy": kd.metrics.Accuracy(logits="preds", labels="batch.label", mask="batch.use"),
        "norm": kd.metrics.GlobalNorm(tree="grads", max_norm=1e-3),
    }
    batch = experiments.load_points()
    batch = {name: array[:16] for name, array in batch.items()}
    batch |= {"use": np.arange(16) < 5, "target": np.ones((16, experiments.CLASSES), np.float32)}
    found = []
    for parts in (1, 4):
        step = trainer(train_losses=losses, train_metrics=metrics, microbatches=parts).trainstep
        state, aux = step.step(step.init(batch), batch, return_losses=True, return_metrics=True)
        found.append((jax.device_get(state.params), aux.compute()))
    (params, values), (params_in_parts, values_in_parts) = found
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), params, params_in_parts)
    assert values["metrics/norm"]["clipped"] == values_in_parts["metrics/norm"]["clipped"] == 1
    np.testing.assert_allclose(values["metrics/norm"]["norm"], values_in_parts["metrics/norm"]["norm"], rtol=1e-4)
    for name in ("losses/total", "losses/masked", "losses/group", "metrics/accuracy"):
        np.testing.assert_allclose(values[name], values_in_parts[name], rtol=1e-5)


def test_a_batch_that_does_not_divide_into_parts_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"microbatches: a batch of 16 is no multiple of 5"):
        trainer(microbatches=5).train()


def test_calls_of_several_steps_give_the_same_bits_as_single_ones(tmp_path: Any) -> None:
    fields = {
        "num_train_steps": 20,
        "log_metrics_every": 7,
        "checkpointer": kd.ckpts.Checkpointer(save_interval_steps=6),
        "evals": {"test": kd.evals.Evaluator(run=kd.evals.EveryNSteps(10))},
    }
    found = []
    for size in (1, 4):
        base = experiments.trainer(tmp_path / str(size), steps_per_call=size, **fields)
        events = list(base.iter_train())
        state = base.checkpointer.load(base.state_specs).state
        found.append(
            (
                [(type(e).__name__, e.step, getattr(e, "values", {}).get("losses/total")) for e in events],
                jax.device_get(state.params),
            )
        )
    kinds = {(kind, step) for kind, step, _ in found[1][0]}
    assert {("Saved", 6), ("Saved", 18), ("Evaluated", 10), ("Logged", 14)} <= kinds
    assert sorted(found[0][0]) == sorted(found[1][0])
    jax.tree.map(np.testing.assert_array_equal, found[0][1], found[1][1])
    calls = base.trainstep._compiled[0][0]._steps
    assert [call._cache_size() for call in calls.values()] == [1] * len(calls) and len(calls) == 2


def test_rematerialisation_changes_nothing_but_the_memory(plain: dict[int, float]) -> None:
    np.testing.assert_allclose(
        list(logged(trainer(remat="nothing_saveable")).values()), list(plain.values()), rtol=1e-6
    )
    with pytest.raises(ConfigError, match=r"remat: unknown policy 'dots_savable'\. Did you mean 'dots_saveable'\?"):
        trainer(remat="dots_savable")


def test_mixed_precision_computes_in_one_type_and_keeps_another() -> None:
    seen = {}

    class Watched(Plain):
        @nn.compact
        def __call__(self, x):
            seen["x"] = x.dtype
            statistics = nn.BatchNorm(use_running_average=False)(x)
            return nn.Dense(experiments.CLASSES, param_dtype=jnp.float32)(statistics)

    mixed = trainer(model=Watched(), precision=kd.train.Precision(compute="bfloat16"))
    state, aux = mixed.trainstep.step(mixed.init_state(), next(iter(mixed.train_ds)), return_losses=True)
    assert seen["x"] == jnp.bfloat16
    assert {leaf.dtype for leaf in jax.tree.leaves((state.params, state.collections))} == {np.dtype("float32")}
    assert aux.loss_states["xent"].total.dtype == np.float32
    assert {leaf.dtype for leaf in jax.tree.leaves(mixed.context_specs.preds)} == {np.dtype("float32")}


def test_checks_in_the_step_name_what_went_wrong() -> None:
    class Bad(Plain):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(experiments.CLASSES)(jnp.log(-jnp.abs(x) - 1))

    with pytest.raises(Exception, match="nan generated by primitive: log"):
        trainer(model=Bad(), checkify_error_categories=("nan",)).train()
    with pytest.raises(ConfigError, match=r"checkify_error_categories: unknown category 'nans'.*'nan'"):
        trainer(checkify_error_categories=("nans",))


def test_summaries_are_files_that_a_person_can_open(tmp_path: Any) -> None:
    summaries = {
        "pixels": kd.summaries.ShowImages(images="batch.image", num_images=2),
        "weights": kd.summaries.HistogramSummary(tensor="params.Dense_0.kernel"),
    }
    shown = trainer(workdir=tmp_path, train_ds=experiments.points(loader=_pictures), train_summaries=summaries)
    shown = dataclasses.replace(shown, log_summaries_every=4, log_metrics_every=100)
    (summary,) = [event for event in shown.iter_train() if isinstance(event, Summarized)]
    assert summary.step == 4 and sorted(summary.files) == ["pixels.png", "weights.json"]
    assert (tmp_path / "summaries/4/pixels.png").read_bytes()[:4] == b"\x89PNG"
    assert sum(json.loads((tmp_path / "summaries/4/weights.json").read_text())["counts"]) == 8 * 3


def _pictures() -> dict[str, np.ndarray]:
    points = experiments.load_points()
    return {**points, "image": np.random.default_rng(0).random((len(points["x"]), 4, 4, 3), np.float32)}


def test_a_transform_changes_a_new_state_and_never_a_resumed_one(tmp_path: Any) -> None:
    class Zeros:
        def transform(self, state):
            return state.replace(params=jax.tree.map(jnp.zeros_like, state.params))

    fields: dict[str, Any] = {"workdir": tmp_path, "checkpointer": kd.ckpts.Checkpointer(), "init_transform": Zeros()}
    first = trainer(num_train_steps=0, **fields)
    assert not any(map(np.any, jax.tree.leaves(first.init_state().params)))
    once = trainer(num_train_steps=2, **fields)
    once.train()
    events = list(trainer(num_train_steps=3, **fields).iter_train())
    assert [event.step for event in events if isinstance(event, Saved)] == [3]


def test_a_window_of_steps_is_profiled(tmp_path: Any) -> None:
    trainer(workdir=tmp_path, profiler=kd.train.Profiler(first_step=3, num_steps=2)).train()
    assert list((tmp_path / "profile").rglob("perfetto_trace.json.gz"))
    with pytest.raises(ConfigError, match=r"profiler\.num_steps: must be at least 1, not 0"):
        kd.train.Profiler(num_steps=0)


def test_times_of_steps_are_those_of_the_device() -> None:
    """F17: `step_median_s` was the time of handing a step over, 0.0004 where a step took 0.0158."""
    speed = Speed(batch_size=4, flops=lambda: None)
    measured = []
    for step in range(0, 101, 10):
        speed.call_begins()
        speed.data_is_there()
        speed.call_ended("program")
        time.sleep(0.01)  # The device is at it, and the host waits for a record.
        measured.append(speed.read(step, speed.cut()))
    assert measured[0] == {}
    assert all(found["step_median_s"] >= 0.001 for found in measured[1:])
    times = [1 / found["steps_per_s"] for found in measured[1:]]
    assert measured[-1]["step_median_s"] == pytest.approx(np.median(times))


def test_the_time_left_is_not_told_before_it_is_known() -> None:
    """F37: in the first seconds of a run compilation counted as a step, and 2.2 h were left of 40 s."""
    left = TimeLeft(num_steps=1_000)
    assert [left(now, step) for now, step in ((8.0, 1), (16.0, 2), (16.01, 3), (16.02, 4))] == [None] * 4
    assert left(18.01, 103) == pytest.approx(17.94)
    assert TimeLeft(num_steps=None)(1.0, 1) is None


def test_two_profilers_are_refused_at_the_start() -> None:
    """F22: with `JAX_ENABLE_PGLE=true` the run was lost to "Another profiling session active"."""
    jax.config.update("jax_enable_pgle", True)
    try:
        with pytest.raises(ConfigError, match=r"profiler: .*Unset JAX_ENABLE_PGLE, or .*profiler=None"):
            trainer(profiler=kd.train.Profiler())
        trainer()
    finally:
        jax.config.update("jax_enable_pgle", False)


@pytest.mark.parametrize("dtype", [name for name in dir(jnp) if name.startswith(("float4_", "float6_", "float8_"))])
def test_floats_that_need_scaling_are_refused(dtype: str) -> None:
    """F21: computing in float8 without scaling went through, with an accuracy of 0.711 for 0.984."""
    for name in ("compute", "output"):
        with pytest.raises(ConfigError, match=rf"precision\.{name}: {dtype} has too few digits .*Use 'bfloat16'"):
            kd.train.Precision(**{name: dtype})


def test_parameters_that_need_scaling_are_refused() -> None:
    """F21: parameters too."""

    class Narrow(nn.Module):
        x: kontext.Key = "batch.x"

        @nn.compact
        def __call__(self, x):
            return nn.Dense(experiments.CLASSES, param_dtype=jnp.float8_e4m3fn, dtype=jnp.float32)(x)

    with pytest.raises(ConfigError, match=r"model: the parameter .*Dense_0.* is kept in float8_e4m3fn"):
        trainer(model=Narrow()).train()


def test_the_watchdog_tells_once_where_a_step_hangs(capfd: pytest.CaptureFixture[str]) -> None:
    with Watchdog(factor=20, min_s=0.2) as watchdog:
        for _ in range(8):
            watchdog.tick()
            time.sleep(0.001)
        watchdog.tick()
        time.sleep(1.0)
    told = capfd.readouterr().err
    assert told.count("a step has been running for more than 0 s") == 1
    assert "test_the_watchdog_tells_once" in told


def test_an_error_about_memory_names_the_biggest_arrays() -> None:
    big = jnp.zeros((1000, 1000))
    with pytest.raises(Exception, match="RESOURCE_EXHAUSTED") as caught, explained():
        jax.block_until_ready(jax.jit(lambda: jnp.ones((1 << 46,)) + 1)())
    assert "float32[1000, 1000]: 3.8 MiB" in caught.value.__notes__[-1]
    del big
    assert "MiB of arrays are alive" in biggest_arrays()


def test_speed_is_told_with_the_metrics() -> None:
    events = [event for event in trainer(num_train_steps=12).iter_train() if isinstance(event, Logged)]
    values = events[-1].values
    assert values["perf/examples_per_s"] == pytest.approx(16 * values["perf/steps_per_s"])
    assert 0 <= values["perf/data_wait"] <= 1 and values["perf/step_p95_s"] >= values["perf/step_median_s"] > 0
    base = trainer()
    assert base.trainstep.flops(base.train_ds.element_spec) > 2 * 16 * (4 * 8 + 8 * 3)


def test_every_key_path_is_known_before_training() -> None:
    specs = trainer().context_specs
    leaves = kontext.flatten_with_path(specs)
    assert leaves["grads.Dense_1.kernel"].shape == (4, 8)
    assert leaves["interms.Dense_1.__call__[0]"].shape == (16, 8)
    assert leaves["preds"].shape == (16, experiments.CLASSES)
    assert any(name.startswith("metric_states.accuracy") for name in leaves)


def test_a_trial_is_evaluated_by_other_evaluators(tmp_path: Any) -> None:
    from kauldron_core import konfig

    with konfig.imports():
        import optax as optax_

        from kauldron_core import kd as kd_
    cfg = kd_.train.Trainer(
        num_train_steps=3,
        train_ds=kd_.data.InMemoryPipeline(loader=experiments.load_points, batch_size=16),
        model=kd_.nn.MLP(hidden=8, features=experiments.CLASSES, x="batch.x"),
        train_losses={"xent": kd_.losses.SoftmaxCrossEntropyWithIntLabels(logits="preds", labels="batch.label")},
        optimizer=optax_.adam(learning_rate=1e-2),
    )
    konfig.save(cfg, tmp_path / "config.json")
    konfig.trust("tests")
    kd.load_trial(tmp_path).train()
    before = sorted(path.name for path in (tmp_path / "events").iterdir())
    evals = {"again": kd.evals.Evaluator(run=kd.evals.Final(), ds=experiments.points())}
    evaluated = kd.train.Trainer.eval_only(workdir=tmp_path, evals=evals)
    (event,) = [event for event in evaluated.iter_train() if isinstance(event, Evaluated)]
    assert (event.name, event.step, event.num_examples) == ("again", 3, 70)
    assert int(evaluated.train().step) == 3
    assert sorted(path.name for path in (tmp_path / "events").iterdir()) == before


def test_optimizers_with_state_of_their_own_go_on_in_calls_of_several_steps() -> None:
    chain = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(optax.linear_schedule(1e-2, 0.0, 10)))
    found = [logged(trainer(optimizer=chain, steps_per_call=size)) for size in (1, 5)]
    assert found[0] == found[1]


def test_the_optimizer_starts_from_the_parameters_that_are_loaded() -> None:
    class Ones:
        def transform(self, state):
            assert state.opt_state is None
            return state.replace(params=jax.tree.map(jnp.ones_like, state.params))

    averaged = optax.chain(optax.sgd(0.1), kd.optim.ema_params(decay=0.9))
    state = trainer(optimizer=averaged, init_transform=Ones()).init_state()
    kept = [leaf for leaf in jax.tree.leaves(state.opt_state) if leaf.shape == (8, experiments.CLASSES)]
    assert kept and all(np.all(np.asarray(leaf) == 1) for leaf in kept)


def test_an_evaluator_that_is_not_there_cannot_tell_the_best_checkpoint() -> None:
    with pytest.raises(ConfigError, match=r"checkpointer\.best_metric: unknown evaluator 'val'"):
        trainer(checkpointer=kd.ckpts.Checkpointer(best_metric="val/losses/total", mode="min"))
    evals = {"test": kd.evals.Evaluator(run=kd.evals.StandaloneEveryCheckpoint())}
    with pytest.raises(ConfigError, match=r"best_metric: unknown metric 'test/metrics/acuracy'\. Did you mean"):
        trainer(evals=evals, checkpointer=kd.ckpts.Checkpointer(best_metric="test/metrics/acuracy"))
    trainer(evals=evals, checkpointer=kd.ckpts.Checkpointer(best_metric="test/metrics/accuracy"))


@pytest.mark.parametrize(
    ("metric", "mode"), [("test/metrics/accuracy", "max"), ("test/losses/total", "min"), ("train/losses/xent", "min")]
)
def test_the_checkpointer_takes_the_direction_of_its_metric(metric: str, mode: str) -> None:
    """F01: retention asks the metric; what says nothing is refused when the trainer is built."""
    evals = {"test": kd.evals.Evaluator(run=kd.evals.StandaloneEveryCheckpoint())}
    made = trainer(evals=evals, checkpointer=kd.ckpts.Checkpointer(best_metric=metric))
    assert made.checkpointer is not None and made.checkpointer.mode == mode


def test_a_best_metric_that_says_no_direction_needs_a_mode() -> None:
    metrics = {"size": kd.metrics.Average(values="preds")}
    evals = {"test": kd.evals.Evaluator(run=kd.evals.StandaloneEveryCheckpoint(), metrics=metrics)}
    with pytest.raises(ConfigError, match=r"^checkpointer\.mode: unset, and nothing says whether more or less of"):
        trainer(evals=evals, checkpointer=kd.ckpts.Checkpointer(best_metric="test/metrics/size"))
    trainer(evals=evals, checkpointer=kd.ckpts.Checkpointer(best_metric="test/metrics/size", mode="min"))


def test_a_precision_that_is_no_type_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"precision\.compute: unknown type 'bfloat61'\. Did you mean 'bfloat16'"):
        kd.train.Precision(compute="bfloat61")


def test_rows_of_examples_of_an_inline_evaluation_are_kept(tmp_path: Any) -> None:
    evals = {
        "test": kd.evals.Evaluator(
            run=kd.evals.Final(), ds=experiments.points(), per_example=kd.evals.PerExample(target="batch.label")
        )
    }
    trainer(workdir=tmp_path, evals=evals).train()
    rows = rundir.read_examples(tmp_path / "evals" / "test" / "7.parquet")
    assert len(rows) == 70 and set(rows[0]) >= {"id", "prediction", "target"}


def test_a_terminal_shows_the_model_and_how_far_training_is(capfd: pytest.CaptureFixture[str]) -> None:
    setup = kd.train.Setup(tqdm_info=kd.train.TqdmInfo(desc="fit", disable=False))
    trainer(setup=setup).train()
    told = capfd.readouterr().err
    assert "Plain: 67 parameters in 4 arrays" in told
    assert "fit" in told and "7/7" in told and "loss" in told
