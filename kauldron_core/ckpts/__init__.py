"""Checkpoints: saved in the background, read back or refused, never half."""

from kauldron_core.ckpts.background import SaveFailed
from kauldron_core.ckpts.checkpointer import Checkpointer
from kauldron_core.ckpts.layout import all_steps, is_committed, latest_step, read_metadata, step_path
from kauldron_core.ckpts.loaders import (
    InitTransform,
    MultiTransform,
    PartialKauldronLoader,
    SimpleCheckpointLoader,
    find_checkpoint,
)
from kauldron_core.ckpts.mismatch import StateMismatch, expected_bytes, spec_bytes
from kauldron_core.ckpts.mismatch import check as check_state
from kauldron_core.ckpts.pointers import Row
from kauldron_core.ckpts.reader import Checkpoint, DamagedCheckpoint, MissingCheckpoint, load, read_data_state
from kauldron_core.ckpts.verifying import verify

__all__ = [
    "Checkpoint",
    "Checkpointer",
    "DamagedCheckpoint",
    "InitTransform",
    "MissingCheckpoint",
    "MultiTransform",
    "PartialKauldronLoader",
    "Row",
    "SaveFailed",
    "SimpleCheckpointLoader",
    "StateMismatch",
    "all_steps",
    "check_state",
    "expected_bytes",
    "find_checkpoint",
    "is_committed",
    "latest_step",
    "load",
    "read_data_state",
    "read_metadata",
    "spec_bytes",
    "step_path",
    "verify",
]
