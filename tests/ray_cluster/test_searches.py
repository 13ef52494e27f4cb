"""Searches and schedulers of Tune on a real Ray: they choose, end and change trials of the run."""

import dataclasses
import re
import subprocess
import sys
import time

import pytest

import pipelines
from kauldron_core import konfig, rundir, sweeps
from kauldron_core.errors import ConfigError
from pipelines import planning
from pipelines.cli import main
from pipelines.configs import digits
from ray_cluster.driver import collect
from ray_cluster.searches import spaces
from tests.ray_cluster import tiny

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("ray_session", "no_leaks")]

LOSS = "train/losses/total"


def _config(**options):
    config = tiny.config(**options)
    config.evals = {}
    return config


@pytest.fixture(scope="module")
def search(ray_session, root):
    """Six trials that Optuna chooses, of which ASHA ends some."""
    sweep = pipelines.Sweep(
        name="optuna",
        root=str(root),
        search="optuna(seed=1)",
        scheduler="asha(grace_period=10, reduction_factor=2)",
        num_samples=6,
        metric=LOSS,
        mode="min",
    )
    axes = ["optimizer.learning_rate=loguniform(1e-4, 1e-1)", "model.hidden=[8, 16]"]
    return sweep, axes, sweep.run(_config(), axes, tracking=False, trust=("tests",))


def test_a_search_makes_the_trials_of_the_run(search):
    _, _, results = search
    run = rundir.RunDir(results.run_dir)
    assert len(results.rows) == 6
    assert [trial.name for trial in run.trials()] == [row.name for row in results.rows]
    assert {row.status for row in results.rows} <= {"done", "pruned"}
    assert results.ok
    for row in results.rows:
        config = konfig.load(run.trial(row.name).config_path)
        assert dict(row.overrides) == {
            "optimizer.learning_rate": config.optimizer.learning_rate,
            "model.hidden": config.model.hidden,
        }
        assert 1e-4 <= config.optimizer.learning_rate <= 1e-1
        assert config.model.hidden in (8, 16)
    assert [row["name"] for row in run.sweep["trials"]] == [row.name for row in results.rows]


def test_asha_ends_trials_at_its_rungs_and_no_later(search):
    _, _, results = search
    pruned = [row for row in results.rows if row.status == "pruned"]
    assert pruned
    assert {row.step for row in pruned} <= {10, 20}
    assert all("ended by the scheduler" in str(row.reason) for row in pruned)
    assert all(row.step == tiny.NUM_STEPS for row in results.rows if row.status == "done")


def test_a_search_goes_on_from_the_run_directory(search):
    sweep, axes, results = search
    larger = dataclasses.replace(sweep, num_samples=7)
    again = larger.run(_config(), axes, tracking=False, trust=("tests",))
    assert again.rows[:6] == results.rows
    assert len(again.rows) == 7


@pytest.mark.parametrize(
    "scheduler", ["asha(grace_period=10, reduction_factor=2)", "median(grace_period=10, min_samples_required=1)"]
)
def test_a_scheduler_decides_at_a_step_by_the_evaluation_of_that_step(root, scheduler):
    """F03: good trials were pruned at step 10 by their accuracy before the first step."""
    config = digits.get_config()
    config.num_train_steps = 20
    config.log_metrics_every = config.checkpointer.save_interval_steps = 10
    config.evals = {"val": {**config.evals.test, "run": tiny.node("evals.EveryNSteps", n=10)}}
    sweep = pipelines.Sweep(
        name=f"decided-{scheduler.partition('(')[0]}",
        root=str(root),
        scheduler=scheduler,
        metric="val/metrics/accuracy",
        mode="max",
    )
    axes = ["seed,optimizer.learning_rate=[(5, 1e-9), (7, 1e-9), (0, 0.03), (8, 0.03)]"]
    results = sweep.run(config, axes, tracking=False)
    assert [(row.status, row.step) for row in results.rows[2:]] == [("done", 20)] * 2
    assert all(row.step in (10, 20) for row in results.rows)
    assert {row.status for row in results.rows} <= {"done", "pruned"}


