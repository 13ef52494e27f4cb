"""The examples of the README run as they stand."""

from __future__ import annotations

import pathlib
from typing import Any

ROOM = pathlib.Path(__file__).parents[3] / "kauldron_core" / "modules"


def test_the_examples_run() -> None:
    blocks = [block.split("```")[0] for block in (ROOM / "README.md").read_text().split("```python\n")[1:]]
    assert len(blocks) == 2
    namespace: dict[str, Any] = {"__name__": "readme"}
    for block in blocks:
        exec(compile(block, str(ROOM / "README.md"), "exec"), namespace)
