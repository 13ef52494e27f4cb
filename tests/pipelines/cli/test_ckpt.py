"""`kdr ckpt`: lists, shows, checks and removes checkpoints; a mistake is one line."""

from __future__ import annotations

import json
import pathlib
import shutil

import pytest

from kauldron_core import ckpts, konfig, rundir
from kauldron_core.errors import ConfigError
from pipelines.cli import main
from tests.evaluators import tiny
from tests.kauldron_core.ckpts import states

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> rundir.RunDir:
    """A run with a finished trial `0000` (checkpoints 100, 200, 300) and a running one `0001` (100, 200)."""
    run = rundir.RunDir.create(tmp_path_factory.mktemp("runs") / "demo", {"metric": "test/losses/total", "mode": "min"})
    cfg = tiny.config()
    cfg.checkpointer.max_to_keep = 1
    cfg.checkpointer.best_metric = "test/losses/total"
    cfg.checkpointer.mode = "min"
    for name, steps, status in (("0000", (100, 200, 300), "done"), ("0001", (100, 200), "running")):
        trial = run.trial(name).create(konfig.to_json(cfg))
        checkpointer = ckpts.Checkpointer(workdir=trial, best_metric="test/losses/total", mode="min")
        for step in steps:
            checkpointer.observe(step, "train", {"losses/total": 1 / step})
            checkpointer.save(states.train_state(step), {"next": step}, step=step)
            rundir.write_eval_result(
                trial, "test", step, {"status": "done", "values": {"losses/total": float(abs(step - 110))}}
            )
        checkpointer.close()
        rundir.write_status(trial, status)
    return run


@pytest.fixture
def run(saved: rundir.RunDir, tmp_path: pathlib.Path) -> rundir.RunDir:
    return rundir.RunDir(shutil.copytree(saved.path, tmp_path / "demo"))


def kdr(capsys: Captured, *argv: object, status: int = 0) -> str:
    assert main(["ckpt", *map(str, argv)]) == status
    captured = capsys.readouterr()
    if status == 2:
        assert captured.err.count("\n") == 1
        assert not captured.out
        return captured.err
    return captured.out


def test_ls_says_what_is_there_and_why_it_is_kept(run: rundir.RunDir, capsys: Captured) -> None:
    (run.trial("0000").checkpoints / "ckpt_50").mkdir()
    out = kdr(capsys, "ls", run.path)
    assert "0000 (done)" in out
    assert "0001 (running)" in out
    assert "no checkpoint: ckpt_50" in out
    assert "5 checkpoints" in out
    lines = [line for line in out.splitlines() if line.strip().startswith(("100", "200", "300"))]
    assert [line.split()[-1] for line in lines] == ["best", "-", "latest", "best", "latest"]
    assert "test/losses/total 10.0000, train/losses/total 0.0100" in lines[0]


def test_ls_as_json(run: rundir.RunDir, capsys: Captured) -> None:
    [entry] = json.loads(kdr(capsys, "ls", run.path, "--trial=1", "--json"))["0001"][1:]
    assert (entry["step"], entry["kept"]) == (200, ["latest"])
    assert entry["metrics"] == {"train/losses/total": 0.005, "test/losses/total": 90}
    assert entry["num_bytes"] > 1000


@pytest.mark.parametrize(("step", "found"), [("latest", 300), ("best", 100), ("200", 200)])
def test_show_lists_every_array(run: rundir.RunDir, capsys: Captured, step: str, found: int) -> None:
    out = kdr(capsys, "show", run.trial("0000").path, step)
    assert f"ckpt_{found}" in out
    lines = [line.split() for line in out.splitlines()]
    rows = {words[0]: words[1:] for words in lines if words and words[0].startswith(("params", "opt_state"))}
    assert rows["params.encoder.kernel"] == ["float32[4,3]", "48", "B"]
    assert rows["params.encoder.bias"] == ["bfloat16[3]", "6", "B"]
    assert "opt_state.1.0.mu.head.0" in rows
    assert "params 78 B" in out
    assert "train/losses/total: " in out


def test_show_as_json(run: rundir.RunDir, capsys: Captured) -> None:
    shown = json.loads(kdr(capsys, "show", run.path, "100", "--trial=0000", "--json"))
    assert shown["step"] == 100
    assert shown["state"]["params.encoder.kernel"] == "float32[4,3]"


@pytest.mark.parametrize("saved_at", [float("inf"), float("nan"), -1e300, 1e300])
def test_a_time_that_no_calendar_has_is_one_line(run: rundir.RunDir, capsys: Captured, saved_at: float) -> None:
    """F52: an infinite time of saving was a traceback of `datetime`."""
    path = ckpts.step_path(run.trial("0001").checkpoints, 200) / "metadata" / "metadata"
    path.write_text(json.dumps({**json.loads(path.read_text()), "saved_at": saved_at}))
    assert "damaged, its metadata can't be read" in kdr(capsys, "show", run.path, 200, "--trial=0001", status=2)
    assert "200" in kdr(capsys, "ls", run.path)


@pytest.mark.parametrize("spec", ["9" * 5000, "f8,f8[2]", "(2,)f4[2]"])
def test_a_type_that_is_none_is_one_line(run: rundir.RunDir, capsys: Captured, spec: str) -> None:
    """F52: digits where a type was expected were a traceback of NumPy, which reads other texts as structures."""
    path = ckpts.step_path(run.trial("0001").checkpoints, 200) / "metadata" / "metadata"
    held = json.loads(path.read_text())
    path.write_text(json.dumps({**held, "state": {**held["state"], "step": spec}}))
    assert "is no shape and type" in kdr(capsys, "show", run.path, 200, "--trial=0001", status=2)


