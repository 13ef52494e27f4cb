"""From a sweep on the digits to a reported figure: search, choose, train the best longer with three seeds, evaluate.

    kdr pipeline run pipelines/configs/digits_pipeline.py

Expected: two to three minutes on two cores; `runs/digits-pipeline/report.md` has one line a chosen point, the best
with a mean accuracy of 0.97 to 0.99 on the 360 test images.
"""

from __future__ import annotations

from typing import Any

from kauldron_core import konfig

with konfig.imports():
    import pipelines

ACCURACY = "test/metrics/accuracy"


def get_config() -> Any:
    """Returns the pipeline."""
    return pipelines.Pipeline(
        name="digits-pipeline",
        stages={
            "search": pipelines.SweepStage(
                config="pipelines/configs/digits.py",
                cfg={"num_train_steps": 200},
                sweep={"optimizer.learning_rate": "[1e-3, 1e-2]", "model.hidden": "[32, 128]"},
                run_spec={"metric": ACCURACY},
            ),
            "choose": pipelines.SelectStage(of="search", metric=ACCURACY, top=2),
            "longer": pipelines.RetrainStage(of="choose", cfg={"num_train_steps": 500}, seeds=3),
            "evaluate": pipelines.EvaluateStage(of="longer", evaluators=("test",)),
            "report": pipelines.ReportStage(of="evaluate", metric="metrics/accuracy"),
        },
    )
