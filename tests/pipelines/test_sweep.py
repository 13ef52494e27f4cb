"""`kdr sweep` before anything starts: what is planned, and what is refused."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from kauldron_core import konfig, rundir
from kauldron_core.errors import ConfigError
from kauldron_core.rundir import Ranking
from pipelines import experiment as experiments
from pipelines import planning, run_folder
from pipelines.cli import main
from pipelines.cli.words.command import read_command
from pipelines.sweep import HELP
from ray_cluster.cluster import environment
from ray_cluster.spec import Sweep

DIGITS = "pipelines/configs/digits.py"


def prepare(*words: str) -> planning.Prepared:
    command = read_command([DIGITS, *words])
    return planning.prepare(command, experiments.read_spec(command), command=f"kdr sweep {DIGITS}")


def lay_out(prepared: planning.Prepared) -> rundir.RunDir:
    from ray_cluster.driver import layout

    run = layout.lay_out(prepared.plan)
    layout.write_trials(prepared.plan, run)
    return run


AXES = ("--sweep.optimizer.learning_rate=[1e-3, 1e-2]", "--sweep.model.hidden=[32, 128]")


def test_a_plan_holds_every_trial_with_its_config(tmp_path: Path) -> None:
    prepared = prepare(*AXES, "--cfg.num_train_steps=7", f"--run.root={tmp_path}", "--run.name=demo")
    plan = prepared.plan
    assert plan.run_dir == str(tmp_path / "demo")
    assert [dict(trial.overrides) for trial in plan.trials] == [
        {"optimizer.learning_rate": rate, "model.hidden": hidden} for rate in (1e-3, 1e-2) for hidden in (32, 128)
    ]
    config = konfig.from_json(plan.trials[1].config_json)
    assert (config.optimizer.learning_rate, config.model.hidden, config.num_train_steps) == (1e-3, 128, 7)
    assert [pool.evaluators for pool in plan.pools] == [("test",)]
    assert plan.env["MLFLOW_TRACKING_URI"] == f"sqlite:///{tmp_path}/mlflow.db"
    assert prepared.evaluators == ("test",)
    assert list(tmp_path.iterdir()) == []


def test_three_values_give_three_effective_configs(tmp_path: Path) -> None:
    """S12: three values give three effective configs."""
    plan = prepare("--sweep.optimizer.learning_rate=[1e-3, 2e-3, 3e-3]", f"--run.root={tmp_path}").plan
    configs = [konfig.from_json(trial.config_json) for trial in plan.trials]
    assert [config.optimizer.learning_rate for config in configs] == [1e-3, 2e-3, 3e-3]


def test_dry_run_shows_the_trials_and_starts_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", DIGITS, *AXES, f"--run.root={tmp_path}", "--dry-run", "--pack=off"]) == 0
    out = capsys.readouterr().out
    assert len(re.findall(r"^ \d{4}-", out, re.MULTILINE)) == 4
    assert "optimizer.learning_rate=0.01, model.hidden=128" in out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["pipelines/configs/digit.py"], "Did you mean 'pipelines/configs/digits.py'?"),
        ([DIGITS, "--sweep.optimizer.learning_rat=[1e-3]"], "Did you mean 'learning_rate'?"),
        ([DIGITS, "--cfg.optimizer.learning_rat=1e-3"], "Did you mean 'learning_rate'?"),
        ([DIGITS, "--cfg.optimizer.learning_rate=fast"], "cfg.optimizer.learning_rate"),
        ([DIGITS, "--cfg.model.hidden=wide"], "cfg.model.hidden"),
        ([DIGITS, "--sweep.model.hidden=[32, 'wide']"], "sweep.model.hidden"),
        ([DIGITS, "--sweep.optimizer.learning_rate=[]"], "the list is empty"),
        ([DIGITS, "--sweep.optimizer.learning_rate="], "an axis needs its values"),
        ([DIGITS, "--run.nam=x"], "Did you mean 'name'?"),
        ([DIGITS, "--run.name=a/b"], "--run.name"),
        ([DIGITS, "--run.max_failures=-1"], "max_failures"),
        ([DIGITS, "--dry-rum"], "--dry-run"),
        ([DIGITS, "--run.metric=test/metrics/acuracy"], "Did you mean 'test/metrics/accuracy'?"),
        ([DIGITS, "--run.stop=test/losses/total<=0.1"], "evaluator 'test' runs beside training"),
        ([DIGITS, "--run.stop={'train/losses/total': 0.1}"], "--run.stop: expected"),
        ([], "the config file is missing"),
        ([DIGITS, "--sweep.model.hidden=[0, -1]", "--cfg.train_ds.batch_size=-5"], "batch_size"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(
    words: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", *words, f"--run.root={tmp_path}", "--no-tracking"]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert expected in captured.err
    assert list(tmp_path.iterdir()) == []
    assert "ray" not in sys.modules


def test_a_stop_rule_on_a_misspelt_metric_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """U06: a stop rule on a misspelt metric is refused before anything starts."""
    words = [DIGITS, "--run.stop=train/losses/totl<=0.1", f"--run.root={tmp_path}"]
    expected = "error: --run.stop: unknown metric 'train/losses/totl'. Did you mean 'train/losses/total'?"
    for command in ("sweep", "train"):
        assert main([command, *words, "--no-tracking"]) == 2
        assert capsys.readouterr().err.startswith(expected)
    assert list(tmp_path.iterdir()) == []


def test_the_help_names_every_field_of_the_run_spec() -> None:
    assert [name for name in Sweep.__dataclass_fields__ if not re.search(rf"\b{name}\b", HELP)] == []


def test_a_flag_of_an_external_agent_gets_the_right_form(capsys: pytest.CaptureFixture[str]) -> None:
    """I02: a flag of an external agent gets the right form."""
    assert main(["sweep", DIGITS, "--optimizer.learning_rate=1"]) == 2
    assert "--cfg.optimizer.learning_rate=1" in capsys.readouterr().err


def test_a_run_without_a_name_is_new_each_time(tmp_path: Path) -> None:
    first = prepare(f"--run.root={tmp_path}").plan.run_dir
    assert re.fullmatch(r"digits-\d{8}-\d{6}", Path(first).name)
    Path(first).mkdir()
    second = prepare(f"--run.root={tmp_path}").plan.run_dir
    assert second != first


def test_the_same_sweep_goes_on_under_the_same_identity(tmp_path: Path) -> None:
    words = (*AXES, f"--run.root={tmp_path}", "--run.name=demo")
    run = lay_out(prepare(*words))
    again = prepare(*words)
    assert again.plan.description["id"] == run.sweep["id"]
    assert again.resume_command == f"kdr sweep {DIGITS}"


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ((*AXES, "--cfg.num_train_steps=400"), "num_train_steps 500 -> 400"),
        ((AXES[0], "--sweep.model.hidden=[32, 64]"), "trial 0001-learning_rate=0.001-hidden=64 is new"),
        ((AXES[0],), "model.hidden unset -> 64"),
    ],
)
def test_a_changed_sweep_under_an_old_name_is_refused_with_the_difference(
    changed: tuple[str, ...], expected: str, tmp_path: Path
) -> None:
    place = (f"--run.root={tmp_path}", "--run.name=demo")
    lay_out(prepare(*AXES, *place))
    with pytest.raises(ConfigError, match="holds another sweep") as caught:
        prepare(*changed, *place)
    assert expected in str(caught.value)
    assert f"kdr sweep {DIGITS}" in str(caught.value)


def test_what_every_trial_sets_may_differ_in_the_base(tmp_path: Path) -> None:
    place = (f"--run.root={tmp_path}", "--run.name=demo")
    lay_out(prepare("--sweep.model.hidden=[32, 128]", *place))
    listed = tmp_path / "trials.txt"
    listed.write_text("model.hidden=32\nmodel.hidden=128\n")
    assert prepare(f"--trials={listed}", *place).plan.trials


def test_inside_a_ray_job_only_absolute_places_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    with pytest.raises(ConfigError, match=r"--run.root=runs: .* Give an absolute one .*: --run.root=/"):
        prepare()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
    with pytest.raises(ConfigError, match=r"MLFLOW_TRACKING_URI=.* Give an absolute one: sqlite:////"):
        prepare(f"--run.root={tmp_path}")
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert prepare(f"--run.root={tmp_path}").plan.run_dir.startswith(str(tmp_path))


def test_each_structure_and_each_value_is_built_and_not_each_trial(tmp_path: Path) -> None:
    words = read_command(
        [DIGITS, "--sweep.optimizer.learning_rate=logspace(1e-4, 1e-1, 10)", "--sweep.model.hidden=[8, 16]"]
    )
    spec = experiments.read_spec(words)
    experiment = experiments.read_experiment(words)
    trials = experiments.read_trials(words, experiment, spec)
    built = experiments.check_trials(experiment, trials)
    assert len(trials) == 20
    assert len(built) == 11
    values = [dict(trial.overrides) for trial in trials if trial.name in built]
    assert len({one["optimizer.learning_rate"] for one in values}) == 10
    assert {one["model.hidden"] for one in values} == {8, 16}


def test_a_value_that_can_not_be_built_names_its_trial(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"trial 0001-.*: .*batch_size is -5"):
        prepare("--sweep.train_ds.batch_size=[5, -5]", f"--run.root={tmp_path}")


@pytest.mark.parametrize("metric", ["test/metrics/accuracy", "test/losses/total", "train/losses/xent"])
def test_a_metric_that_will_be_there_may_rank(metric: str, tmp_path: Path) -> None:
    mode = "max" if metric.endswith("accuracy") else "min"
    ranking = Ranking(metric, mode, "run.metric")
    assert prepare(f"--run.metric={metric}", f"--run.root={tmp_path}").ranking == ranking


SIZE = "--cfg.evals.test.metrics={'size': kd.metrics.Average(values='preds')}"


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ([SIZE, "--run.metric=test/metrics/size"], "--run.mode: unset, and nothing says whether more or less of"),
        ([SIZE, "--cfg.checkpointer.best_metric=test/metrics/size"], "checkpointer.mode: unset, and nothing says"),
        (["--run.mode=min"], "--run.mode=min: says which end of --run.metric is the good one"),
    ],
)
def test_a_direction_that_nothing_says_is_refused_before_anything_starts(
    words: list[str], fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """F01: one line, exit 2, and nothing is made."""
    assert main(["sweep", DIGITS, *words, f"--run.root={tmp_path}", "--no-tracking"]) == 2
    err = capsys.readouterr().err
    assert fault in err and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "ranking"),
    [
        ([], Ranking("train/losses/total", "min", "training")),
        (["--cfg.evals.test.run=kd.evals.Final()"], Ranking("test/losses/total", "min", "evaluator")),
        (
            ["--cfg.checkpointer.best_metric=test/metrics/accuracy"],
            Ranking("test/metrics/accuracy", "max", "checkpointer.best_metric"),
        ),
    ],
)
def test_one_rule_ranks_and_the_run_keeps_what_it_said(words: list[str], ranking: Ranking, tmp_path: Path) -> None:
    """F02: never by a stand-alone evaluator that nobody named; the same command later says the same."""
    place = (f"--run.root={tmp_path}", "--run.name=demo")
    prepared = prepare(*words, *place)
    assert prepared.ranking == ranking
    run = lay_out(prepared)
    assert rundir.read_ranking(run.sweep) == ranking
    assert run.sweep["directions"] == {"train/metrics/accuracy": "higher", "test/metrics/accuracy": "higher"}
    other = Ranking("test/losses/xent", "min", "checkpointer.best_metric")
    run.write_sweep({**run.sweep, "ranking": other.to_json()})
    assert prepare(*words, *place).ranking == other, "what the run has kept stays"
    asked = prepare(*words, *place, "--run.metric=test/metrics/accuracy").ranking
    assert asked == Ranking("test/metrics/accuracy", "max", "run.metric")


def test_a_stop_rule_against_the_direction_is_obeyed_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """F01: of a loss, less is better."""
    prepare("--run.stop=train/losses/total>=5, train/losses/xent<=0.1", f"--run.root={tmp_path}")
    assert [record.message for record in caplog.records if "--run.stop" in record.message] == [
        "--run.stop=train/losses/total>=5: ends a trial where the metric is bad: of it lower is better."
    ]


def test_the_code_of_a_config_file_from_elsewhere_is_copied_into_the_run(tmp_path: Path) -> None:
    source = Path(DIGITS).read_text()
    elsewhere = tmp_path / "somewhere" / "mine.py"
    elsewhere.parent.mkdir()
    elsewhere.write_text(source)
    command = read_command([str(elsewhere), f"--run.root={tmp_path}", "--run.name=demo"])
    prepared = planning.prepare(command, experiments.read_spec(command), command="")
    prepared.write_sources()
    run = rundir.RunDir(prepared.plan.run_dir)
    copies = list(run.code.iterdir())
    assert [copy.read_text() for copy in copies] == [source]
    assert copies[0].stem in prepared.plan.trials[0].config_json
    assert copies[0].stem in prepared.plan.trust
    assert str(run.code) not in environment.worker_variables(prepared.plan, {"CPU": 1})["PYTHONPATH"]


def test_trials_get_the_address_that_the_driver_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """L16: trials get the address that the driver has."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    plan = prepare(f"--run.root={tmp_path}").plan
    assert environment.worker_variables(plan, {"CPU": 1})["MLFLOW_TRACKING_URI"] == "http://127.0.0.1:5000"


def test_place_store_is_beside_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words: Any = read_command([f"--run.root={tmp_path}"])
    assert run_folder.place_store(experiments.read_spec(words)).root == str(tmp_path)


@pytest.mark.parametrize(
    ("root", "fault"), [("", "is empty"), ("/proc/nowhere", "can't be a folder"), ("a*b", "wildcard")]
)
def test_a_root_that_can_not_be_is_refused_at_once(root: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        run_folder.make_root(Sweep(root=root))
