"""Atomic files, statuses, results, tables, layout, names and the probe."""

from __future__ import annotations

import errno
import functools
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import time

import numpy as np
import pytest

from kauldron_core import rundir
from kauldron_core.errors import ConfigError, RunFailed
from kauldron_core.rundir import atomic

ROOT = pathlib.Path(__file__).parents[3]


# -- atomic files
def test_write_atomic_takes_text_and_bytes_and_leaves_no_other_file(tmp_path: pathlib.Path):
    rundir.write_atomic(tmp_path / "a", "text")
    rundir.write_atomic(tmp_path / "a", b"\x00bytes")
    assert (tmp_path / "a").read_bytes() == b"\x00bytes"
    assert os.listdir(tmp_path) == ["a"]


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    rundir.write_atomic(tmp_path / "a", "old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for call in ("write", "fsync", "replace"):
        with monkeypatch.context() as patched:
            patched.setattr(os, call, fail)
            with pytest.raises(OSError, match="No space left"):
                rundir.write_atomic(tmp_path / "a", "new")
        assert (tmp_path / "a").read_text() == "old"
        assert os.listdir(tmp_path) == ["a"]


def test_a_file_system_that_syncs_no_folders_is_fine_and_a_failing_disk_is_not(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    real = os.fsync

    def sync(descriptor: int, *, code: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(code, os.strerror(code))
        real(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", functools.partial(sync, code=errno.EINVAL))
        rundir.write_atomic(tmp_path / "a", "text")
        assert (tmp_path / "a").read_text() == "text"
        patched.setattr(os, "fsync", functools.partial(sync, code=errno.EIO))
        with pytest.raises(OSError, match="Input/output error"):
            rundir.write_atomic(tmp_path / "a", "text")


def test_create_exclusive_keeps_what_is_there(tmp_path: pathlib.Path):
    assert rundir.create_exclusive(tmp_path / "a", "first")
    assert not rundir.create_exclusive(tmp_path / "a", "second")
    assert (tmp_path / "a").read_text() == "first"
    assert os.listdir(tmp_path) == ["a"]


def test_new_files_have_the_permissions_that_the_user_chose(tmp_path: pathlib.Path):
    old_mask = os.umask(0o027)
    try:
        rundir.write_atomic(tmp_path / "a", "text")
    finally:
        os.umask(old_mask)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_a_file_that_is_not_json_is_named(tmp_path: pathlib.Path):
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(ValueError, match=r"a\.json: damaged, it is not JSON"):
        rundir.read_json(tmp_path / "a.json")


def test_what_json_cannot_hold_is_refused_before_anything_is_written(tmp_path: pathlib.Path):
    with pytest.raises(TypeError, match="can't be written as JSON"):
        rundir.write_json(tmp_path / "a.json", {"x": object()})
    assert os.listdir(tmp_path) == []


def test_left_over_temporaries_are_removed_when_old_or_their_writer_is_dead(tmp_path: pathlib.Path):
    child = subprocess.Popen(["true"])
    child.wait()
    own = atomic.temporary_path(tmp_path)
    own.write_text("at work")
    half = tmp_path / own.name.replace(f"-{os.getpid()}-", f"-{child.pid}-")
    half.write_text("hal")
    assert rundir.remove_temporaries(tmp_path) == 1
    assert os.listdir(tmp_path) == [own.name]
    own.unlink()
    (tmp_path / "sub").mkdir()
    for name in (".tmp-1-aa", "sub/.tmp-2-bb", "sub/kept"):
        (tmp_path / name).write_text("x")
    os.utime(tmp_path / "sub/.tmp-2-bb", (time.time() - 7200, time.time() - 7200))
    assert rundir.remove_temporaries(tmp_path) == 1
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == [".tmp-1-aa", "kept"]


# -- statuses
@pytest.mark.parametrize("terminal", sorted(rundir.TERMINAL))
def test_a_terminal_status_stays_unless_a_retry_is_asked_for(tmp_path: pathlib.Path, terminal: str):
    assert rundir.write_status(tmp_path, terminal, error="why")
    for status in rundir.STATUSES:
        if status != terminal:
            assert not rundir.write_status(tmp_path, status)
    assert rundir.read_status(tmp_path)["error"] == "why"
    assert rundir.write_status(tmp_path, "queued", retry=True)
    assert rundir.read_status(tmp_path)["status"] == "queued"


def test_a_trial_without_a_status_is_queued(tmp_path: pathlib.Path):
    assert rundir.TrialDir(tmp_path / "trial").status() == "queued"
    rundir.write_status(tmp_path / "trial", "preempted", step=7)
    assert rundir.TrialDir(tmp_path / "trial").status() == "preempted"
    assert rundir.write_status(tmp_path / "trial", "running")


def test_an_unknown_status_is_refused(tmp_path: pathlib.Path):
    with pytest.raises(ValueError, match=r"unknown status 'finished'.* Available: queued, running"):
        rundir.write_status(tmp_path, "finished")


# -- results
def test_a_result_stands_once(tmp_path: pathlib.Path):
    assert rundir.write_eval_result(tmp_path, "test", 200, {"values": {"x": np.float32(0.5)}})
    assert not rundir.write_eval_result(tmp_path, "test", 200, {"values": {"x": 9}})
    expected = {"evaluator": "test", "step": 200, "values": {"x": 0.5}}
    assert rundir.read_eval_results(tmp_path) == {("test", 200): expected}
    assert rundir.list_eval_results(tmp_path) == {("test", 200)}
    assert rundir.read_eval_result(tmp_path, "test", 201) is None


def test_again_replaces_and_keeps_every_older_one(tmp_path: pathlib.Path):
    for value in range(3):
        assert rundir.write_eval_result(tmp_path, "test", 200, {"value": value}, again=True)
    assert rundir.read_eval_results(tmp_path)["test", 200]["value"] == 2
    kept = sorted((tmp_path / "evals/test/replaced").iterdir())
    assert [rundir.read_json(path)["value"] for path in kept] == [0, 1]


def test_results_are_sorted_by_name_and_number_and_foreign_files_are_ignored(tmp_path: pathlib.Path):
    assert rundir.read_eval_results(tmp_path) == {}
    for name, step in (("b", 1000), ("b", 90), ("a", 100)):
        rundir.write_eval_result(tmp_path, name, step, {})
    for name in ("evals/b/note.txt", "evals/b/.tmp-1-aa", "evals/b/90.json.bak", "evals/README"):
        (tmp_path / name).write_text("x")
    assert list(rundir.read_eval_results(tmp_path)) == [("a", 100), ("b", 90), ("b", 1000)]


def test_a_result_cannot_leave_its_folder(tmp_path: pathlib.Path):
    with pytest.raises(ConfigError, match="evaluator name 'a/b' holds '/'"):
        rundir.write_eval_result(tmp_path, "a/b", 1, {})
    with pytest.raises(ValueError, match="negative"):
        rundir.write_eval_result(tmp_path, "a", -1, {})


# -- tables
def test_tables_keep_rows_with_different_keys_and_types(tmp_path: pathlib.Path):
    rows = [
        {"trial": "0", "lr": 1, "ok": True, "layers": [1, 2], "mixed": "text"},
        {"trial": "1", "lr": np.float64(0.5), "accuracy": float("inf"), "mixed": 3},
    ]
    rundir.write_table(tmp_path / "t.parquet", rows)
    first, second = rundir.read_table(tmp_path / "t.parquet")
    assert first == {"trial": "0", "lr": 1.0, "ok": True, "layers": "[1, 2]", "mixed": '"text"', "accuracy": None}
    assert second == {"trial": "1", "lr": 0.5, "ok": None, "layers": None, "mixed": "3", "accuracy": float("inf")}


def test_an_empty_table_can_be_read(tmp_path: pathlib.Path):
    rundir.write_table(tmp_path / "t.parquet", [])
    assert rundir.read_table(tmp_path / "t.parquet") == []


def test_integers_stay_exact(tmp_path: pathlib.Path):
    rundir.write_table(tmp_path / "t.parquet", [{"seed": 2**62 + 1}, {"seed": None}])
    assert rundir.read_table(tmp_path / "t.parquet") == [{"seed": 2**62 + 1}, {"seed": None}]


@pytest.mark.parametrize("huge", [2**64, -(2**70)])
def test_integers_that_no_column_can_hold_become_text(tmp_path: pathlib.Path, huge: int):
    rundir.write_table(tmp_path / "t.parquet", [{"seed": huge}, {"seed": 1}])
    assert rundir.read_table(tmp_path / "t.parquet") == [{"seed": str(huge)}, {"seed": "1"}]


# -- layout
def test_a_run_is_laid_out_and_found_again(tmp_path: pathlib.Path):
    run = rundir.RunDir.create(tmp_path / "runs" / "demo", {"metric": "test/metrics/accuracy"})
    trial = run.trial("0001-lr=0.1").create('{"a": 1}')
    run.trial("0000-lr=1.0").create("{}")
    run.trial("0002").path.mkdir()  # A driver that died before it had written the config.
    found = rundir.RunDir(tmp_path / "runs" / "demo")
    assert found.exists()
    assert found.sweep == {"format": 1, "metric": "test/metrics/accuracy"}
    assert [trial.name for trial in found.trials()] == ["0000-lr=1.0", "0001-lr=0.1"]
    assert found.find_trial("0001-lr=0.1") == trial
    assert trial.run() == found
    assert (trial.config_path.read_text(), trial.checkpoints.name, trial.evals.name) == (
        '{"a": 1}',
        "checkpoints",
        "evals",
    )


def test_a_run_can_be_moved(tmp_path: pathlib.Path):
    run = rundir.RunDir.create(tmp_path / "old")
    trial = run.trial("0000").create("{}")
    pointer = rundir.to_pointer(trial.checkpoints / "ckpt_3", inside=run)
    assert pointer == "trials/0000/checkpoints/ckpt_3"
    shutil.move(tmp_path / "old", tmp_path / "new")
    assert rundir.from_pointer(pointer, inside=tmp_path / "new").parent.parent.is_dir()


@pytest.mark.parametrize("pointer", ["/etc/passwd", "../x", "a/../../x"])
def test_a_pointer_cannot_leave_the_run(tmp_path: pathlib.Path, pointer: str):
    with pytest.raises(ValueError, match="leads out of"):
        rundir.from_pointer(pointer, inside=tmp_path)


def test_a_second_run_of_the_same_name_is_refused(tmp_path: pathlib.Path):
    rundir.RunDir.create(tmp_path / "demo")
    with pytest.raises(ConfigError, match=r"demo: holds a run already\. Resume it, or choose another"):
        rundir.RunDir.create(tmp_path / "demo")


def test_a_trial_keeps_its_config(tmp_path: pathlib.Path):
    run = rundir.RunDir.create(tmp_path / "demo")
    run.trial("0000").create("{}")
    run.trial("0000").create("{}")
    with pytest.raises(ConfigError, match="holds another config"):
        run.trial("0000").create('{"a": 1}')


def test_a_misspelt_trial_is_an_error_with_the_closest(tmp_path: pathlib.Path):
    run = rundir.RunDir.create(tmp_path / "demo")
    run.trial("0000-lr=0.1").create("{}")
    with pytest.raises(ConfigError, match=r"unknown trial '0000-lr=0.2'\. Did you mean '0000-lr=0.1'\?"):
        run.find_trial("0000-lr=0.2")


def test_a_run_of_a_later_version_is_refused(tmp_path: pathlib.Path):
    run = rundir.RunDir.create(tmp_path / "demo")
    rundir.write_json(run.sweep_path, {"format": 99})
    with pytest.raises(ConfigError, match="format 99 is newer than this version's 1"):
        _ = run.sweep


def test_a_trial_on_its_own_has_no_run(tmp_path: pathlib.Path):
    assert rundir.TrialDir(tmp_path / "alone").run() is None


# -- names
@pytest.mark.parametrize("name", ["0007-lr=0.01", "a b", "ü", "x" * 200, "lr=[1, 2]", "a..b"])
def test_names_that_are_fine(name: str):
    assert rundir.check_name(name) == name


@pytest.mark.parametrize(
    "name", ["", " ", ".", "..", ".hidden", "a/b", "a\\b", "a\x00b", "a\nb", " a", "a ", "x" * 201]
)
def test_names_that_are_refused_come_with_one_that_would_do(name: str):
    with pytest.raises(ConfigError, match="trial name") as caught:
        rundir.check_name(name, kind="trial", at="--run.name")
    message = str(caught.value)
    assert message.startswith("--run.name: ")
    assert "\n" not in message
    usable = message.rpartition("Usable: ")[2].strip("'.")
    assert rundir.check_name(usable)


# -- the probe
def test_the_probe_finds_the_drivers_file(tmp_path: pathlib.Path):
    token = rundir.write_probe(tmp_path)
    rundir.check_probe(tmp_path, token, timeout_s=0)
    assert os.listdir(tmp_path) == [".probe"]


def test_a_node_that_sees_another_folder_is_named(tmp_path: pathlib.Path):
    token = rundir.write_probe(tmp_path / "driver")
    (tmp_path / "node").mkdir()
    with pytest.raises(RunFailed, match=f"node {os.uname().nodename} does not see .* all nodes share"):
        rundir.check_probe(tmp_path / "node", token, timeout_s=0.2)
    rundir.write_probe(tmp_path / "node")
    with pytest.raises(RunFailed, match="does not see"):
        rundir.check_probe(tmp_path / "node", token, timeout_s=0.2)


# -- the room
@pytest.mark.process
def test_the_room_loads_no_heavy_library():
    code = "import sys; from kauldron_core import rundir; print(sorted({'numpy', 'jax', 'pyarrow'} & set(sys.modules)))"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"