@pytest.mark.soak
def test_pbt_passes_checkpoints_and_changed_values_on(root):
    sweep = pipelines.Sweep(
        name="pbt",
        root=str(root),
        scheduler="pbt(perturbation_interval=10, quantile_fraction=0.5, resample_probability=0.0)",
        num_samples=2,
        metric=LOSS,
        mode="min",
    )
    results = sweep.run(
        _config(slow_s=0.02, num_steps=80),
        ["optimizer.learning_rate=loguniform(1e-4, 1e-1)"],
        tracking=False,
        trust=("tests",),
    )
    assert [row.status for row in results.rows] == ["done", "done"]
    assert {row.step for row in results.rows} == {80}
    run = rundir.RunDir(results.run_dir)
    changes = {}
    for row in results.rows:
        events = rundir.read_events(run.trial(row.name).events)
        changes[row.name] = [event for event in events if event["kind"] == "inherited"]
    assert any(changes.values())
    for name, events in changes.items():
        if events:
            first, last = (events[at]["changes"]["optimizer.learning_rate"] for at in (0, -1))
            assert first[0] != first[1]
            assert konfig.load(run.trial(name).config_path).optimizer.learning_rate == last[1]
            assert events[0]["donor"] != name


def _choose(choose):
    if choose("model.hidden", "choice([8, 16])") == 8:
        choose("optimizer.learning_rate", "loguniform(1e-4, 1e-2)")
    else:
        choose("optimizer.learning_rate", "[0.5, 0.25]")


def _suggestions(text, space, number):
    from ray_cluster.searches import searching

    searcher, to_point = searching.make_searcher(text, space, metric=LOSS, mode="min", seed=0)
    for index in range(number):
        yield to_point(searcher.suggest(str(index)) or {})
        searcher.on_trial_complete(str(index), {LOSS: float(index), "training_iteration": 1})


@pytest.mark.parametrize("text", ["optuna", "random", "optuna(seed=7)"])
def test_a_function_makes_a_space_whose_parts_depend_on_each_other(text):
    space = spaces.SearchSpace(conditional=spaces.Conditional(_choose, _config()))
    rates = {8: set(), 16: set()}
    for point in _suggestions(text, space, 20):
        rates[dict(point)["model.hidden"]].add(dict(point)["optimizer.learning_rate"])
    assert all(1e-4 <= rate <= 1e-2 for rate in rates[8])
    assert rates[16] == {0.5, 0.25}


@pytest.mark.parametrize("text", ["optuna", "random"])
def test_choices_keep_their_types(text):
    """U08: choices keep their types."""
    values = [(1, 2), [1, 2], None, {"a": 1}, True, 1, "1"]
    space = spaces.SearchSpace.of([sweeps.axis("x", values)])
    found = [dict(point)["x"] for point in _suggestions(text, space, 60)]
    assert {(type(value), str(value)) for value in found} == {(type(value), str(value)) for value in values}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("optna", "Did you mean 'optuna'?"),
        ("optuna(", "write NAME or NAME"),
        ("optuna(3)", "arguments are given by name"),
        ("optuna(sed=3)", "unexpected keyword argument 'sed'"),
        ("os.system(command='true')", "os is not trusted"),
        ("ray.tune.grid_search(values=[1])", "is no Searcher"),
        ("ray.tune.search.nothing.Here()", "No module named"),
    ],
)
def test_a_searcher_that_is_none_is_refused(text, fault):
    space = spaces.SearchSpace.of([sweeps.axis("model.hidden", [8, 16])])
    with pytest.raises(ConfigError, match=re.escape(fault)):
        next(_suggestions(text, space, 1))


