"""The example of the README runs as it stands."""

from __future__ import annotations

import pathlib
from typing import Any

ROOM = pathlib.Path(__file__).parents[3] / "kauldron_core" / "sharding"


def test_the_example_runs() -> None:
    (block,) = [block.split("```")[0] for block in (ROOM / "README.md").read_text().split("```python\n")[1:]]
    namespace: dict[str, Any] = {"__name__": "readme"}
    exec(compile(block, str(ROOM / "README.md"), "exec"), namespace)
