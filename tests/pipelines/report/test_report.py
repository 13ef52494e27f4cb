"""What is shown while a sweep runs and when it has ended."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from kauldron_core import rundir
from kauldron_core.rundir import Ranking
from pipelines.follow import News
from pipelines.report import LiveReport, make_console, number, print_results
from pipelines.report.state import TrialState
from ray_cluster.results import Results, TrialResult

ACCURACY = Ranking("test/metrics/accuracy", "max", "run.metric")


def make_run(path: Path, *names: str) -> rundir.RunDir:
    run = rundir.RunDir.create(path, {"ranking": ACCURACY.to_json()})
    for name in names:
        run.trial(name).create("{}")
    return run


def log(trial: rundir.TrialDir, step: int, **values: float) -> None:
    with rundir.EventWriter(trial.events) as writer:
        writer.append("metrics", step, split="train", values=values)


def evaluate(trial: rundir.TrialDir, step: int, **record: Any) -> None:
    rundir.write_eval_result(trial, "test", step, {"status": "done", "finished_ms": 1, **record})


def plain_report() -> tuple[LiveReport, io.StringIO]:
    stream = io.StringIO()
    report = LiveReport(make_console(stream))
    return report, stream


def test_a_log_gets_plain_lines_about_what_happened(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "a", "b")
    report, stream = plain_report()
    report.start(run)
    rundir.write_status(run.trial("a"), "running")
    log(run.trial("a"), 10, **{"losses/total": 0.5})
    report.poll()
    evaluate(run.trial("a"), 10, values={"metrics/accuracy": 0.75})
    rundir.write_status(run.trial("a"), "done")
    report.close()
    text = stream.getvalue()
    assert re.search(r"a  running\n", text)
    assert re.search(r"a  test at step 10: metrics/accuracy 0.7500\n", text)
    assert re.search(r"a  done\n", text)
    assert "2 trials: 1 queued, 1 running" in text
    assert "\x1b" not in text


def test_each_failure_is_shown_when_it_happens(tmp_path: Path) -> None:
    """S02: each failure is shown when it happens."""
    run = make_run(tmp_path / "run", "0-lr=1", "1-lr=2", "2-lr=3")
    report, stream = plain_report()
    report.start(run)
    for trial in run.trials():
        rundir.write_status(trial, "failed", error=f"ValueError: {trial.name}")
        report.poll()
        assert f"{trial.name}  failed: ValueError: {trial.name}" in stream.getvalue()
    evaluate(run.trial("0-lr=1"), 5, status="failed", error="OSError: no file")
    report.close()
    assert "0-lr=1  test failed at step 5: OSError: no file" in stream.getvalue()


def test_a_terminal_gets_a_table_that_goes_away(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "a")
    stream = io.StringIO()
    report = LiveReport(Console(file=stream, force_terminal=True, width=100, height=30))
    report.start(run)
    rundir.write_status(run.trial("a"), "running")
    log(run.trial("a"), 10, **{"losses/total": 0.5})
    report.poll()
    report.say("a line above")
    report.close()
    text = stream.getvalue()
    assert "train/losses/total" in text
    assert "a line above" in text
    assert "\x1b[2K" in text  # lines of the table were erased


def test_the_best_so_far_counts_what_is_finished(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "a", "b")
    for name, accuracy in (("a", 0.7), ("b", 0.9)):
        rundir.write_status(run.trial(name), "running")
        evaluate(run.trial(name), 10, values={"metrics/accuracy": accuracy})
    report, stream = plain_report()
    report.start(run)
    assert "best so far b, test/metrics/accuracy 0.9000 (higher is better)" in stream.getvalue()


def results(*rows: TrialResult, **facts: Any) -> Results:
    return Results(run_dir="/runs/demo", rows=rows, **facts)


def row(index: int, accuracy: float | None, **facts: Any) -> TrialResult:
    values = {} if accuracy is None else {"test/metrics/accuracy": accuracy, "train/losses/total": 0.1}
    return TrialResult(**{"name": f"{index:04d}", "index": index, "status": "done", "values": values, **facts})


def printed(found: Results, **options: Any) -> str:
    stream = io.StringIO()
    print_results(make_console(stream), found, view_command="mlflow ui --x", evaluators=("test",), **options)
    return stream.getvalue()


def test_the_time_left_counts_from_the_second_record() -> None:
    """F37: the step before the first record is the one that compiles, and evaluations are no steps."""
    trial = TrialState("0000")
    times = [("evaluated", 0, 0), ("metrics", 1, 60_000), ("metrics", 100, 61_000), ("metrics", 200, 62_000)]
    spans = []
    for kind, step, time_ms in times:
        split = "train" if kind == "metrics" else "test"
        event = {"kind": kind, "step": step, "time_ms": time_ms, "split": split, "values": {"losses/total": 1.0}}
        trial.take(News(events=[event]))
        spans.append(trial.span)
    assert spans == [None, None, ((100, 61_000), (100, 61_000)), ((100, 61_000), (200, 62_000))]


def test_the_final_table_is_sorted_by_what_ranks_the_run_and_says_it() -> None:
    """F01, F02: the same ranking as everywhere, with its direction."""
    text = printed(results(row(0, 0.8), row(1, None), row(2, 0.9), ranking=ACCURACY))
    assert "\nranked by test/metrics/accuracy, higher is better (run.metric)\n" in text
    assert re.findall(r"^ (\d{4})", text, re.MULTILINE) == ["0002", "0000", "0001"]
    assert "run       /runs/demo" in text
    assert "records   mlflow ui --x" in text


def test_the_users_metric_and_mode_sort_the_final_table() -> None:
    rows = [row(n, 0.5, values={"test/losses/total": value}) for n, value in enumerate((3.0, 1.0, 2.0))]
    text = printed(results(*rows), ranking=Ranking("test/losses/total", "min"))
    assert re.findall(r"^ (\d{4})", text, re.MULTILINE) == ["0001", "0002", "0000"]


@pytest.mark.parametrize(("width", "shown"), [(100, 3), (60, 3), (40, 2), (30, 1)])
def test_a_narrow_terminal_gets_whole_names_and_fewer_columns(width: int, shown: int) -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=width, color_system=None)
    values = {"test/metrics/accuracy": 0.9, "test/losses/total": 0.25, "train/losses/total": 0.5}
    found = results(row(0, None, values=values), ranking=ACCURACY)
    print_results(console, found, view_command=None, evaluators=("test",))
    line = next(line for line in stream.getvalue().splitlines() if "0000" in line)
    assert re.findall(r"0\.\d{4}", line) == ["0.9000", "0.2500", "0.5000"][:shown]
    assert "…" not in stream.getvalue()
    assert "0000" in line and "done" in line


def test_one_seed_has_no_deviation_and_equal_trials_are_no_seeds() -> None:
    """F18: equal trials were a mean over seeds, with a deviation of 0.0000, and one seed had one of nan."""
    points = [(("rate", 0.1), ("seed", 0)), (("rate", 0.1), ("seed", 1)), (("rate", 0.3), ("seed", 0))]
    rows = tuple(
        TrialResult(name=f"{at:04d}", index=at, status="done", overrides=point, values={"test/losses/total": 0.5 + at})
        for at, point in enumerate([*points, points[2]])
    )
    ranking = Ranking("test/losses/total", "min")
    stream = io.StringIO()
    print_results(
        make_console(stream), Results(run_dir="r", rows=rows, group_path="seed"), view_command=None, ranking=ranking
    )
    text = stream.getvalue()
    assert re.search(r"rate=0.1 +2 +1.0000 ± 0.7071", text)
    assert re.search(r"rate=0.3 +1 +2.5000 +-", text)
    assert text.count("±") == 2  # In the title, and once more.
    assert "nan" not in text
    assert "1 trial repeats the point of another: 0003 that of 0002" in text
    stream = io.StringIO()
    print_results(make_console(stream), Results(run_dir="r", rows=rows), view_command=None, ranking=ranking)
    assert "±" not in stream.getvalue()


def test_everything_that_did_not_succeed_has_a_line() -> None:
    text = printed(
        results(
            row(0, None, status="failed", error="ValueError: no"),
            row(1, 0.5, failed_evaluations=(("test", 100, "OSError"),)),
            pending_evaluations=(("0001", "test", 200),),
            sidecar_errors=("Recorder: it broke",),
        )
    )
    assert "0000 failed: ValueError: no" in text
    assert "0001: test failed at step 100: OSError" in text
    assert "0001: test was not evaluated at step 200" in text
    assert "warning: Recorder: it broke" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.97222, "0.9722"),
        (0.0, "0.0000"),
        (1.5e-7, "1.50e-07"),
        (12345.6, "1.23e+04"),
        (3, "3"),
        (None, "-"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
    ],
)
def test_numbers_are_short(value: float | None, text: str) -> None:
    assert number(value) == text