def test_any_other_scheduler_of_tune_is_given_by_its_name():
    from ray_cluster.searches import searching

    text = "ray.tune.schedulers.HyperBandScheduler(time_attr='step', max_t=30)"
    scheduler = searching.make_scheduler(text, None, num_steps=30, save_every=10)
    assert type(scheduler).__name__ == "HyperBandScheduler"


@pytest.mark.soak
def test_a_tuner_of_ones_own_takes_our_trainable(root):
    from ray import tune

    from ray_cluster.tune import trainable

    run = rundir.RunDir(root / "own")
    tuner = tune.Tuner(
        trainable(_config(), run_dir=run, metric=LOSS, trust=("tests",)),
        param_space={"optimizer.learning_rate": tune.grid_search([1e-3, 1e-2])},
        tune_config=tune.TuneConfig(metric=LOSS, mode="min", reuse_actors=True),
        run_config=tune.RunConfig(storage_path=str(root / "tune"), verbose=0),
    )
    results = tuner.fit()
    assert not results.errors
    assert {(result.metrics or {})["step"] for result in results} == {tiny.NUM_STEPS}
    assert {trial.status() for trial in run.trials()} == {"done"}
    best = results.get_best_result()
    metrics, config = best.metrics or {}, best.config or {}
    trial = run.trial(metrics["trial_id"])
    assert konfig.load(trial.config_path).optimizer.learning_rate == config["optimizer.learning_rate"]
    last = [event for event in rundir.read_events(trial.events) if event["kind"] == "metrics"][-1]
    assert metrics[LOSS] == last["values"]["losses/total"]


def _points_of_one_go(rows, text, axes):
    """Returns the points that the searcher chooses in one go, by what the trials have come to."""
    from ray_cluster.searches import searching

    space = spaces.SearchSpace.of(sweeps.from_strings(digits.get_config(), axes))
    searcher, to_point = searching.make_searcher(text, space, metric=LOSS, mode="min", seed=0)
    for row in rows:
        searcher.begin(row.index, 0)
        yield spaces.identity(to_point(searcher.suggest(row.name) or {}))
        searcher.on_trial_complete(row.name, {LOSS: row.values[LOSS], "training_iteration": 1})


def test_a_search_whose_driver_was_killed_goes_on_as_in_one_go(ray_session, root):
    """F04: after a kill the points before it were made again; here it is resumed, for more trials than it was for."""
    axes = ["optimizer.learning_rate=loguniform(1e-4, 1e-1)", "model.hidden=[8, 16]"]
    run, text = rundir.RunDir(root / "killed"), "optuna(seed=1)"
    words = [
        *(f"--sweep.{one}" for one in axes),
        *(f"--run.{one}" for one in (f"root={root}", "name=killed", f"search={text}", "num_samples=12")),
        *(f"--run.{one}" for one in ("max_concurrent=1", f"metric={LOSS}", "mode=min")),
        *("--cfg.num_train_steps=20", "--cfg.log_metrics_every=10", "--cfg.checkpointer.save_interval_steps=10"),
        *("--cfg.evals.test.run=kd.evals.Final()", f"--address={ray_session}", "--no-tracking"),
    ]
    command = [sys.executable, "-m", "pipelines.sweep", "pipelines/configs/digits.py", *words]
    with subprocess.Popen(command, start_new_session=True) as driver:
        while driver.poll() is None and not (run.exists() and len(run.trials()) > 3):
            time.sleep(0.1)
        driver.kill()
    before = [row["name"] for row in run.sweep["trials"]]
    assert 3 <= len(before) < 12
    assert (
        main(["sweep", f"--resume={run.path}", "--run.num_samples=13", f"--address={ray_session}", "--no-tracking"])
        == 0
    )
    prepared = planning.resume(run)
    results = collect.collect(prepared.plan, run)
    assert [row.name for row in results.rows][: len(before)] == before
    assert [row.status for row in results.rows] == ["done"] * 13
    points = [spaces.identity(row.overrides) for row in results.rows]
    assert points == list(_points_of_one_go(results.rows, text, axes))
    assert len(set(points)) == 13
