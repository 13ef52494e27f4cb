"""Which checkpoints count as committed."""

from __future__ import annotations

import os
import pathlib

import numpy as np
import orbax.checkpoint as ocp
import pytest

import evaluators
from kauldron_core import ckpts


def make(folder: pathlib.Path, name: str, *files: str) -> None:
    (folder / name).mkdir(parents=True)
    for file in files:
        (folder / name / file).write_text("{}")


def test_only_committed_steps_are_seen_and_sorted_by_number(tmp_path: pathlib.Path):
    for name in ("ckpt_200", "ckpt_1000", "ckpt_90", "ckpt_0"):
        make(tmp_path, name, "_CHECKPOINT_METADATA", "commit_success.txt")
    assert evaluators.committed_steps(tmp_path) == [0, 90, 200, 1000]
    assert evaluators.is_committed(tmp_path, 90)
    assert not evaluators.is_committed(tmp_path, 91)


@pytest.mark.parametrize(
    "name",
    [
        *("ckpt_5.orbax-checkpoint-tmp", "ckpt_5.orbax-checkpoint-tmp-17", "ckpt_5.removed", "ckpt_5.damaged-ab12"),
        *("5", "ckpt_05", "ckpt_-5", "ckpt_5a", "ckpt_", "ckpt_5 ", "CKPT_5", "ckpt_٥", "checkpoint_5", ".ckpt_5"),
    ],
)
def test_other_names_are_ignored_and_the_checkpointer_agrees(tmp_path: pathlib.Path, name: str):
    make(tmp_path, name, "_CHECKPOINT_METADATA")
    assert evaluators.committed_steps(tmp_path) == []
    assert ckpts.all_steps(tmp_path) == []


def test_a_folder_without_the_commit_file_and_a_plain_file_are_ignored(tmp_path: pathlib.Path):
    make(tmp_path, "ckpt_5")
    (tmp_path / "ckpt_6").write_text("")
    assert evaluators.committed_steps(tmp_path) == []
    assert ckpts.all_steps(tmp_path) == []


def test_no_folder_means_no_checkpoints(tmp_path: pathlib.Path):
    (tmp_path / "file").write_text("")
    assert evaluators.committed_steps(tmp_path / "none") == []
    assert evaluators.committed_steps(tmp_path / "file") == []


def test_what_orbax_has_committed_is_seen_and_what_it_is_writing_is_not(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    """Holds for the installed Orbax what watcher.py says about it: the rename of the folder is the commit."""
    seen: list[tuple[list[int], list[int], bool]] = []
    rename = os.rename

    def watched_rename(source: str, target: str) -> None:
        is_folder = pathlib.Path(target).name.startswith("ckpt_")
        before = evaluators.committed_steps(tmp_path)
        is_marked = (pathlib.Path(source) / "_CHECKPOINT_METADATA").is_file()
        rename(source, target)
        if is_folder:
            seen.append((before, evaluators.committed_steps(tmp_path), is_marked))

    monkeypatch.setattr(os, "rename", watched_rename)
    with ocp.AsyncCheckpointer(ocp.CompositeCheckpointHandler()) as checkpointer:
        for step in (1, 2):
            state = {"a": np.ones(1000, np.float32)}
            checkpointer.save(tmp_path / f"ckpt_{step}", ocp.args.Composite(state=ocp.args.StandardSave(state)))
            checkpointer.wait_until_finished()
    assert seen == [([], [1], True), ([1], [1, 2], True)]
    assert ckpts.all_steps(tmp_path) == [1, 2]
