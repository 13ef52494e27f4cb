"""`kdr config`: shows, compares, checks and lists configs without running them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kauldron_core import konfig, sweeps
from pipelines.cli import main

DIGITS = "pipelines/configs/digits.py"
ROOT = Path(__file__).parents[3]

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def at_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def run(capsys: Captured, *argv: str) -> str:
    status = main(["config", *argv])
    captured = capsys.readouterr()
    assert status == 0, captured.err
    return captured.out


def refused(capsys: Captured, *argv: str) -> str:
    assert main(["config", *argv]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    return captured.err


def test_show_marks_what_the_overrides_changed(capsys: Captured) -> None:
    out = run(capsys, "show", DIGITS, "--cfg.model.hidden=32", "--cfg.optimizer.b1=0.8", "--cfg.evals.test=None")
    lines = out.splitlines()
    assert "    model=kd.nn.MLP(hidden=32, features=10, x='batch.image'),  # was 64" in lines
    assert "    optimizer=optax.adam(learning_rate=0.001, b1=0.8),  # new" in lines
    assert any(line.startswith("    evals={},  # was {'test': kd.evals.Evaluator(") for line in lines)
    assert sum("  # " in line for line in lines) == 3
    assert "#" not in run(capsys, "show", DIGITS)


def test_show_marks_another_call_and_another_function(capsys: Captured) -> None:
    out = run(capsys, "show", DIGITS, "--cfg.optimizer=optax.sgd(0.05)", "--cfg.train_ds.loader=digits.load_test")
    assert "optimizer=optax.sgd(0.05),  # was optax.adam; [0] new" in out
    assert "loader=pipelines.configs.digits.load_test,  # was pipelines.configs.digits.load_train" in out
    assert "# removed: optimizer.learning_rate (was 0.001)" in out


def test_show_as_json_can_be_loaded(capsys: Captured, tmp_path: Path) -> None:
    assert main(["config", "show", DIGITS, "--format=json", "--cfg.model.hidden=32"]) == 0
    captured = capsys.readouterr()
    assert captured.err == "changed: model.hidden: 64 -> 32\n"
    (tmp_path / "digits.json").write_text(captured.out)
    assert konfig.load(tmp_path / "digits.json").model.hidden == 32
    assert json.loads(captured.out)["model"]["hidden"] == 32


def test_show_one_trial_of_a_sweep(capsys: Captured) -> None:
    sweep = ["--sweep.model.hidden=[16, 32]"]
    assert "hidden=32, features=10, x='batch.image'),  # was 64" in run(capsys, "show", DIGITS, *sweep, "--trial=1")
    assert "the sweep has 2 trials (0 to 1)" in refused(capsys, "show", DIGITS, *sweep, "--trial=2")


def test_diff_of_a_config_and_its_overrides(capsys: Captured) -> None:
    out = run(capsys, "diff", DIGITS, "--cfg.model.hidden=[8, 8]", "--cfg.optimizer=optax.sgd(0.1)")
    assert out.splitlines() == [
        "model.hidden: 64 -> (8, 8)",
        "optimizer: optax.adam -> optax.sgd",
        "optimizer.learning_rate: 0.001 -> (not there)",
        "optimizer[0]: (not there) -> 0.1",
    ]
    assert run(capsys, "diff", DIGITS) == "no difference\n"


def test_diff_of_two_trials(capsys: Captured, tmp_path: Path) -> None:
    file = sweeps.load_config_file(DIGITS)
    for number, hidden in enumerate((16, 32)):
        folder = tmp_path / f"{number:04d}"
        folder.mkdir()
        file.config.model.hidden = hidden
        konfig.save(file.config, folder / "config.json")
    assert run(capsys, "diff", str(tmp_path / "0000"), str(tmp_path / "0001")) == "model.hidden: 16 -> 32\n"
    assert run(capsys, "diff", str(tmp_path / "0000" / "config.json"), DIGITS) == "model.hidden: 16 -> 64\n"
    assert "no trial" in refused(capsys, "diff", str(tmp_path), DIGITS)
    assert "two configs" in refused(capsys, "diff", DIGITS, DIGITS, DIGITS)


def test_validate(capsys: Captured) -> None:
    out = run(capsys, "validate", DIGITS)
    assert out.startswith(f"{DIGITS}: 4,810 parameters, batch image float32[128, 8, 8], label int32[128]")
    assert "losses xent, metrics accuracy" in out


def test_validate_a_sweep_builds_what_differs(capsys: Captured) -> None:
    out = run(
        capsys, "validate", DIGITS, "--sweep.model.hidden=[16, 32]", "--sweep.optimizer.learning_rate=[1e-3, 1e-2]"
    )
    assert "0000-hidden=16-learning_rate=0.001: 1,210 parameters" in out
    assert "4 trials are valid; 3 of different structure or value were built and traced" in out


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("--cfg.model.x=batch.imag", "MLP.x: batch.imag: 'batch' (dict) has no 'imag'. Did you mean 'batch.image'?"),
        ("--cfg.train_losses.xent.labels=batch.image", "the training step does not fit: "),
        ("--cfg.optimizer=None", "optimizer: unset"),
        ("--cfg.model.hidden=abc", "--cfg.model.hidden: expected int"),
        ("--sweep.model.hidden=[16, -1]", "trial 0001-hidden=-1: "),
    ],
)
def test_validate_says_what_does_not_fit(capsys: Captured, override: str, expected: str) -> None:
    message = refused(capsys, "validate", DIGITS, override)
    assert expected in message
    assert "JAX_TRACEBACK_FILTERING" not in message


WIRED = """
from kauldron_core import konfig
from pipelines.configs import digits

