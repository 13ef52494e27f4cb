"""Reads checkpoints. Changes nothing in the folder, so evaluators may read while a trainer writes."""

from __future__ import annotations

import dataclasses
import logging
import os
from typing import Any

import jax

from kauldron_core.ckpts import layout, mismatch
from kauldron_core.errors import listing

_logger = logging.getLogger(__name__)


class DamagedCheckpoint(RuntimeError):
    """A checkpoint that was committed and can no longer be read."""


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """One checkpoint in memory.

    Attributes:
      step: Its step.
      state: The state, with the structure of the template.
      data_state: State of the data iterator after the last batch that was consumed.
      metadata: What it says of itself.
      damaged_steps: Newer checkpoints that could not be read and were passed over.
    """

    step: int
    state: Any
    data_state: Any
    metadata: dict[str, Any]
    damaged_steps: tuple[int, ...] = ()


def load(directory: str | os.PathLike[str], template: Any, *, step: int = -1) -> Checkpoint:
    """Returns the checkpoint at `step`, by default the newest that can be read.

    Args:
      directory: The folder that holds `ckpt_N`.
      template: A state of arrays or shapes; what is read takes its structure and, where it has one, its sharding.
      step: Which one; -1 is the newest. A newest one that is damaged is reported, and the one before it is read.

    Raises:
      FileNotFoundError: If there is no such checkpoint.
      DamagedCheckpoint: If the one asked for, or every one there is, can't be read.
      StateMismatch: If it holds other arrays than the template.
    """
    steps = layout.all_steps(directory)
    if step != -1:
        if step not in steps:
            raise FileNotFoundError(
                f"{os.fspath(directory)}: no checkpoint at step {step}. Available: {listing(map(str, steps))}."
            )
        return _load_one(directory, template, step)
    if not steps:
        raise FileNotFoundError(f"{os.fspath(directory)}: there is no checkpoint.")
    damaged: list[int] = []
    for candidate in reversed(steps):
        try:
            found = _load_one(directory, template, candidate)
        except DamagedCheckpoint as error:
            _logger.warning("%s", error)
            damaged.append(candidate)
            if len(damaged) == len(steps):
                raise
        else:
            return dataclasses.replace(found, damaged_steps=tuple(damaged))
    raise AssertionError("unreachable")


def _load_one(directory: str | os.PathLike[str], template: Any, step: int) -> Checkpoint:
    # Takes seconds to import, and only who reads or writes a checkpoint needs it.
    import orbax.checkpoint as ocp

    path = layout.step_path(directory, step)
    missing = layout.missing_parts(path)
    if missing:
        raise DamagedCheckpoint(f"{path}: damaged, it lacks {listing(missing)}.")
    metadata = layout.read_metadata(path)
    if "state" not in metadata:
        raise DamagedCheckpoint(f"{path}: damaged, its metadata can't be read.")
    mismatch.check(metadata["state"], template, place=str(path))

    template = jax.tree.map(_with_sharding, template)
    arguments = ocp.args.Composite(
        state=ocp.args.PyTreeRestore(template, restore_args=ocp.checkpoint_utils.construct_restore_args(template)),
        data=ocp.args.JsonRestore(),
    )
    try:
        with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as reader:
            found = reader.restore(path, args=arguments)
    except Exception as error:
        # Orbax and TensorStore raise whatever their storage layer met; the parts and shapes were right just above.
        raise DamagedCheckpoint(f"{path}: damaged, it can't be read: {str(error).splitlines()[0][:200]}") from error
    return Checkpoint(step=step, state=found.state, data_state=found.data["iterator"], metadata=metadata)


def _with_sharding(leaf: Any) -> jax.ShapeDtypeStruct:
    sharding = getattr(leaf, "sharding", None) or jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
