"""A run goes on from its folder alone, takes more points, and repeats its points with several seeds."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kauldron_core import konfig, masking, rundir, sweeps
from kauldron_core.errors import ConfigError
from pipelines import Sweep, planning, sources
from pipelines import experiment as experiments
from pipelines.cli import main
from pipelines.cli.words.command import read_command
from pipelines.configs import digits
from pipelines.python_api import read_axes
from ray_cluster.cluster import environment
from ray_cluster.driver import layout

DIGITS = "pipelines/configs/digits.py"


def prepare(*words: str, extend: bool = False, seeds: int = 1) -> planning.Prepared:
    command = read_command([DIGITS, *words])
    spec = replace(experiments.read_spec(command), seeds=seeds)
    return planning.prepare(command, spec, command=f"kdr sweep {DIGITS}", extend=extend)


def lay_out(prepared: planning.Prepared) -> rundir.RunDir:
    prepared.write_sources()
    run = layout.lay_out(prepared.plan)
    layout.write_trials(prepared.plan, run)
    return run


WORDS = ("--sweep.model.hidden=[16, 32]", "--sweep.optimizer=[optax.sgd(0.05), optax.adam(1e-3)]", "--run.name=demo")


@pytest.fixture
def run(tmp_path: Path) -> rundir.RunDir:
    return lay_out(prepare(*WORDS, f"--run.root={tmp_path}", "--run.max_failures=5"))


def test_a_run_goes_on_from_its_folder_alone(run: rundir.RunDir, tmp_path: Path) -> None:
    before = {trial.name: trial.config_path.read_text() for trial in run.trials()}
    shutil.rmtree(run.trial("0003-hidden=32-optimizer=adam").path)
    moved = rundir.RunDir(tmp_path / "elsewhere" / "renamed")
    moved.path.parent.mkdir()
    run.path.rename(moved.path)
    prepared = planning.resume(moved)
    assert {trial.name: trial.config_json for trial in prepared.plan.trials} == before
    assert prepared.plan.run_dir == str(moved.path)
    assert prepared.plan.sweep.max_failures == 5
    assert prepared.resume_command == f"kdr sweep --resume={moved.path}"
    lay_out(prepared)
    assert {trial.name: trial.status() for trial in moved.trials()} == dict.fromkeys(before, "queued")


def test_a_resumed_run_takes_changes_of_its_spec_and_nothing_else(
    run: rundir.RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared = planning.resume(run, changes=[("max_concurrent", "1")])
    assert prepared.plan.sweep.max_concurrent == 1
    with pytest.raises(ConfigError, match=r"--run.name=x: a run that goes on stays where it is"):
        planning.resume(run, changes=[("name", "x")])
    assert main(["sweep", DIGITS, f"--resume={run.path}"]) == 2
    assert "goes on with the config and the points that it has" in capsys.readouterr().err
    assert main(["sweep", f"--resume={run.path}", "--dry-run", "--pack=off"]) == 0
    assert "4, each with 1 CPU" in capsys.readouterr().out


def test_extending_a_run_by_what_it_says_needs_more_samples(
    run: rundir.RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--extend` beside `--resume` added nothing, in silence."""
    assert main(["sweep", f"--resume={run.path}", "--extend", "--dry-run"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: --extend: --resume={run.path} names no points to add.")


def test_what_is_left_goes_on_beside_a_trial_that_failed_before_it_began(run: rundir.RunDir) -> None:
    """S14: what is left goes on beside a trial that failed before it began."""
    first, *others = [trial.name for trial in run.trials()]
    rundir.write_status(run.trial(first), "failed", error="ConfigError: nothing can be drawn")
    lay_out(planning.resume(run))
    assert [run.trial(name).status() for name in (first, *others)] == ["failed", *["queued"] * 3]
    # Deleted, it is a point that is left, too.
    shutil.rmtree(run.trial(first).path)
    lay_out(planning.resume(run))
    assert run.trial(first).status() == "queued"


def test_failed_and_stopped_trials_run_again_only_when_asked(run: rundir.RunDir) -> None:
    names = [trial.name for trial in run.trials()]
    for name, status in zip(names, ("failed", "stopped", "diverged", "done"), strict=True):
        rundir.write_status(run.trial(name), status)
    lay_out(planning.resume(run))
    assert [run.trial(name).status() for name in names] == ["failed", "stopped", "diverged", "done"]
    lay_out(planning.resume(run, retry_failed=True))
    assert [run.trial(name).status() for name in names] == ["queued", "queued", "diverged", "done"]


def test_extend_adds_new_points_and_keeps_what_is_there(tmp_path: Path) -> None:
    place = (f"--run.root={tmp_path}", "--run.name=demo")
    run = lay_out(prepare("--sweep.model.hidden=[16, 32]", *place))
    rundir.write_status(run.trial("0000-hidden=16"), "done")
    with pytest.raises(ConfigError, match="To add the new points to it: --extend"):
        prepare("--sweep.model.hidden=[16, 32, 64]", *place)
    lay_out(prepare("--sweep.model.hidden=[64, 32, 8]", *place, extend=True))
    assert [trial.name for trial in run.trials()] == [
        "0000-hidden=16",
        "0001-hidden=32",
        "0002-hidden=64",
        "0003-hidden=8",
    ]
    assert run.trial("0000-hidden=16").status() == "done"
    assert [row["name"] for row in run.sweep["trials"]] == [trial.name for trial in run.trials()]
    # Points over another path, too; and what a run was extended with is part of it from then on.
    lay_out(prepare("--sweep.optimizer.learning_rate=[0.5]", *place, extend=True))
    prepared = planning.resume(run)
    assert [trial.name for trial in prepared.plan.trials][-1] == "0004-learning_rate=0.5"
    with pytest.raises(ConfigError, match="num_train_steps 500 -> 7"):
        prepare("--sweep.model.hidden=[99]", "--cfg.num_train_steps=7", *place, extend=True)


@pytest.mark.parametrize("cuts", [(3, 6), (1, 2, 6), (5, 6)])
@pytest.mark.parametrize("is_resumed", [False, True])
def test_more_samples_of_a_sweep_are_those_of_one_go(tmp_path: Path, cuts: tuple[int, ...], is_resumed: bool) -> None:
    """F04: the same command, or `--resume`, with a larger number adds the points that one go would have had."""
    rate, hidden = "--sweep.optimizer.learning_rate=loguniform(1e-4, 1e-1)", "--sweep.model.hidden=choice([8, 16, 32])"

    def words(name: str, number: int) -> tuple[str, ...]:
        return rate, hidden, f"--run.root={tmp_path}", f"--run.name={name}", f"--run.num_samples={number}"

    whole = prepare(*words("whole", 6)).plan.trials
    run = lay_out(prepare(*words("cut", cuts[0])))
    for number in cuts[1:]:
        lay_out(
            planning.resume(run, changes=[("num_samples", str(number))])
            if is_resumed
            else prepare(*words("cut", number))
        )
    again = planning.resume(run).plan.trials
    assert [(trial.name, trial.overrides) for trial in again] == [(trial.name, trial.overrides) for trial in whole]
    assert [trial.fingerprint for trial in again] == [trial.fingerprint for trial in whole]
    with pytest.raises(ConfigError, match="holds another sweep"):
        prepare(rate.replace("1e-4", "1e-5"), hidden, *words("cut", 9)[2:])


def test_equal_points_are_told_from_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """F18: four samples of two choices are two points and two repeats, and a line says so."""
    words = ["--sweep.optimizer.learning_rate=choice([1e-2, 3e-2])", "--run.num_samples=4", f"--run.root={tmp_path}"]
    trials = prepare(*words).plan.trials
    assert len({trial.overrides for trial in trials[:2]}) == 2
    assert len({trial.fingerprint for trial in trials}) == 4
    assert main(["sweep", DIGITS, *words, "--dry-run"]) == 0
    assert "2 trials repeat the point of another: 0002-" in capsys.readouterr().out


@pytest.mark.process
def test_a_run_goes_on_with_values_of_another_type_than_the_base(tmp_path: Path) -> None:
    """F11: a tuple where the base has an int, None where it has a call; nothing has imported what takes them."""
    axes = ("--sweep.model.hidden=[(4, 5), (3, 3)]", "--sweep.checkpointer=[None]")
    run = lay_out(prepare(*axes, "--cfg.evals={}", f"--run.root={tmp_path}", "--run.name=demo"))
    before = [trial.config_path.read_text() for trial in run.trials()]
    code = (
        "import sys; from pipelines import planning; from kauldron_core import rundir\n"
        "prepared = planning.resume(rundir.RunDir(sys.argv[1]))\n"
        "print(*[trial.config_json for trial in prepared.plan.trials], sep='', end='')\n"
    )
    told = subprocess.run([sys.executable, "-c", code, str(run.path)], capture_output=True, text=True, check=False)
    assert told.stdout == "".join(before), told.stderr[-2000:]


def test_trials_keep_the_names_that_they_have_in_a_run(tmp_path: Path) -> None:
    """F38: an earlier version may have named them otherwise."""
    words = ("--sweep.model.hidden=[16, 32]", f"--run.root={tmp_path}", "--run.name=demo")
    prepared = prepare(*words)
    old = [replace(trial, name=f"000{trial.index}-old={trial.index}") for trial in prepared.plan.trials]
    run = lay_out(replace(prepared, plan=replace(prepared.plan, trials=tuple(old))))
    assert [trial.name for trial in prepare(*words).plan.trials] == ["0000-old=0", "0001-old=1"]
    assert [trial.name for trial in run.trials()] == ["0000-old=0", "0001-old=1"]


def test_extending_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--extend: there is no run"):
        prepare("--sweep.model.hidden=[64]", f"--run.root={tmp_path}", "--run.name=demo", extend=True)


def test_seeds_repeat_each_point(tmp_path: Path) -> None:
    plan = prepare("--sweep.model.hidden=[16, 32]", "--cfg.seed=7", f"--run.root={tmp_path}", seeds=3).plan
    assert [dict(trial.overrides) for trial in plan.trials] == [
        {"model.hidden": hidden, "seed": seed} for hidden in (16, 32) for seed in (7, 8, 9)
    ]
    with pytest.raises(ConfigError, match=r"--sweep.seed names the seeds already"):
        prepare("--sweep.seed=[1, 2]", f"--run.root={tmp_path}", seeds=3)


def test_dry_run_says_how_many_run_at_a_time_and_what_they_fill(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["sweep", DIGITS, "--sweep.model.hidden=[32, 128]", f"--run.root={tmp_path}", "--dry-run", "--pack=off"]
    assert main([*words, "--seeds=2", "--run.max_concurrent=1", "--address=local"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"trials +4, each with 1 CPU", out)
    assert re.search(r"at a time +1 on this machine", out)
    # 5 checkpoints of 9,610 parameters, Adam's two moments with them, and what is written beside the 15 arrays.
    assert re.search(r"disk +about 2\.6 MB \(5 checkpoints of 130 KB a trial\)", out)
    assert main([*words, "--address=10.0.0.1:6379"]) == 0
    assert "as many as the cluster carries" in capsys.readouterr().out
    assert "ray" not in sys.modules


@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]])
def test_what_this_machine_could_never_run_is_refused_before_anything_is_made(
    dry_run: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """U14: what this machine could never run is refused before anything is made."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    words = [DIGITS, f"--run.root={tmp_path}", "--run.resources={'CPU': 4096}", "--no-tracking"]
    assert main(["sweep", *words, *dry_run]) == 2
    assert re.search(r"run.resources: asked for CPU 4096 on one node. Available: .* CPU \d", capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []
    assert "ray" not in sys.modules


def test_a_sweep_from_python_plans_what_the_command_line_plans(tmp_path: Path) -> None:
    config = digits.get_config()
    in_python = {"optimizer.learning_rate": [1e-3, 1e-2]}
    as_text = ["optimizer.learning_rate=[1e-3, 1e-2]"]
    plans = [
        planning.prepare_experiment(
            experiments.Experiment(sweeps.ConfigFile(config, Path("demo"), "demo"), config),
            read_axes(config, axes),
            Sweep(name="demo", root=str(tmp_path)),
            command="",
        ).plan
        for axes in (in_python, as_text, [sweeps.axis("optimizer.learning_rate", [1e-3, 1e-2])])
    ]
    words = ("--sweep.optimizer.learning_rate=[1e-3, 1e-2]", f"--run.root={tmp_path}", "--run.name=demo")
    assert {plan.trials for plan in plans} == {prepare(*words).plan.trials}


def test_sources_keep_the_types_of_points(run: rundir.RunDir) -> None:
    trials = sources.read_trials(run)
    assert isinstance(dict(trials[0].overrides)["optimizer"], konfig.ConfigDict)
    assert [trial.index for trial in trials] == [0, 1, 2, 3]


def test_the_same_command_again_shows_a_run_in_which_nothing_is_missing(
    run: rundir.RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for trial in run.trials():
        rundir.write_status(trial, "diverged", reason="loss xent is nan at step 3")
    assert main(["sweep", DIGITS, *WORDS, f"--run.root={tmp_path}", "--no-tracking"]) == 0
    assert capsys.readouterr().out.count("diverged: loss xent is nan at step 3") == 4
    assert len(rundir.read_table(run.path / "results.parquet")) == 4
    assert "ray" not in sys.modules


@pytest.mark.process
def test_a_run_in_which_nothing_is_missing_is_shown_at_once(run: rundir.RunDir) -> None:
    for trial in run.trials():
        rundir.write_status(trial, "diverged", reason="loss xent is nan at step 3")
    words = [f"--resume={run.path}", "--no-tracking"]
    # A diverged trial is a result, unless it is to be strict.
    code = f"""
import sys
from pipelines.cli import main
statuses = [main(["sweep", *{words!r}, *more]) for more in ([], ["--strict"])]
sys.exit(statuses != [0, 1] or any(name in sys.modules for name in ("ray", "jax", "mlflow")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("diverged: loss xent is nan at step 3") == 8


SECRET = "hunter2-secret"
VARIABLES = ("--run.env={'DB_PASSWORD': 'hunter2-secret', 'JAX_ENABLE_X64': '1'}",)


def test_a_run_with_variables_asks_for_their_values_when_it_goes_on(tmp_path: Path) -> None:
    """F48: the names are kept and the values are not, so a run that goes on without them would give other numbers."""
    run = lay_out(prepare(*WORDS, f"--run.root={tmp_path}", *VARIABLES))
    message = r"--run.env: .*demo was made with DB_PASSWORD, JAX_ENABLE_X64, and a run keeps no values\. Give them"
    with pytest.raises(ConfigError, match=message):
        planning.resume(run)
    with pytest.raises(ConfigError, match=r"was made with DB_PASSWORD, and"):
        planning.resume(run, changes=[("env", "{'JAX_ENABLE_X64': '0'}")])
    with pytest.raises(ConfigError, match="was made with DB_PASSWORD, JAX_ENABLE_X64"):
        prepare(*WORDS, f"--run.root={tmp_path}")
    with pytest.raises(ConfigError, match=r"\*\*\* stands for a value that is kept nowhere"):
        planning.resume(run, changes=[("env", "{'JAX_ENABLE_X64': '***'}")])
    prepared = planning.resume(run, changes=[("env", "{'DB_PASSWORD': None, 'JAX_ENABLE_X64': '0', 'NEW': '1'}")])
    variables = environment.worker_variables(prepared.plan, {"CPU": 1})
    assert "DB_PASSWORD" not in variables
    assert (variables["JAX_ENABLE_X64"], variables["NEW"]) == ("0", "1")
    lay_out(prepared)
    assert layout.variables_of(run) == ("DB_PASSWORD", "JAX_ENABLE_X64", "NEW")


def test_variables_in_the_file_of_a_run_are_not_obeyed(run: rundir.RunDir) -> None:
    """F45: what a run says of the environment reaches no process, whatever it says."""
    for env in ({"LD_PRELOAD": "/evil.so"}, [["LD_PRELOAD", "/evil.so"]], "LD_PRELOAD=/evil.so", {"a b; id": "x"}):
        run.write_sweep({**run.sweep, "run": {**run.sweep["run"], "env": env}})
        try:
            prepared = planning.resume(run)
        except ConfigError as error:
            assert "was made with LD_PRELOAD, and a run keeps no values" in str(error)
            prepared = planning.resume(run, changes=[("env", "{'LD_PRELOAD': None}")])
        assert "/evil.so" not in environment.worker_variables(prepared.plan, {"CPU": 1}).values()


def test_the_values_of_variables_are_written_nowhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """F49: not in what a run records, of the command neither, nor in what is said of it."""
    words = [DIGITS, "--sweep.seed=[0, 1]", f"--run.root={tmp_path}", "--run.name=demo", *VARIABLES]
    command = read_command(words)
    typed = shlex.join(["kdr", "sweep", *masking.mask_words(words)])
    prepared = planning.prepare(command, experiments.read_spec(command), command=typed)
    assert SECRET not in repr(prepared.plan.sweep)
    run = lay_out(prepared)
    rundir.write_status(run.trials()[0], "failed", error=f"OSError: no database at pg://me:{SECRET}@host")
    for file in run.path.rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes(), file
    assert run.sweep["run"]["env"] == {"DB_PASSWORD": "***", "JAX_ENABLE_X64": "***"}
    assert main(["sweep", *words, "--cfg.sed=1"]) == 2
    assert main(["sweep", *words, "--run.env", f"{{'DB_PASSWORD': '{SECRET}'"]) == 2
    said = capsys.readouterr()
    assert said.err.count("error: ") == 2
    assert "hunter2" not in said.err + said.out
