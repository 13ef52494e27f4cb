"""Which experiments can be in a pack at all, whatever they differ in."""

from __future__ import annotations

from typing import Any

import jax

from kauldron_core import konfig
from kauldron_core.packs.running import placement
from kauldron_core.train.trainer import Trainer

_OTHER_KEYS = ("rbg", "unsafe_rbg")
_THREEFRY = "threefry2x32"


def why_alone(cfg: Any, trainer: Trainer) -> str | None:
    """Returns why an experiment can't be in a pack, None if it can."""
    kind = jax.config.jax_default_prng_impl  # pyright: ignore[reportAttributeAccessIssue]
    others = [value for value in konfig.flatten(cfg).values() if isinstance(value, str) and value in _OTHER_KEYS]
    if kind != _THREEFRY or others:
        return (
            f"its random keys are {others[0] if others else kind}, and only threefry gives the same numbers in a pack"
        )
    if trainer.setup.eval_only:
        return "it only evaluates"
    if trainer.init_transform is not None:
        return "init_transform changes its state outside of the compiled step"
    if trainer.checkify_error_categories:
        return "checkify_error_categories asks for checks that stop the whole program"
    if trainer.profiler is not None:
        return "it is to be profiled"
    if trainer.train_summaries:
        return "train_summaries are written by trials alone only"
    return placement.why_alone(trainer) if jax.device_count() > 1 else None
