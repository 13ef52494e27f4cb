"""What is looked at before the first stage of a pipeline: whether stages that rank will know which end is the best."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kauldron_core.errors import ConfigError
from kauldron_core.rundir import Directions
from pipelines import experiment as experiments
from pipelines import planning
from pipelines.stages import EvaluateStage, ReportStage, SelectStage, Stage, SweepStage


def check_directions(waiting: Mapping[str, Stage], stages: Mapping[str, Stage]) -> None:
    """Refuses a stage that ranks by a metric of which neither it nor the metric says which end is the good one.

    Args:
      waiting: The stages that are to run.
      stages: All of them.

    Raises:
      ConfigError: For the first such stage.
    """
    for name, stage in waiting.items():
        if not isinstance(stage, SelectStage | ReportStage) or stage.metric is None:
            continue
        metrics, at = list(_full_names(stage, stages)), f"stages.{name}.mode"
        is_unknown = stage.mode is None and any(Directions().of(metric) is None for metric in metrics)
        directions = _directions_of(stage.of, stages) if is_unknown else Directions()
        if directions is not None:
            for metric in metrics:
                directions.mode(metric, stage.mode, at=at)


def _full_names(stage: SelectStage | ReportStage, stages: Mapping[str, Stage]) -> Iterator[str]:
    """Yields the metric of a stage with the evaluator that measures it."""
    if isinstance(stage, SelectStage):
        yield str(stage.metric)
        return
    source = stages[stage.of]
    for evaluator in (source.evaluators or ()) if isinstance(source, EvaluateStage) else ():
        yield f"{evaluator}/{stage.metric}"


def _directions_of(name: str, stages: Mapping[str, Stage]) -> Directions | None:
    """Returns what is better of the metrics of the sweep that a stage goes back to; None where that is unknown yet."""
    stage = stages[name]
    while not isinstance(stage, SweepStage):
        name = getattr(stage, "of", "")
        if name not in stages:
            return None
        stage = stages[name]
    from kauldron_core.train import metric_directions  # JAX

    planning.keep_off_accelerators()
    try:
        return metric_directions(experiments.build(experiments.read_experiment(stage.words).config))
    except ConfigError:  # An axis may be what it lacks; the sweep says it otherwise.
        return None
