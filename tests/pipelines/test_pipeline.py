"""Pipelines: stages in order, each done once, a changed one refused."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kauldron_core import rundir
from kauldron_core.errors import ConfigError, RunFailed
from pipelines import EvaluateStage, Pipeline, ReportStage, RetrainStage, SelectStage, SweepStage
from pipelines.cli import main
from pipelines.pipeline import run_stages
from pipelines.stage_checks import check_directions
from pipelines.stages import Context

DIGITS = "pipelines/configs/digits_pipeline.py"


@dataclass
class Counting:
    """A stage that counts how often it runs, and fails when it is told to."""

    needs: tuple[str, ...] = ()
    is_broken: bool = False
    runs: int = 0

    def run(self, context: Context) -> dict[str, Any]:
        self.runs += 1
        if self.is_broken:
            raise RunFailed(f"stage {context.name} broke")
        return {"run": context.name, "seen": sorted(context.records)}


def _run(pipeline: Pipeline, **identities: str) -> None:
    known = {name: identities.get(name, "same") for name in pipeline.stages}
    run_stages(pipeline, known, address=None, tracking=False)


def test_stages_run_once_and_a_pipeline_goes_on_at_the_one_that_is_missing(tmp_path: Path) -> None:
    stages = {"a": Counting(), "b": Counting(("a",), is_broken=True), "c": Counting(("a", "b"))}
    pipeline = Pipeline(name="p", root=str(tmp_path), stages=stages)
    with pytest.raises(RunFailed, match="stage b broke"):
        _run(pipeline)
    stages["b"].is_broken = False
    _run(pipeline)
    _run(pipeline)
    assert [stage.runs for stage in stages.values()] == [1, 2, 1]
    record = pipeline.record("c")
    assert record is not None and record["seen"] == ["a", "b"]


def test_a_stage_that_is_done_and_changed_is_refused(tmp_path: Path) -> None:
    pipeline = Pipeline(name="p", root=str(tmp_path), stages={"a": Counting()})
    _run(pipeline)
    with pytest.raises(ConfigError, match=r"stages\.a: was done with another config"):
        _run(pipeline, a="other")


def test_a_stage_of_what_does_not_come_before_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"stages.choose.of: unknown stage 'serch'. Did you mean 'search'\?"):
        Pipeline(
            name="p",
            stages={
                "search": SweepStage(config="pipelines/configs/digits.py"),
                "choose": SelectStage(of="serch", metric="x"),
            },
        )


@pytest.fixture
def finished(tmp_path: Path) -> Context:
    """The folder of a pipeline whose sweep is done."""
    run = rundir.RunDir.create(tmp_path / "search", {"trials": []})
    run.write_results([{"trial": f"{index:04d}", "loss": loss} for index, loss in enumerate([3.0, 1.0, None, 2.0])])
    return Context(tmp_path, "choose", {"search": {"run": "search"}})


def test_the_best_trials_are_chosen(finished: Context) -> None:
    stage = SelectStage(of="search", metric="loss", mode="min", top=2)
    assert [row["trial"] for row in stage.run(finished)["chosen"]] == ["0001", "0003"]
    with pytest.raises(ConfigError, match="no trial of stage 'search' has 'los'"):
        SelectStage(of="search", metric="los").run(finished)


def test_a_choice_goes_by_what_ranks_the_sweep_and_by_what_the_metric_says(tmp_path: Path) -> None:
    """F01, F02: without a metric the sweep's own ranking, without a mode the metric's direction."""
    ranking = rundir.Ranking("val/losses/total", "min", "evaluator")
    content = {"ranking": ranking.to_json(), "directions": {"val/metrics/acc": "higher"}, "trials": []}
    run = rundir.RunDir.create(tmp_path / "search", content)
    values = zip([3.0, 1.0, float("nan")], [0.9, 0.8, 0.7], strict=True)
    rows = [
        {"trial": f"{index:04d}", "val/losses/total": loss, "val/metrics/acc": accuracy, "val/metrics/odd": 1.0}
        for index, (loss, accuracy) in enumerate(values)
    ]
    run.write_results(rows)
    context = Context(tmp_path, "choose", {"search": {"run": "search"}})
    record = SelectStage(of="search").run(context)
    assert [row["trial"] for row in record["chosen"]] == ["0001"]
    assert (record["metric"], record["direction"]) == ("val/losses/total", "lower is better")
    chosen = SelectStage(of="search", metric="val/metrics/acc", top=3).run(context)["chosen"]
    assert [row["trial"] for row in chosen] == ["0000", "0001", "0002"]
    with pytest.raises(ConfigError, match="--mode: unset, and nothing says"):
        SelectStage(of="search", metric="val/metrics/odd").run(context)


def test_a_stage_that_can_not_know_its_direction_is_refused_before_the_first(tmp_path: Path) -> None:
    """F01: not after the sweep."""
    first = SweepStage(config="pipelines/configs/digits.py")
    known = SelectStage(of="search", metric="test/metrics/accuracy")
    check_directions({"choose": known}, {"search": first, "choose": known})
    size = {"evals.test.metrics": "{'size': kd.metrics.Average(values='preds')}"}
    first = SweepStage(config="pipelines/configs/digits.py", cfg=size)
    choose = SelectStage(of="search", metric="test/metrics/size")
    pipeline = Pipeline(name="p", root=str(tmp_path), stages={"search": first, "choose": choose})
    with pytest.raises(ConfigError, match=r"^stages\.choose\.mode: unset, and nothing says"):
        _run(pipeline)
    assert not pipeline.folder.exists()


def test_a_report_takes_seeds_together(tmp_path: Path) -> None:
    points = [[["hidden", hidden], ["seed", seed]] for hidden in (8, 16) for seed in (0, 1)]
    rows = [{"name": f"{index:04d}", "overrides": point} for index, point in enumerate(points)]
    rundir.RunDir.create(tmp_path / "longer", {"trials": rows})
    values = [
        {"trial": row["name"], "values": {"accuracy": value}}
        for row, value in zip(rows, (0.5, 0.7, 0.8, 0.9), strict=True)
    ]
    context = Context(tmp_path, "report", {"evaluate": {"run": "longer", "results": values}})
    record = ReportStage(of="evaluate", metric="accuracy", mode="max").run(context)
    assert record["best"] == {"point": "hidden=16", "mean": pytest.approx(0.85)}
    table = (tmp_path / "report.md").read_text()
    assert "| point | accuracy, higher is better | std | n |" in table
    assert re.search(r"\| hidden=16 \| 0.8500 \| 0.0707 \| 2 \|\n\| hidden=8 \| 0.6000 \| 0.1414 \| 2 \|", table)


def test_the_example_is_read_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "status", DIGITS, f"--cfg.root={tmp_path}"]) == 0
    out = capsys.readouterr().out
    assert re.findall(r"^ (\w+) +waiting", out, re.MULTILINE) == ["search", "choose", "longer", "evaluate", "report"]
    assert main(["pipeline", "status", DIGITS, "--cfg.stages.choose.tpo=3"]) == 2
    assert "Did you mean 'top'?" in capsys.readouterr().err
    assert main(["pipeline", "run", "pipelines/configs/digits.py"]) == 2
    assert "a pipelines.Pipeline is needed" in capsys.readouterr().err


def test_stages_say_what_they_need() -> None:
    assert SweepStage(config="a.py").needs == ()
    assert RetrainStage(of="a").needs == EvaluateStage(of="a").needs == ("a",)


def test_a_trial_is_trained_again_from_where_it_ended(tmp_path: Path) -> None:
    from ray_cluster.workers import inheriting

    run = rundir.RunDir.create(tmp_path / "run")
    donor, trial = run.trial("0000").create("{}"), run.trial("0001").create("{}")
    (donor.checkpoints / "ckpt_10").mkdir(parents=True)
    (donor.checkpoints / "ckpt_10" / "_CHECKPOINT_METADATA").write_text("{}")
    inheriting.copy_checkpoint(donor, trial, 10)
    assert [path.name for path in trial.checkpoints.iterdir()] == ["ckpt_10"]
