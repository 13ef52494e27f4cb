"""The table of the README names the files that are there."""

import pathlib
import re

ROOM = pathlib.Path(__file__).parents[3] / "kauldron_core" / "sweeps"
TEXT = (ROOM / "README.md").read_text(encoding="utf-8")


def test_the_table_names_every_file():
    named = set(re.findall(r"`(\w+\.py)`", TEXT))
    assert named == {file.name for file in ROOM.glob("*.py")} - {"__init__.py"}
