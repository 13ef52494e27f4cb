"""The examples of the READMEs run as they stand."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

pytestmark = pytest.mark.slow

ROOMS = ("forward", "ckpts", "evals", "train", "packs")


@pytest.mark.parametrize("room", ROOMS)
def test_the_examples_run(room: str) -> None:
    text = (pathlib.Path(__file__).parents[3] / "kauldron_core" / room / "README.md").read_text()
    blocks = [block.split("```")[0] for block in text.split("```python\n")[1:]]
    assert blocks
    for block in blocks:
        namespace: dict[str, Any] = {"__name__": "readme"}
        exec(compile(block, f"{room}/README.md", "exec"), namespace)
