"""Event segments: append, follow, rewind."""

from __future__ import annotations

import json
import logging
import math
import os
import pathlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kauldron_core import rundir
from kauldron_core.errors import ConfigError


def write_steps(folder: pathlib.Path, steps: list[int], *, resumed_from: int | None = None) -> rundir.EventWriter:
    writer = rundir.EventWriter(folder)
    if resumed_from is not None:
        writer.resumed_from(resumed_from)
    for step in steps:
        writer.append("metrics", step, attempt=writer.attempt)
    return writer


def pairs(events: list[rundir.Event]) -> list[tuple[int, int]]:
    return [(event["step"], event["attempt"]) for event in events]


def test_what_is_appended_is_read_with_kind_step_and_time(tmp_path: pathlib.Path):
    with rundir.EventWriter(tmp_path) as writer:
        writer.append("metrics", 1, split="train", values={"losses/total": 2.5})
    (event,) = rundir.read_events(tmp_path)
    assert event.pop("time_ms") > 1_600_000_000_000
    assert event == {"kind": "metrics", "step": 1, "split": "train", "values": {"losses/total": 2.5}}


def test_values_may_be_arrays_of_no_dimension_and_not_finite(tmp_path: pathlib.Path):
    with rundir.EventWriter(tmp_path) as writer:
        values = {"a": np.float32(0.5), "b": float("nan"), "c": -math.inf, "d": np.int64(3)}
        writer.append("metrics", np.int64(7), values=values)
    (event,) = rundir.read_events(tmp_path)
    assert event["step"] == 7
    assert event["values"]["a"] == 0.5
    assert math.isnan(event["values"]["b"])
    assert event["values"]["c"] == -math.inf
    assert event["values"]["d"] == 3


def test_text_with_newlines_and_lone_surrogates_stays_one_line(tmp_path: pathlib.Path):
    text = "a\nb\r\u2028c \udc80 ü"
    with rundir.EventWriter(tmp_path) as writer:
        writer.append("failed", 1, error=text)
        writer.append("metrics", 2)
    assert [event["step"] for event in rundir.read_events(tmp_path)] == [1, 2]
    assert rundir.read_events(tmp_path)[0]["error"] == text


def test_every_process_start_has_its_own_segment(tmp_path: pathlib.Path):
    for _ in range(3):
        rundir.EventWriter(tmp_path).close()
    rundir.EventWriter(tmp_path, "host1").close()
    names = [segment.path.name for segment in rundir.list_segments(tmp_path)]
    assert names == ["0001-host1.jsonl", "0001-train.jsonl", "0002-train.jsonl", "0003-train.jsonl"]


def test_segments_are_ordered_by_number_not_by_text(tmp_path: pathlib.Path):
    for name in ("10000-train.jsonl", "9999-train.jsonl"):
        (tmp_path / name).write_text("")
    assert [segment.attempt for segment in rundir.list_segments(tmp_path)] == [9999, 10000]
    assert rundir.EventWriter(tmp_path).attempt == 10001


def test_a_last_line_without_newline_does_not_count_until_it_is_whole(tmp_path: pathlib.Path):
    writer = write_steps(tmp_path, [1])
    follower = rundir.EventFollower(tmp_path)
    line = json.dumps({"kind": "metrics", "step": 2, "attempt": 1, "time_ms": 0}).encode() + b"\n"
    with writer.path.open("ab") as file:
        file.write(line[:20])
        file.flush()
        assert pairs(rundir.read_events(tmp_path)) == [(1, 1)]
        assert pairs(follower.poll()) == [(1, 1)]
        file.write(line[20:])
    assert pairs(rundir.read_events(tmp_path)) == [(1, 1), (2, 1)]
    assert pairs(follower.poll()) == [(2, 1)]
    assert follower.poll() == []


def test_a_damaged_line_is_told_and_hides_no_other(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture):
    writer = write_steps(tmp_path, [1])
    with writer.path.open("ab") as file:
        file.write(b"\x00" * 50 + b"\n" + b"[]\n" + b'{"kind": "metrics"}\n')
    writer.append("metrics", 2, attempt=1)
    with caplog.at_level(logging.WARNING):
        assert pairs(rundir.read_events(tmp_path)) == [(1, 1), (2, 1)]
    assert caplog.text.count("a damaged line is ignored") == 3
    assert writer.path.name in caplog.text


