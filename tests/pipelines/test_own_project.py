"""A user's own project, outside the repository: what it defines is found and trusted by every command."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kauldron_core import konfig, rundir, sweeps
from kauldron_core.errors import ConfigError
from kauldron_core.konfig.trusting.project_path import project_folder
from pipelines.cli import main
from pipelines.configs import digits
from pipelines.submit import check

SOURCE = """
import numpy as np
from flax import linen as nn
from kauldron_core import konfig, kontext

with konfig.imports():
    import optax
    from kauldron_core import kd


def load():
    x = np.arange(96.0, dtype="float32").reshape(24, 4) / 96
    return {"x": x, "y": x.sum(1, keepdims=True)}


class Net(nn.Module):
    x: kontext.Key = kontext.REQUIRED
    width: int = 2

    @nn.compact
    def __call__(self, x):
        return {"y": nn.Dense(1)(nn.Dense(self.width)(x))}


with konfig.imports():
    from MODULE import Net as ConfigNet


def get_config():
    ds = kd.data.InMemoryPipeline(loader=load, batch_size=8)
    return kd.train.Trainer(
        seed=0, num_train_steps=4, log_metrics_every=2, train_ds=ds, model=ConfigNet(x="batch.x"),
        train_losses={"l2": kd.losses.L2(preds="preds.y", targets="batch.y")}, optimizer=optax.sgd(learning_rate=1e-2),
        checkpointer=kd.ckpts.Checkpointer(save_interval_steps=2),
        evals={"val": kd.evals.Evaluator(run=kd.evals.StandaloneEveryCheckpoint(), ds=ds)},
    )
"""
HOME = str(Path(__file__).parents[2])
OURS = ("evaluators", "kauldron_core", "pipelines", "ray_cluster")


def write_project(folder: Path, module: str) -> str:
    """Writes an experiment as the module of that name, and returns its file as it is typed."""
    file = folder.joinpath(*module.split(".")).with_suffix(".py")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(SOURCE.replace("MODULE", module))
    return str(file.relative_to(folder))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder with a space in its name, which is the working directory."""
    folder = tmp_path / "own project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield folder


