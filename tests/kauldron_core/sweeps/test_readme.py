"""The example of the README runs as it stands, and its table names the files that are there."""

import pathlib
import re

ROOM = pathlib.Path(__file__).parents[3] / "kauldron_core" / "sweeps"
TEXT = (ROOM / "README.md").read_text(encoding="utf-8")


def test_the_example():
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    variables = {}
    exec(compile(code, "README.md", "exec"), variables)
    assert len(variables["trials"]) == 12
    assert variables["names"][0].startswith("0000-seed=0-hidden=32-rate=")
    assert variables["first"].model.hidden == 32 and variables["cfg"].model.hidden == 64


def test_the_table_names_every_file():
    named = set(re.findall(r"`(\w+\.py)`", TEXT))
    assert named == {file.name for file in ROOM.glob("*.py")} - {"__init__.py"}


def test_links_lead_to_what_is_there():
    for link in re.findall(r"\]\(([^)]+)\)", TEXT):
        assert (ROOM / link).exists(), link