with konfig.imports():
    from kauldron_core import kd


def get_config(tensor="batch.image", labels="batch.label", logits="preds"):
    cfg = digits.get_config()
    cfg.train_summaries["values"] = kd.summaries.HistogramSummary(tensor=tensor)
    loss = kd.losses.SoftmaxCrossEntropyWithIntLabels(logits=logits, labels=labels)
    run, ds = kd.evals.StandaloneLastCheckpoint(), cfg.evals["test"].ds
    cfg.evals["late"] = kd.evals.Evaluator(run=run, ds=ds, losses={"xent": loss}, metrics={})
    return cfg
"""


@pytest.mark.parametrize("words", [["config", "validate"], ["train", "--no-tracking"], ["sweep", "--dry-run"]])
@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("--args.tensor=batch.imge", "the training step does not fit: "),
        ("--args.labels=batch.lable", "evals.late does not fit: "),
        ("--args.labels=label", "Did you mean 'batch.label'?"),
    ],
)
def test_whatever_is_wired_is_looked_at_before_anything_starts(
    capsys: Captured, tmp_path: Path, words: list[str], override: str, expected: str
) -> None:
    """F08: summaries failed at step 1,000, stand-alone evaluators after all training; `validate` said OK."""
    (tmp_path / "wired.py").write_text(WIRED)
    command = [*words, str(tmp_path / "wired.py"), override, f"--run.root={tmp_path}/runs"]
    assert main(command if "sweep" in words or "train" in words else command[:-1]) == 2
    captured = capsys.readouterr()
    assert expected in captured.err
    assert "Did you mean" in captured.err
    assert captured.err.count("\n") == 1
    assert not list(tmp_path.rglob("trials"))


def test_schema_lists_leaves_with_type_value_and_documentation(capsys: Captured) -> None:
    rows = [line.split("\t") for line in run(capsys, "schema", DIGITS).splitlines()]
    assert ["seed", "int", "0", "Root of all randomness"] in rows
    by_path = {row[0]: row for row in rows}
    assert by_path["model.hidden"][1:3] == ["int | tuple[int, ...]", "64"]
    assert by_path["optimizer.learning_rate"][1:3] == ["float | Array | Callable", "0.001"]
    assert by_path["train_ds.loader"][2] == "pipelines.configs.digits.load_train"
    assert "optimizer.b1" not in by_path


def test_every_leaf_of_the_schema_can_be_overridden(capsys: Captured) -> None:
    rows = [line.split("\t") for line in run(capsys, "schema", DIGITS, "--all").splitlines()]
    assert "optimizer.b1" in [row[0] for row in rows]
    cfg = sweeps.load_config_file(DIGITS).config
    for path, kind, value, _ in rows:
        if value.isdecimal() and "int" in kind.split(" | "):
            konfig.apply_overrides(cfg, [f"{path}={value}"])


def test_the_group_lists_its_commands(capsys: Captured) -> None:
    out = run(capsys, "--help")
    assert all(name in out for name in ("show", "diff", "validate", "schema"))
    assert "Did you mean 'show'?" in refused(capsys, "shwo", DIGITS)
    assert "the config file is missing" in refused(capsys, "show")
    assert "Write: kdr config schema" in refused(capsys, "schema", DIGITS, "--al")