@pytest.mark.slow
@pytest.mark.parametrize("module", ["own_flat", "own_package.experiment", "own_namespace.experiment"])
def test_every_command_finds_a_project_of_ones_own(
    project: Path, module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """F09: an own module, a package and a namespace package are found and trusted, also months after the training."""
    file = write_project(project, module)
    if module == "own_package.experiment":
        (project / "own_package" / "__init__.py").touch()
    assert main(["train", file, "--run.name=a", "--no-tracking"]) == 0
    (trial,) = (project / "runs" / "a" / "trials").iterdir()
    saved = f"runs/a/trials/{trial.name}/config.json"
    for words in (
        ["eval", "runs/a", "--again", "--no-tracking"],
        ["config", "validate", saved],
        ["config", "show", saved, "--cfg.model.width=3"],
        ["train", saved, "--run.name=b", "--cfg.num_train_steps=2", "--no-tracking"],
        ["sweep", saved, "--sweep.model.width=[2, 3]", "--dry-run"],
        ["ckpt", "show", "runs/a"],
        ["ckpt", "export", "runs/a", "--to=winner"],
        ["eval", "winner", "--no-tracking"],
        ["best", "runs/a"],
        ["logs", "runs/a"],
    ):
        capsys.readouterr()
        assert main(words) == 0, (words, capsys.readouterr())


@pytest.mark.process
def test_the_command_finds_what_python_m_finds(project: Path) -> None:
    """F09: the console script lacks the working directory on its path, which `python -m` has."""
    write_project(project, "own_flat")
    kdr = Path(sys.executable).with_name("kdr")
    words = ["config", "show", "own_flat.py", "--format=json"]
    shown = subprocess.run([kdr, *words], capture_output=True, text=True, check=True)
    assert '"own_flat:load"' in shown.stdout


@pytest.mark.parametrize("name", OURS)
def test_a_project_with_a_package_named_like_ours_is_told(
    project: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """F09: a user's own `pipelines` or `evaluators` is named, here and where it would be sent to a cluster."""
    (project / name).mkdir()
    assert project_folder() == str(project), "a folder that is no package hides nothing"
    (project / name / "__init__.py").touch()
    assert main(["ls"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: the working directory: {project / name} hides the package {name!r}")
    with pytest.raises(ConfigError, match=f"--working-dir: .*{name} hides the package"):
        check(["sweep", "--resume=/shared/runs/a"], str(project))


@pytest.mark.process
def test_python_m_tells_a_hidden_package_too(project: Path) -> None:
    """F09: under `python -m` the user's package comes first before anything of ours runs."""
    (project / "evaluators.py").touch()
    environment = {**os.environ, "PYTHONPATH": HOME}
    told = subprocess.run(
        [sys.executable, "-m", "pipelines.train"], env=environment, capture_output=True, text=True, check=False
    )
    assert told.returncode == 2
    (line,) = told.stderr.splitlines()
    assert "evaluators.py hides the package 'evaluators'" in line


def test_another_copy_of_our_sources_is_no_project(project: Path) -> None:
    """A clone beside an installation: half of one and half of the other would be imported."""
    for name in OURS:
        (project / name).mkdir()
        (project / name / "__init__.py").touch()
    assert project_folder() is None


def test_a_run_is_no_project(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F09: what lies in a run is data, also for somebody who works in its folder."""
    (project / "sweep.json").write_text("{}")
    (project / "trials").mkdir()
    for folder in (project, project / "trials"):
        monkeypatch.chdir(folder)
        assert project_folder() is None


def test_a_refusal_says_what_to_do_on_the_command_line_and_in_python() -> None:
    """F09: both forms, and the one for Python works."""
    text = '{"a": {"__qualname__": "fractions:Fraction", "0": 1}}'
    with pytest.raises(konfig.UntrustedError, match=r"add --trust=fractions, in Python konfig\.trust\('fractions'\)"):
        konfig.resolve(konfig.from_json(text))


PIPELINE = """
from kauldron_core import konfig

with konfig.imports():
    import pipelines

TINY = {"num_train_steps": 10, "model.hidden": 8, "checkpointer.save_interval_steps": 10, "evals": {}}


def get_config():
    return pipelines.Pipeline(
        name="p",
        stages={
            "search": pipelines.SweepStage(config="../elsewhere/own_copied.py", cfg=TINY),
            "choose": pipelines.SelectStage(of="search", metric="train/losses/total", mode="min"),
            "again": pipelines.RetrainStage(of="choose", cfg={"num_train_steps": 20}),
        },
    )
"""


@pytest.mark.cluster
@pytest.mark.process
@pytest.mark.timeout(300)
def test_later_stages_of_a_pipeline_have_the_code_of_the_first(project: Path) -> None:
    """F41: also a process that did not do the first stage, and one that finds the config file gone."""
    elsewhere = project.parent / "elsewhere" / "own_copied.py"
    elsewhere.parent.mkdir()
    elsewhere.write_text(Path(digits.__file__).read_text())
    Path("own_pipeline.py").write_text(PIPELINE)
    words = ["--cfg.num_train_steps=10", "--cfg.model.hidden=8", "--cfg.evals={}", "--no-tracking"]
    assert main(["train", str(elsewhere), *words, "--run.root=runs/p", "--run.name=search"]) == 0
    stages = sweeps.load_config_file("own_pipeline.py").config.stages
    rundir.make_folder(project / "runs" / "p" / "stages")
    record = {"identity": konfig.fingerprint(stages.search), "seconds": 1.0, "run": "search"}
    rundir.write_json(project / "runs" / "p" / "stages" / "search.json", record)
    command = [sys.executable, "-m", "pipelines.pipeline", "run", "own_pipeline.py", "--no-tracking"]
    environment = {**os.environ, "PYTHONPATH": HOME}
    gone = elsewhere.rename(elsewhere.with_suffix(".gone"))
    refused = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode == 2 and "add --trust-run" in refused.stderr, refused.stderr
    gone.rename(elsewhere)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    run = rundir.RunDir(project / "runs" / "p" / "again")
    assert [trial.status() for trial in run.trials()] == ["done"]
    assert [copy.read_text() for copy in run.code.iterdir()] == [elsewhere.read_text()]


@pytest.mark.process
def test_what_a_run_keeps_of_a_config_file_goes_on_with_its_config(project: Path) -> None:
    """F09: `--trust-run` is taken by whatever reads a config of a run, and what is made from it has the code, too."""
    elsewhere = project.parent / "elsewhere" / "own_copied.py"
    elsewhere.parent.mkdir()
    elsewhere.write_text(Path(digits.__file__).read_text())
    words = ["--cfg.num_train_steps=10", "--cfg.model.hidden=8", "--cfg.evals={}", "--no-tracking"]
    assert main(["train", str(elsewhere), *words, "--run.name=a"]) == 0
    (trial,) = rundir.RunDir("runs/a").trials()
    code = (
        "import sys; from pipelines.cli import main\n"
        f"config = {str(trial.config_path)!r}\n"
        "assert main(['config', 'validate', config]) == 2\n"
        "for words in (['config', 'validate', config], ['train', config, '--run.name=b', '--no-tracking'],\n"
        "              ['ckpt', 'export', 'runs/a', '--to=winner']):\n"
        "    assert main([*words, '--trust-run']) == 0, words\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for folder in (Path("runs/b/code"), Path("winner/code")):
        assert [copy.read_text() for copy in folder.iterdir()] == [elsewhere.read_text()]


@pytest.mark.slow
def test_what_a_failed_training_said_is_in_its_log(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """F39: the traceback of `kdr train`, and what was printed before it, are found by `kdr logs`."""
    file = write_project(project, "own_failing")
    text = Path(file).read_text()
    begin = text.index('    return {"x"')
    # What the data says shows where it is read; a model that does not fit is refused before anything starts.
    Path(file).write_text(text[:begin] + "    print('data is loaded')\n    1 / 0\n" + text[begin:])
    assert main(["train", file, "--run.name=a", "--no-tracking"]) != 0
    capsys.readouterr()
    assert main(["logs", "runs/a"]) == 0
    printed = capsys.readouterr()
    assert "data is loaded" in printed.out
    assert "Traceback" in printed.err and "ZeroDivisionError" in printed.err