def test_a_full_disk_does_not_glue_two_events_together(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    writer = write_steps(tmp_path, [1])
    real_write = os.write

    def write_half_then_fail(descriptor: int, data: bytes) -> int:
        real_write(descriptor, bytes(data)[:10])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", write_half_then_fail)
        with pytest.raises(OSError, match="No space left"):
            writer.append("metrics", 2, attempt=1)
    writer.append("metrics", 3, attempt=1)
    assert pairs(rundir.read_events(tmp_path)) == [(1, 1), (3, 1)]


def test_after_a_rewind_the_replayed_steps_count_once(tmp_path: pathlib.Path):
    write_steps(tmp_path, [1, 2, 3, 4])
    write_steps(tmp_path, [3, 4, 5, 6], resumed_from=2)
    write_steps(tmp_path, [6, 7], resumed_from=5)
    assert pairs(rundir.read_events(tmp_path)) == [(1, 1), (2, 1), (3, 2), (4, 2), (5, 2), (6, 3), (7, 3)]


def test_a_new_beginning_drops_everything_also_step_0(tmp_path: pathlib.Path):
    write_steps(tmp_path, [0, 1])
    write_steps(tmp_path, [0, 1], resumed_from=-1)
    assert pairs(rundir.read_events(tmp_path)) == [(0, 2), (1, 2)]


def test_a_rewind_concerns_its_own_writer_only(tmp_path: pathlib.Path):
    write_steps(tmp_path, [1, 2])
    with rundir.EventWriter(tmp_path, "host1") as other:
        other.append("memory", 2, attempt=1)
    write_steps(tmp_path, [2], resumed_from=1)
    kinds = [(event["kind"], event["step"]) for event in rundir.read_events(tmp_path)]
    assert sorted(kinds) == [("memory", 2), ("metrics", 1), ("metrics", 2)]


def test_what_a_replaced_process_still_writes_is_dropped(tmp_path: pathlib.Path):
    old = write_steps(tmp_path, [1, 2])
    follower = rundir.EventFollower(tmp_path)
    follower.poll()
    write_steps(tmp_path, [2], resumed_from=1)
    old.append("metrics", 3, attempt=1)
    follower.poll()
    old.append("metrics", 4, attempt=1)
    assert follower.poll() == []
    assert pairs(rundir.read_events(tmp_path)) == [(1, 1), (2, 2)]


def test_a_follower_starts_before_the_trial(tmp_path: pathlib.Path):
    follower = rundir.EventFollower(tmp_path / "later")
    assert follower.poll() == []
    write_steps(tmp_path / "later", [1])
    assert pairs(follower.poll()) == [(1, 1)]


def test_a_closed_segment_takes_no_events(tmp_path: pathlib.Path):
    writer = rundir.EventWriter(tmp_path)
    writer.close()
    writer.close()
    with pytest.raises(ValueError, match="is closed"):
        writer.append("metrics", 1)


def test_a_writer_name_that_would_leave_the_folder_is_refused(tmp_path: pathlib.Path):
    with pytest.raises(ConfigError, match=r"writer name '\.\./x' starts with a dot"):
        rundir.EventWriter(tmp_path, "../x")


attempts = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=5)


@given(attempts=attempts, polls=st.lists(st.booleans(), min_size=40, max_size=40))
def test_reader_and_follower_agree_on_any_history(
    attempts: list[tuple[int, int]], polls: list[bool], tmp_path_factory: pytest.TempPathFactory
):
    """A trial that is killed and resumed at any steps: every step reached counts once, from its last attempt."""
    folder = tmp_path_factory.mktemp("events")
    follower, followed, expected, ask = rundir.EventFollower(folder), {}, {}, iter(polls)
    reached = 0
    for number, (back_to, more) in enumerate(attempts, start=1):
        start = min(back_to, reached) if number > 1 else 0
        expected = {step: attempt for step, attempt in expected.items() if step <= start}
        with write_steps(folder, [], resumed_from=start if number > 1 else -1) as writer:
            for step in range(start + 1, start + more + 1):
                writer.append("metrics", step, attempt=number)
                expected[step] = number
                if next(ask):
                    apply_all(followed, follower.poll())
        reached = start + more
    apply_all(followed, follower.poll())
    assert dict(pairs(rundir.read_events(folder))) == expected
    assert followed == expected


def apply_all(found: dict[int, int], events: list[rundir.Event]) -> None:
    for event in events:
        if event["kind"] == rundir.RESUMED_FROM:
            for step in [step for step in found if step > event["step"]]:
                del found[step]
        else:
            found[event["step"]] = event["attempt"]