def test_verify_reads_all_and_tells_damage(run: rundir.RunDir, capsys: Captured) -> None:
    assert "5 checkpoints read, 0 damaged" in kdr(capsys, "verify", run.path)
    broken = run.trial("0000").checkpoints / "ckpt_200"
    for file in (broken / "state").rglob("d/*"):
        file.write_bytes(b"")
    out = kdr(capsys, "verify", run.path, status=1)
    assert "0000 step 200: damaged\n  state/" in out
    assert "0000 step 100: whole" in out
    assert "5 checkpoints read, 1 damaged" in out
    assert "1 checkpoint read, 0 damaged" in kdr(capsys, "verify", run.path, "300", "--trial=0000")
    assert broken.exists()


def test_rm_removes_after_a_question(run: rundir.RunDir, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = run.trial("0000")
    answers = iter([False, True])
    monkeypatch.setattr("click.confirm", lambda question: next(answers))
    assert "nothing was removed" in kdr(capsys, "rm", trial.path, 100, 300)
    assert ckpts.all_steps(trial.checkpoints) == [100, 200, 300]
    assert "removed 2 checkpoints of 0000 (100, 300)" in kdr(capsys, "rm", trial.path, 300, 100)
    assert sorted(path.name for path in trial.checkpoints.glob("ckpt_*")) == ["ckpt_200"]


def test_rm_keeps_what_training_goes_on_from(run: rundir.RunDir, capsys: Captured) -> None:
    trial = run.trial("0001")
    err = kdr(capsys, "rm", trial.path, 100, 200, "--yes", status=2)
    assert "STEP: 200 is the latest checkpoint, and the trial is running: it goes on from there" in err
    assert ckpts.all_steps(trial.checkpoints) == [100, 200]
    kdr(capsys, "rm", trial.path, 100, "--yes")
    assert ckpts.all_steps(trial.checkpoints) == [200]


def test_rm_refuses_what_is_foreign_or_awaited(run: rundir.RunDir, capsys: Captured, tmp_path: pathlib.Path) -> None:
    trial = run.trial("0000")
    states.save(tmp_path / "elsewhere", 250)
    shutil.copytree(tmp_path / "elsewhere" / "checkpoints" / "ckpt_250", trial.checkpoints / "ckpt_250")
    assert "ckpt_250: was not written for this folder" in kdr(capsys, "rm", trial.path, 250, 100, "--yes", status=2)
    with rundir.Lease.acquire(rundir.work_path(trial, "probe", 100)) or pytest.fail("no lease"):
        assert "evaluator 'probe' is at work on it" in kdr(capsys, "rm", trial.path, 100, "--yes", status=2)
    assert ckpts.all_steps(trial.checkpoints) == [100, 200, 250, 300]


def test_rm_follows_no_mark_out_of_the_folder(run: rundir.RunDir, capsys: Captured) -> None:
    """F46: a mark that is no mark but a path; the folder it leads to stays, and so do checkpoints that have no mark."""
    folder, precious = run.trial("0000").checkpoints, run.path.parent / "precious"
    precious.mkdir()
    (folder / "ckpt_1.removed-x").mkdir()
    (folder / ".owner").write_text("x/../../../../../precious")
    assert "was not written for this folder" in kdr(capsys, "rm", folder.parent, 100, "--yes", status=2)
    (folder / ".saving").write_text('"100/../../../../../precious"')
    states.save(folder.parent, 400, max_to_keep=1).close()
    assert precious.is_dir()
    assert ckpts.all_steps(folder) == [100, 200, 300, 400]


def test_rm_removes_nothing_through_a_link(run: rundir.RunDir, capsys: Captured) -> None:
    """F47: folders of trials and of checkpoints that are links into another run; what they lead to stays."""
    other = rundir.RunDir.create(run.path.parent / "other")
    other.trial("0000").path.symlink_to(run.trial("0000").path)
    (other.trial("0001").create("{}").path / "checkpoints").symlink_to(run.trial("0000").checkpoints)
    for trial in (other.trial("0000"), other.trial("0001")):
        assert "is a link that leads out of" in kdr(capsys, "rm", trial.path, 100, "--yes", status=2)
    with pytest.raises(ConfigError, match="checkpoints: is a link"):
        ckpts.Checkpointer(workdir=other.trial("0001")).remove([100])
    assert ckpts.all_steps(run.trial("0000").checkpoints) == [100, 200, 300]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("show", "{run}"), "this run has 2 trials. Say which one: --trial=NAME of 0000, 0001."),
        (
            ("show", "{run}/trials/0000", "201"),
            "STEP: unknown step '201'. Did you mean 200? Available: 100, 200, 300, ",
        ),
        (("rm", "{run}/trials/0000", "lates", "--yes"), "unknown step 'lates'. Did you mean 'latest'?"),
        (("ls", "{run}", "--trial=7"), "unknown trial '7'"),
        (("ls", "{run}/trials/0000", "--trial=0"), "is a trial already"),
        (("verify", "{run}o"), "unknown run"),
    ],
)
def test_mistakes_are_one_line(run: rundir.RunDir, capsys: Captured, words: tuple[str, ...], message: str) -> None:
    assert message in kdr(capsys, *(word.format(run=run.path) for word in words), status=2)


def test_a_folder_with_checkpoints_alone_will_do(tmp_path: pathlib.Path, capsys: Captured) -> None:
    states.save(tmp_path / "plain", 1, 2)
    out = kdr(capsys, "ls", tmp_path / "plain")
    assert "all are kept" in out
    assert "2 checkpoints" in out
    kdr(capsys, "verify", tmp_path / "plain")
