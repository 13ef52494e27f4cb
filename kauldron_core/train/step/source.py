"""Where the compiled step of an experiment comes from: the part of its config that the step depends on."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from kauldron_core.forward import Blueprint, RngStreams
from kauldron_core.train.experiment import Experiment
from kauldron_core.train.inherit import inherit
from kauldron_core.train.step.compiled import StepSource
from kauldron_core.train.step.program import Program
from kauldron_core.train.step.trainstep import TrainStep

STEP_FIELDS = (
    "checkify_error_categories",
    "microbatches",
    "model",
    "on_nonfinite",
    "optimizer",
    "precision",
    "remat",
    "rng_streams",
    "schedules",
    "seed",
    "sharding",
    "train_losses",
    "train_metrics",
    "train_summaries",
    "trainstep",
)
"""What the compiled step reads."""
_INHERITED = ("checkify_error_categories", "microbatches", "on_nonfinite", "precision", "remat", "sharding")


def step_source(cfg: Any, *, others: Collection[str] = ()) -> StepSource:
    """Returns where the step of an experiment comes from.

    Args:
      cfg: Its config.
      others: Paths of numbers, beside those of optimizer, schedules, losses and seed, that may be arguments.
    """
    blueprint = Blueprint.of(cfg, STEP_FIELDS, numbers_in=("optimizer", "schedules", "train_losses"), others=others)
    return StepSource(blueprint, _program_of)


def bound_step(experiment: Experiment, *, rng_streams: RngStreams) -> TrainStep:
    """The step of `experiment` with all that it takes from there."""
    parts = {field: getattr(experiment, field) for field in STEP_FIELDS}
    return _bound_step({**parts, "rng_streams": rng_streams})


def _bound_step(parts: Mapping[str, Any]) -> TrainStep:
    return inherit(
        parts["trainstep"],
        model=parts["model"],
        rng_streams=inherit(parts["rng_streams"], seed=parts["seed"]),
        optimizer=parts["optimizer"],
        losses=parts["train_losses"],
        metrics=parts["train_metrics"],
        schedules=parts["schedules"],
        summaries=parts["train_summaries"],
        **{name: parts[name] for name in _INHERITED},
    )


def _program_of(parts: Mapping[str, Any]) -> Program:
    """Returns the program of a step whose config has these fields."""
    return _bound_step({**_step_defaults(), **parts}).program


def _step_defaults() -> dict[str, Any]:
    fields = {field.name: field for field in dataclasses.fields(Experiment)}
    chosen = [fields[name] for name in STEP_FIELDS]
    return {f.name: f.default if f.default_factory is dataclasses.MISSING else f.default_factory() for f in chosen}
