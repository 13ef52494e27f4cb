"""The examples of the READMEs run as they stand."""

import pathlib
import re

import flax.linen as nn
import pytest

ROOT = pathlib.Path(__file__).parents[3]


def blocks(room):
    text = (ROOT / "kauldron_core" / room / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def test_the_example_of_konfig(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = blocks("konfig")
    variables = {"__name__": "an_example"}
    exec(compile(code, "README.md", "exec"), variables)
    assert variables["model"] == nn.Dense(features=10)
    assert variables["cfg"].optimizer[0].decay_steps == 50


def test_the_example_of_paths():
    (code,) = blocks("paths")
    start, *lines = code.strip().splitlines()
    variables = {}
    exec(start, variables)
    checked = 0
    for line in filter(None, map(str.strip, lines)):
        expression, _, expected = line.partition("#")
        assert eval(expression, variables) == eval(expected, variables)
        checked += 1
    assert checked == 4


@pytest.mark.parametrize("room", ["konfig", "paths"])
def test_a_readme_links_to_what_is_there(room):
    text = (ROOT / "kauldron_core" / room / "README.md").read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)]+)\)", text):
        assert (ROOT / "kauldron_core" / room / link).exists(), link
