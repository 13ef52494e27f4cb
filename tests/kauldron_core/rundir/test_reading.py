"""Every JSON file of a run is read within bounds, against what its kind has to hold."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kauldron_core import rundir
from kauldron_core.errors import ConfigError
from kauldron_core.rundir import formats, reading


def refused(path: Path, check: reading.Check | None = None, **bounds: int) -> str:
    with pytest.raises(rundir.DamagedFile) as caught:
        rundir.read_json(path, check, **bounds)
    text = str(caught.value)
    assert text.startswith(f"{path}: damaged, ") and "\n" not in text and len(text) < len(str(path)) + 300
    assert isinstance(caught.value, ConfigError)
    return text


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "it is empty"),
        ("  \n", "it is empty"),
        ('{"a": 1', "not JSON"),
        ("[" * 100_000, "nested too deep"),
        ('{"a":' * 100_000, "nested too deep"),
        ("[" * 65 + "]" * 65, "deeper than 64 levels"),
        ("9" * 5_000, "not JSON"),
        ("\x00", "not JSON"),
    ],
)
def test_what_is_no_json_is_told_in_one_line(tmp_path: Path, text: str, what: str) -> None:
    """F52: a hundred thousand brackets were a RecursionError."""
    (tmp_path / "a.json").write_text(text)
    assert what in refused(tmp_path / "a.json")


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    """F52: a pipe or a folder in the place of a file."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    for name in ("pipe", "folder", "circle"):
        refused(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        rundir.read_json(tmp_path / "missing")
    (tmp_path / "long").write_text("[1, 2, 3]")
    assert "more than the 5 that are read" in refused(tmp_path / "long", max_bytes=5)


ROW = {"name": "0000-a=1", "index": 0, "fingerprint": "x", "overrides": [["a", 1]]}


@pytest.mark.parametrize(
    ("check", "value", "what"),
    [
        (formats.SWEEP, [], "all of it is a list, not an object"),
        (formats.SWEEP, {"trials": [ROW, {**ROW, "name": 3}]}, "trials[1].name is 3, not a text"),
        (formats.SWEEP, {"trials": [{**ROW, "name": "../a"}]}, "trials[0].name is no name"),
        (formats.SWEEP, {"trials": [{**ROW, "overrides": [["a"]]}]}, "trials[0].overrides[0] is a list, not a pair"),
        (formats.SWEEP, {"axes": [["a", {"__qualname__": "os:system"}]]}, "axes[0][1] is an object, not a text"),
        (formats.SWEEP, {"format": 10**30}, "not a whole number"),
        (formats.PACK, {}, "it lacks trials"),
        (formats.RESULT, {"status": "done", "values": {"x": "y"}}, "values.x is 'y', not a number"),
        (formats.RESULT, {"status": "well"}, "not one of done, failed, skipped"),
        (formats.CONTROL, {"trials": {"a": 1}}, "trials.a is 1, not a text"),
        (formats.EVENT, {"kind": "metrics", "step": 1}, "it lacks time_ms"),
        (formats.POINTER, {"pack": "x", "row": True, "size": 1}, "row is True, not a whole number"),
        (formats.STAGE, {"identity": "x", "run": "/tmp", "seconds": 1.0}, "run is no name"),
        (formats.STAGE, {"identity": "x", "run": "a"}, "it lacks seconds"),
        (formats.METADATA, {"state": {}, "saved_at": float("inf")}, "saved_at is inf, not a time in seconds"),
        (formats.METADATA, {"state": {}, "saved_at": float("nan")}, "saved_at is nan, not a time"),
        (formats.METADATA, {"state": {}, "saved_at": -1}, "saved_at is -1, not a time"),
        (formats.METADATA, {"state": {}, "saved_at": 10**13}, "saved_at is 10000000000000, not a time"),
        (formats.status(["done"]), {"status": "done", "time_ms": float("inf")}, "time_ms is inf, not a whole number"),
    ],
)
def test_a_file_has_to_hold_what_its_kind_holds(tmp_path: Path, check: reading.Check, value: Any, what: str) -> None:
    """F52: a number where a list was expected was whatever Python says of it."""
    rundir.write_json(tmp_path / "a.json", value)
    assert what in refused(tmp_path / "a.json", check)


def test_what_a_later_version_adds_is_not_looked_at(tmp_path: Path) -> None:
    value = {"status": "done", "values": {"x": float("inf")}, "colour": ["blue"]}
    rundir.write_json(tmp_path / "a.json", value)
    assert rundir.read_json(tmp_path / "a.json", formats.RESULT) == value


def test_a_damaged_status_is_no_ending(tmp_path: Path) -> None:
    """F52: it is said, and a driver writes a new one."""
    (tmp_path / "status.json").write_text('{"status": "do')
    assert rundir.TrialDir(tmp_path).status() == rundir.DAMAGED
    assert "status.json: damaged" in rundir.read_status(tmp_path)["error"]
    assert rundir.write_status(tmp_path, "queued")
    assert rundir.TrialDir(tmp_path).status() == "queued"


def test_a_damaged_record_stands_until_it_is_replaced(tmp_path: Path) -> None:
    """F52: it is said, no evaluation is lost beside it, and `again` keeps it aside."""
    for step in (1, 2):
        rundir.write_eval_result(tmp_path, "test", step, {"status": "done", "values": {"x": 1.0}})
    rundir.result_path(tmp_path, "test", 1).write_text("")
    records = rundir.read_eval_results(tmp_path)
    assert [record["status"] for record in records.values()] == [rundir.DAMAGED, "done"]
    assert (records["test", 1]["evaluator"], records["test", 1]["step"]) == ("test", 1)
    assert rundir.write_eval_result(tmp_path, "test", 1, {"status": "done", "values": {}}, again=True)
    assert (rundir.result_path(tmp_path, "test", 1).parent / "replaced" / "1-1.json").read_text() == ""
