"""A search before anything starts: what it may choose, and what is refused."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from kauldron_core import konfig, sweeps
from kauldron_core.errors import ConfigError
from pipelines import experiment as experiments
from pipelines import planning
from pipelines.cli import main
from pipelines.cli.words.command import read_command
from ray_cluster.searches.spaces import Conditional, SearchSpace

DIGITS = "pipelines/configs/digits.py"
LOSS = ("--run.metric=train/losses/total", "--run.mode=min")
RATE = "--sweep.optimizer.learning_rate=loguniform(1e-4, 1e-1)"


def prepare(*words: str) -> planning.Prepared:
    command = read_command([DIGITS, *words])
    return planning.prepare(command, experiments.read_spec(command), command=f"kdr sweep {DIGITS}")


def test_axes_are_the_space_and_a_value_of_a_list_is_its_position(tmp_path: Path) -> None:
    words = (RATE, "--sweep.model.hidden=[32, 128]", "--sweep.seed=randint(0, 5)", "--run.search=optuna")
    search = prepare(*words, *LOSS, "--run.num_samples=9", f"--run.root={tmp_path}").plan.search
    assert search is not None
    raw = {"optimizer.learning_rate": 0.01, "model.hidden": 1, "seed": 3.0}
    point = search.space.point(raw)
    assert dict(point) == {"optimizer.learning_rate": 0.01, "model.hidden": 128, "seed": 3}
    assert type(dict(point)["seed"]) is int
    assert search.space.raw(point) == raw
    trial = search.make_trial(7, point)
    assert trial.name == "0007-learning_rate=0.01-hidden=128-seed=3"
    assert konfig.from_json(trial.config_json).model.hidden == 128
    assert search.make_trial(8, point).fingerprint == trial.fingerprint
    assert (search.num_steps, search.save_every) == (500, 100)


def test_both_ends_of_a_range_and_every_choice_are_looked_at() -> None:
    space = SearchSpace.of(
        [
            sweeps.from_strings(konfig.ConfigDict({"a": 0.5}), ["a=uniform(0, 2)"])[0],
            sweeps.axis("b", ["x", "y", "z"]),
            sweeps.Axis(("c", "d"), ((1, 2), (3, 4))),
        ]
    )
    ends: list[dict[str, Any]] = [dict(point) for point in space.ends()]
    assert {point["b"] for point in ends} == {"x", "y", "z"}
    assert {(point["c"], point["d"]) for point in ends} == {(1, 2), (3, 4)}
    assert ends[0]["a"] == 0
    assert ends[1]["a"] == pytest.approx(2)


def test_a_function_that_chooses_is_looked_at_with_its_first_and_its_last_choices() -> None:
    config = konfig.ConfigDict({"hidden": 1, "rate": 0.1})

    def choose_size(choose: Any) -> None:
        if choose("hidden", "choice([1, 2, 3])") == 3:
            choose("rate", "[0.5, 0.25]")

    assert Conditional(choose_size, config).ends() == [(("hidden", 1),), (("hidden", 3), ("rate", 0.25))]


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--run.search=optuna", RATE], "run.metric: a search or scheduler needs one"),
        (["--run.search=optuna", RATE, "--run.metric=train/losses/totl"], "Did you mean 'train/losses/total'?"),
        (
            ["--run.scheduler=asha", RATE, "--run.metric=test/metrics/accuracy"],
            "evaluator 'test' runs beside training",
        ),
        (["--run.search=optuna", *LOSS], "there is nothing to choose"),
        (["--run.search=optuna", "--sweep.train_ds.batch_size=[8, -5]", *LOSS], "batch_size"),
        (["--run.search=optuna", "--sweep.model.hiden=[8, 16]", *LOSS], "Did you mean 'hidden'?"),
        (["--run.search=optuna", RATE, "--seeds=3", *LOSS], "--seeds: a search makes each point once"),
    ],
)
def test_what_can_not_be_searched_is_refused_before_the_first_trial(
    words: list[str], fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """U06: what can not be searched is refused before the first trial."""
    assert main(["sweep", DIGITS, *words, f"--run.root={tmp_path}", "--no-tracking"]) == 2
    assert fault in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert "ray" not in sys.modules


def test_an_evaluator_inside_training_serves_a_scheduler(tmp_path: Path) -> None:
    inside = "--cfg.evals.test.run=kd.evals.EveryNSteps(100)"
    words = ("--run.scheduler=asha", RATE, inside, "--run.metric=test/metrics/accuracy", f"--run.root={tmp_path}")
    assert prepare(*words).plan.search is not None


def _inside(run: str) -> str:
    return f"--cfg.evals.test.run=kd.evals.{run}"


ACCURACY = "--run.metric=test/metrics/accuracy"


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ([ACCURACY, _inside("Final()"), "--run.scheduler=asha"], "no step from 31 to 499, where asha could decide"),
        ([ACCURACY, _inside("Once(20)"), "--run.scheduler=median"], "test.run='kd.evals.EveryNSteps(50)'"),
        ([ACCURACY, _inside("Once(900)"), "--run.search=optuna"], "at no step of a trial, so optuna has nothing"),
        ([*LOSS, "--cfg.log_metrics_every=500", "--run.scheduler=asha"], "fits: --cfg.log_metrics_every=31"),
        ([*LOSS, "--run.scheduler=asha(grace_period=500)"], "no step before the last one, 500"),
        ([ACCURACY, _inside("EveryNSteps(70)"), "--run.scheduler=pbt"], "not measured at step 100, where pbt"),
        ([ACCURACY, _inside("EveryNSteps(70)"), "--run.scheduler=pbt"], "test.run='kd.evals.EveryNSteps(100)'"),
        ([*LOSS, "--cfg.checkpointer.save_interval_steps=500", "--run.scheduler=pbt"], "no checkpoint before the last"),
        ([*LOSS, "--cfg.checkpointer=None", _inside("Final()"), "--run.scheduler=pbt"], "cfg.checkpointer is None"),
        ([_inside("Final()"), "--run.stop=test/metrics/accuracy>=0.9"], "no step from 1 to 499, where the rule could"),
    ],
)
def test_a_metric_that_is_not_measured_where_somebody_decides_is_refused(
    words: list[str], fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """F03: whoever decides at a step has a value of that step, or is refused with an interval that fits."""
    mode = [] if "--run.mode=min" in words else ["--run.mode=max"]
    assert main(["sweep", DIGITS, RATE, *words, *mode, f"--run.root={tmp_path}", "--no-tracking"]) == 2
    assert fault in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        [ACCURACY, _inside("EveryNSteps(7)"), "--run.scheduler=asha(grace_period=10)"],
        [ACCURACY, _inside("EveryNSteps(50)"), "--run.scheduler=pbt"],
        [ACCURACY, _inside("EveryNSteps(200)"), "--run.scheduler=pbt(perturbation_interval=200)"],
        [ACCURACY, _inside("Final()"), "--run.search=random"],
        [_inside("Once(20)"), "--run.stop=test/metrics/accuracy>=0.9"],
    ],
)
def test_a_metric_that_is_measured_where_somebody_decides_is_taken(words: list[str], tmp_path: Path) -> None:
    assert prepare(RATE, *words, f"--run.root={tmp_path}")


def test_dry_run_says_what_a_search_chooses_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    axes = [RATE, "--sweep.model.hidden=[8, 16]", "--sweep.seed,train_ds.batch_size=[(1, 64), (2, 128)]"]
    words = [*axes, "--run.search=optuna", "--run.num_samples=9", *LOSS, f"--run.root={tmp_path}", "--dry-run"]
    assert main(["sweep", DIGITS, *words]) == 0
    out = capsys.readouterr().out
    assert "optimizer.learning_rate=loguniform(0.0001, 0.1)\n" in out
    assert "model.hidden=[8, 16]\n" in out
    assert "seed,train_ds.batch_size=[(1, 64), (2, 128)]\n" in out
    assert re.search(r"trials +9, each with 1 CPU", out)


def test_another_space_under_the_same_name_is_refused(tmp_path: Path) -> None:
    from ray_cluster.driver import layout

    words = ("--run.search=optuna", *LOSS, f"--run.root={tmp_path}", "--run.name=s", "--run.num_samples=3")
    prepared = prepare(RATE, *words)
    prepared.write_sources()
    layout.write_trials(prepared.plan, layout.lay_out(prepared.plan))
    assert prepare(RATE, *words).plan.run_dir == prepared.plan.run_dir
    with pytest.raises(ConfigError, match=r"holds another search: optimizer\.learning_rate=uniform"):
        prepare("--sweep.optimizer.learning_rate=uniform(0.1, 0.2)", *words)


def test_a_population_goes_on_with_the_points_that_its_trials_have_come_to(tmp_path: Path) -> None:
    from ray_cluster.driver import layout

    place = (f"--run.root={tmp_path}", "--run.name=p", "--run.num_samples=2")
    words = (RATE, "--run.scheduler=pbt", *LOSS, *place)
    prepared = prepare(*words)
    prepared.write_sources()
    run = layout.lay_out(prepared.plan)
    layout.write_trials(prepared.plan, run)
    changed = run.trials()[1]
    config = konfig.load(changed.config_path)
    config.optimizer.learning_rate = 0.25
    changed.config_path.write_text(konfig.to_json(config, indent=1))
    for again in (prepare(*words), planning.resume(run)):
        layout.write_trials(again.plan, run)
        assert [dict(trial.overrides)["optimizer.learning_rate"] for trial in again.plan.trials] == [
            dict(prepared.plan.trials[0].overrides)["optimizer.learning_rate"],
            0.25,
        ]
        assert again.plan.search is not None
        assert again.plan.search.space.raw(again.plan.trials[1].overrides) == {"optimizer.learning_rate": 0.25}
