"""The README of every room: its examples run as they stand, and its links lead to what is there."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import pytest

from kauldron_core import rundir

PACKAGE = pathlib.Path(__file__).parents[2] / "kauldron_core"
ROOMS = sorted(readme.parent.name for readme in PACKAGE.glob("*/README.md"))
TRAINS = {"ckpts", "evals", "forward", "packs", "train"}

# What an example comes to, where its text says so.
COMES_TO: dict[str, Callable[[dict[str, Any]], bool]] = {
    "data": lambda names: names["batch"]["image"].shape == (4, 8, 8, 1),
    "konfig": lambda names: names["model"] == nn.Dense(features=10) and names["cfg"].optimizer[0].decay_steps == 50,
    "rundir": lambda names: rundir.RunDir("runs/demo").find_trial("0000-lr=0.01").status() == "done",
    "sweeps": lambda names: (
        len(names["trials"]) == 12
        and names["names"][0].startswith("0000-seed=0-hidden=32-rate=")
        and (names["first"].model.hidden, names["cfg"].model.hidden) == (32, 64)
    ),
}


def text_of(room: str) -> str:
    return (PACKAGE / room / "README.md").read_text(encoding="utf-8")


def examples(room: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text_of(room), flags=re.DOTALL)


@pytest.mark.parametrize("room", [pytest.param(room, marks=[pytest.mark.slow] * (room in TRAINS)) for room in ROOMS])
def test_the_examples_run(room: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "readme"}
    assert examples(room)
    for example in examples(room):
        exec(compile(example, f"{room}/README.md", "exec"), names)
    assert COMES_TO.get(room, lambda names: True)(names)


def test_the_lines_of_paths_come_to_what_they_say() -> None:
    (example,) = examples("paths")
    start, *lines = example.strip().splitlines()
    names: dict[str, Any] = {}
    exec(start, names)
    said = [line.partition("#") for line in lines if line.strip()]
    assert len(said) == 4
    for expression, _, expected in said:
        assert eval(expression.strip(), names) == eval(expected.strip(), names)


@pytest.mark.parametrize("room", ROOMS)
def test_the_links_lead_to_what_is_there(room: str) -> None:
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text_of(room)):
        assert "://" in link or (PACKAGE / room / link).exists(), link
